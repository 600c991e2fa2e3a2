"""What a script set on its readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.jvm.untyped import PySpark


class StreamOptions:
    """What a script set on one reader or writer: Spark's own objects do not tell."""

    def __init__(self) -> None:
        self.format: str | None = None
        self.table: str | None = None
        self.function: PySpark = None
        """What ``foreach`` or ``foreachBatch`` was given."""
        self.query_name: str | None = None
        self.output_mode: str | None = None
        """None for Spark's default, ``append``."""
        self.trigger: dict[str, Any] = {}
        self.options: dict[str, str] = {}

    @staticmethod
    def of(target: PySpark) -> StreamOptions:
        """Return what was set on this reader or writer so far."""
        found = target.__dict__.setdefault("_flinkstyle", StreamOptions())
        assert isinstance(found, StreamOptions)  # noqa: S101  # for mypy
        return found

    def set_target(self, method: str, target: str | None) -> None:
        """Remember the path that ``start`` was given, or the table of ``toTable``."""
        if method == "toTable":
            self.table = target
        elif target is not None:
            self.set_options({"path": target})

    def set_options(self, options: dict[str, Any]) -> None:
        """Remember options; Spark ignores the case of their names."""
        self.options.update({name.lower(): str(value) for name, value in options.items()})
