"""What a script set on its readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.agent.core.errors import UNSUPPORTED_MODE

if TYPE_CHECKING:
    from collections.abc import Mapping

SCHEMA_OPTIONS: Final = ("schematrackinglocation", "schemalocation")
"""Of Delta: two names, in lower case; other sources have an option of the second name, too."""


class StreamOptions:
    """What a script set on one reader or writer: Spark's own objects do not show it."""

    def __init__(self) -> None:
        self.format: str | None = None
        self.table: str | None = None
        self.function: Any = None
        """What ``foreach`` or ``foreachBatch`` was given."""
        self.query_name: str | None = None
        self.output_mode: str | None = None
        """None for Spark's default, ``append``."""
        self.trigger: dict[str, Any] = {}
        self.options: dict[str, str] = {}

    @staticmethod
    def of(target: object) -> StreamOptions:
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


def schema_locations(options: Mapping[str, str], provider: str | None) -> dict[str, str]:
    """Return where a source of Delta follows the schema of its table, by the name of the option."""
    lowered = {name.lower(): value for name, value in options.items()}
    names = SCHEMA_OPTIONS if "delta" in (provider or "").lower() else SCHEMA_OPTIONS[:1]
    return {name: lowered[name] for name in names if name in lowered}


def refuse_unsupported(settings: StreamOptions) -> None:
    """Refuse modes of Spark by name.

    Raises:
        FlinkstyleError: ``UNSUPPORTED_MODE`` for real-time mode, continuous processing, asynchronous progress
            tracking.
    """
    if "realTime" in settings.trigger:
        raise UNSUPPORTED_MODE.error(mode="real-time mode", remedy="Use trigger(processingTime=...).")
    if "continuous" in settings.trigger:
        raise UNSUPPORTED_MODE.error(mode="continuous processing", remedy="Use trigger(processingTime=...).")
    if settings.options.get("asyncprogresstrackingenabled", "false").lower() == "true":
        raise UNSUPPORTED_MODE.error(
            mode="asynchronous progress tracking", remedy="Remove the option asyncProgressTrackingEnabled."
        )
