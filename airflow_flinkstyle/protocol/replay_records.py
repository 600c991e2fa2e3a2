"""The setting of a replay's driver, and the range that it records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import Writing
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import decode, encode, stored

REPLAY: Final = "spark.flinkstyle.replay"
"""Setting that makes a job the replay of another one; its value is ``Replay.as_setting``."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Which records a job runs once more, beside the job that has run them, and where it must not write."""

    job: Name
    """The job whose savepoint it starts from."""
    queries: tuple[Name, ...]
    """The queries of that savepoint."""
    until_ms: int | None = None
    """In each partition the first record of this time or later ends the range; epoch milliseconds. None:
    it ends at ``until``."""
    until: Mapping[Name, Mapping[str, Offsets]] = field(default_factory=dict)
    """Query -> source -> where the range ends; a partition that is not named is not read."""
    records: int = 250_000
    """How many records a batch reads at most, over all partitions of its query."""
    outputs: tuple[Writing, ...] = ()
    """Where the original job writes, as far as its driver reported it."""
    lineages: tuple[str, ...] = ()
    """Of that job's transactional sinks."""
    own_outputs: tuple[Name, ...] = ()
    """Queries that write elsewhere than that job's, as a person confirms: the script does not show where."""

    def as_setting(self) -> str:
        """Return it as the value of ``REPLAY``."""
        return json.dumps(encode(self), sort_keys=True)

    @staticmethod
    def of_setting(text: str) -> Replay | None:
        """Parse a session's setting; None if it is empty."""
        return decode(Replay, json.loads(text)) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRange(Record):
    """``replay/<query>.json``: the range that a query of a replay runs, written once by its first driver.

    So a driver that is started again ends where the first one would have, even if new records have come.
    """

    what: ClassVar[str] = "replay range"

    begin: Mapping[str, Offsets]
    """By source: the savepoint's positions."""
    end: Mapping[str, Offsets]
    """By source: exclusive."""
    found_at_ms: int

    @property
    def offsets(self) -> int:
        """How many offsets it has: as many as records, but for transaction markers and compacted records."""
        return sum(
            at - self.begin[source].get(partition, at)
            for source, ends in self.end.items()
            for partition, at in ends.items()
        )
