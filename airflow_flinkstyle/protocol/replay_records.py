"""What the driver of a replay is told, and what it says of the range that it runs."""

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
"""Setting that makes a job the replay of another one: what ``Replay.as_setting`` returns."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a job runs once more, beside the job that has run it, and where it must not write."""

    job: Name
    """Whose savepoint it starts from."""
    queries: tuple[Name, ...]
    """Of that savepoint."""
    until_ms: int | None = None
    """In each partition the first record of this time or later ends the range; epoch milliseconds. None:
    ``until`` says where."""
    until: Mapping[Name, Mapping[str, Offsets]] = field(default_factory=dict)
    """Query -> source -> where the range ends; a partition that is not named is not read."""
    records: int = 250_000
    """Of a batch, over all partitions that its query reads, at most."""
    outputs: tuple[Writing, ...] = ()
    """Where the job writes, as far as its driver has told."""
    lineages: tuple[str, ...] = ()
    """Of the job's transactional sinks."""
    own_outputs: tuple[Name, ...] = ()
    """Queries of which a person says that they write elsewhere than the job's, where nobody can see it."""

    def as_setting(self) -> str:
        """Return it as the value of ``REPLAY``."""
        return json.dumps(encode(self), sort_keys=True)

    @staticmethod
    def of_setting(text: str) -> Replay | None:
        """Return what a session's setting says; None if it says nothing."""
        return decode(Replay, json.loads(text)) if text else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRange(Record):
    """``replay/<query>.json``: the range that a query of a replay runs, written once by its first driver.

    So a driver that is started again ends where the first one would have, also if records came meanwhile.
    """

    what: ClassVar[str] = "replay range"

    begin: Mapping[str, Offsets]
    """By source: of the savepoint."""
    end: Mapping[str, Offsets]
    """By source: exclusive."""
    found_at_ms: int

    @property
    def offsets(self) -> int:
        """Offsets in it: as many as records, but for marks of transactions and what was compacted."""
        return sum(
            at - self.begin[source].get(partition, at)
            for source, ends in self.end.items()
            for partition, at in ends.items()
        )
