"""The records of a cut of several jobs, in ``<root>/cuts/``, beside the jobs' folders.

Each job's agent holds its queries and writes their positions; the caller answers with one barrier for
all. One create decides whether the cut counts: the caller's ``complete`` once every savepoint is there, or
any process's ``abandoned`` before. The process that comes second finds that decision and obeys it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from airflow_flinkstyle.protocol.board import CUTS, check_job_name, check_name
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_flinkstyle.storage.base import ObjectStore

Verdict = Literal["complete", "abandoned"]
Place = tuple[str, str, int]
"""Cluster id, topic and partition: one log that queries of several jobs may read."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where reading is in one partition."""

    cluster_id: str
    topic: str
    partition: int
    offset: NextOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions(Record):
    """Positions in any number of logs.

    ``cuts/<id>/held/<job>.json``: the agent's: how far the queries of a held job are.
    ``cuts/<id>/barrier.json``: the caller's, created once: every query is to stop exactly here.
    """

    what: ClassVar[str] = "list of positions"

    positions: tuple[Position, ...]

    @classmethod
    def of(cls, places: Mapping[Place, NextOffset]) -> Positions:
        """List positions in a fixed order."""
        return cls(
            positions=tuple(
                Position(cluster_id=cluster_id, topic=topic, partition=partition, offset=offset)
                for (cluster_id, topic, partition), offset in sorted(places.items())
            )
        )

    def places(self) -> dict[Place, NextOffset]:
        """Return the offset of each place."""
        return {(at.cluster_id, at.topic, at.partition): at.offset for at in self.positions}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut(Record):
    """``cuts/<id>.json``: created once. Savepoints that name a cut belong together only if it is complete."""

    what: ClassVar[str] = "cut"

    cut_id: Name
    verdict: Verdict
    members: Mapping[Name, Name]
    """Job -> id of its savepoint; empty if abandoned."""
    reason: str
    """Why it was abandoned; empty if complete."""
    decided_at_ms: int


def furthest(all_places: Iterable[Mapping[Place, NextOffset]]) -> dict[Place, NextOffset]:
    """Return the barrier of queries at these positions: none has read further. Pure."""
    barrier: dict[Place, NextOffset] = {}
    for places in all_places:
        for place, offset in places.items():
            barrier[place] = max(offset, barrier.get(place, offset))
    return barrier


class CutBoard:
    """The records of the cuts under a savepoint root."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def write_held(self, cut_id: str, job: str, held: Positions) -> None:
        """Write where a job is held."""
        self._store.write(self._key(cut_id, f"/held/{check_job_name(job)}"), held.to_bytes())

    def held(self, cut_id: str, job: str) -> Positions | None:
        """Return where a job is held; None while it is not."""
        return self._positions(self._key(cut_id, f"/held/{check_job_name(job)}"))

    def create_barrier(self, cut_id: str, barrier: Positions) -> None:
        """Write where all held jobs are to stop; raises ``ObjectExistsError`` if there is a barrier."""
        self._store.create(self._key(cut_id, "/barrier"), barrier.to_bytes())

    def barrier(self, cut_id: str) -> Positions | None:
        """Return where the held jobs are to stop; None while that is not known."""
        return self._positions(self._key(cut_id, "/barrier"))

    def _positions(self, key: str) -> Positions | None:
        found = self._store.get(key)
        return None if found is None else Positions.from_bytes(found.data)

    def decide(self, cut: Cut) -> Cut:
        """Decide a cut, and return the decision that counts: the first one."""
        key = self._key(cut.cut_id, "")
        try:
            self._store.create(key, cut.to_bytes())
        except ObjectExistsError:
            return Cut.from_bytes(self._store.read(key))
        return cut

    def decision(self, cut_id: str) -> Cut | None:
        """Return how a cut was decided; None while it is open."""
        found = self._store.get(self._key(cut_id, ""))
        return None if found is None else Cut.from_bytes(found.data)

    def _key(self, cut_id: str, suffix: str) -> str:
        return f"{CUTS}/{check_name('cut id', cut_id)}{suffix}.json"
