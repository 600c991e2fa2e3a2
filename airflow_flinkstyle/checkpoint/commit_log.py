"""``commits/N``: batch N is done. Versions 1, 2 (Spark 4.0) and 3 (Spark 4.2). Pure. Spark: ``CommitLog``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_flinkstyle.checkpoint.errors import LogFormatError
from airflow_flinkstyle.checkpoint.logfile import json_object, split_version

KNOWN_VERSIONS = (1, 2, 3)

StateIds = Mapping[str, tuple[tuple[str, ...], ...]]
"""By operator, then by partition: the id of each of its stores' attempts, in no order to rely on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLog:
    """One file of the commit log."""

    version: int
    body: str
    """Everything behind the version line, raw."""

    def render(self) -> str:
        """Return exactly the text that was parsed."""
        return f"v{self.version}\n{self.body}"

    @property
    def next_watermark_ms(self) -> int:
        """Watermark of the batch after this one, epoch milliseconds."""
        value = self._fields().get("nextBatchWatermarkMs", 0)
        if not isinstance(value, int):
            raise LogFormatError.of("Commit log", "a number under 'nextBatchWatermarkMs'", self.body)
        return value

    @property
    def state_unique_ids(self) -> StateIds:
        """The attempts whose state this commit represents (checkpoint format v2); empty in format v1."""
        value = self._fields().get("stateUniqueIds")
        if value is None:
            return {}
        try:
            return {
                operator: tuple(tuple(str(uid) for uid in uids) for uids in partitions)
                for operator, partitions in value.items()
            }
        except (TypeError, AttributeError) as error:
            raise LogFormatError.of("Commit log", "lists under 'stateUniqueIds'", self.body) from error

    def with_state_ids(self, ids: Mapping[str, Sequence[Sequence[str]]]) -> CommitLog:
        """Return the log with other attempts of some operators, those of the others as they are."""
        fields = self._fields()
        fields["stateUniqueIds"] = {**(fields.get("stateUniqueIds") or {}), **ids}
        return replace(self, body=json.dumps(fields, separators=(",", ":")))

    def without_state_ids(self) -> CommitLog:
        """Return the log of a batch without state."""
        fields = self._fields()
        fields.pop("stateUniqueIds", None)
        return replace(self, body=json.dumps(fields, separators=(",", ":")))

    def _fields(self) -> dict[str, Any]:
        return json_object(self.body, "Commit log's second line")


def parse(text: str) -> CommitLog:
    """Parse the content of ``commits/N``.

    Raises:
        LogFormatError: If it is incomplete or malformed.
        FlinkstyleError: ``CHECKPOINT_UNSUPPORTED`` if its version is newer than 3.
    """
    version, body = split_version(text, "Commit log", KNOWN_VERSIONS)
    log = CommitLog(version=version, body=body)
    _ = (log.next_watermark_ms, log.state_unique_ids)  # a torn body is refused here, not later
    return log
