"""``continue`` from a savepoint that lacks a query: it would begin anew."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.deployments.base import Unknown
from airflow_flinkstyle.jobs.errors import RewindError
from airflow_flinkstyle.jobs.start.rewinds import require_newest
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.head import placed
from airflow_flinkstyle.protocol.line import Parent
from airflow_flinkstyle.protocol.query_records import QueryStatus, Sinks
from airflow_flinkstyle.protocol.records import Current, Heartbeat, TakeoverOrder
from airflow_flinkstyle.savepoint.compat import note_of_repartition
from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from testbed.memory_store import MemoryStore
from tests.manifests import a_manifest
from tests.unit.agent.conftest import a_claim

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.records import AgentState
    from airflow_flinkstyle.types import Rewind

AT, RUN = 4, 5
LAUNCH = {"spec": {"name": "shop"}}


def a_beat(query_id: str, batch: int | None, *, waiting: bool = False, **told: Any) -> QueryStatus:
    batch_id = None if batch is None else BatchId(batch)
    return QueryStatus(
        query_id=query_id, batch_id=batch_id, batch_committed_at_ms=None, sources={}, waiting=waiting, **told
    )


class Runs:
    """The last words of a job's runs, the first one the one that the savepoint was taken from."""

    def __init__(self) -> None:
        self.board, self.newest = JobBoard(MemoryStore(), "shop"), 0

    def add(
        self, state: AgentState = "closed", *, after: str | None = None, rewind: Rewind = "continue",
        **queries: QueryStatus,
    ) -> Runs:  # fmt: skip
        """Let one more run take over, in the checkpoint of the one before or from a savepoint of it."""
        self.newest += 1
        generation, before = Generation(self.newest), self.board.current()
        words = Heartbeat(
            incarnation=Incarnation(1), state=state, beat=1, written_at_ms=1, spark_version="4.2.0",
            application_id="app", queries=queries,
        )  # fmt: skip
        follows = before.value.generation if before is not None else None
        parent = Parent(generation=follows, batches_run=RUN, savepoint_id=after)
        order = TakeoverOrder(savepoint_id=after, closed_at=None, expected={}, parent=parent, rewind=rewind)
        self.board.create_claim(generation, a_claim(follows=follows, launch=LAUNCH))
        self.board.create_takeover_order(generation, placed(self.board, generation, order))
        self.board.take_current(Current(generation=generation, incarnation=Incarnation(1)), seen=before)
        self.board.beat(generation, words, seen=None)
        return self

    def go_on(self, *, repartitioned: bool = False, **saved: Any) -> None:
        query = QuerySnapshot(
            name="a", query_id="qa", batch_id=BatchId(AT), checkpoint_location="x", planned_offsets=None,
            pinned_confs={}, kafka={}, files=(), **saved,
        )  # fmt: skip
        manifest = replace(a_manifest(query), batches_run=RUN)
        if repartitioned:  # where files hold the number of their batch, it goes on behind an empty one
            manifest = replace(
                manifest,
                evidence=note_of_repartition(manifest, ["a"]),
                queries=(replace(query, batch_id=BatchId(AT + 1)),),
            )
        here: Any = SimpleNamespace(name="here", find=lambda _: None, native_id=lambda _: {}, state=Unknown)
        runs = JobView(
            board=self.board, repository=SavepointRepository(self.board.store, "shop"), deployment=here
        )
        require_newest(runs, manifest)


IDLE = a_beat("qa", AT)
"""A query that the savepoint holds, and that has committed nothing since."""


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        (
            Runs().add(a=IDLE, b=a_beat("qb", 0)),
            "query b, which was started after it was taken, is at batch 0",
        ),
        (Runs().add(a=IDLE).add(a=IDLE, b=a_beat("qb", 7)), "query b, .* is at batch 7"),
        (Runs().add("running", a=IDLE, b=a_beat("qb", None)), "ended at a batch that no run recorded"),
        (Runs().add(a=IDLE).add(b=a_beat("qb", 7)), "query a, .* has no such query in generation 2"),
    ],
)
def test_query_that_was_started_behind_the_savepoint_is_refused(runs: Runs, found: str) -> None:
    with pytest.raises(RewindError, match=found):
        runs.go_on()


@pytest.mark.parametrize(
    "runs",
    [
        Runs(),
        Runs().add(a=IDLE),
        Runs().add(a=IDLE, b=a_beat(None, None)),  # Spark was never told to start it
        Runs().add(a=IDLE).add(after="sp-1", b=a_beat("qb", None)),  # the new version has no query a
        Runs().add(a=IDLE).add(after="sp-1", rewind="re-emit", a=IDLE),  # and committed nothing
    ],
)
def test_savepoint_that_lacks_nothing_is_gone_on_from(runs: Runs) -> None:
    runs.go_on()


def test_savepoint_that_a_fork_has_gone_on_from_needs_a_choice_though_its_own_lineage_ended_there() -> None:
    runs = Runs().add(a=IDLE).add(after="sp-1", rewind="fork", a=a_beat("another lineage", AT))
    found = r"batch 4, and the job gave it another id: generation 2 started from savepoint sp-1 \(fork\)"
    with pytest.raises(RewindError, match=found):
        runs.go_on()


def test_repartitioned_savepoint_is_gone_on_from_where_the_job_has_ended() -> None:
    Runs().add(a=IDLE).go_on(repartitioned=True)


def test_batch_that_the_job_has_run_is_not_taken_for_the_empty_one_of_a_repartition() -> None:
    # Of the same number, but with records: they would be read, and counted, once more.
    with pytest.raises(RewindError, match=f"found batch {AT}, and the job continued to batch {AT + 1}"):
        Runs().add(a=IDLE).add(a=a_beat("qa", AT + 1)).go_on(repartitioned=True)


def test_planned_batch_whose_number_a_repartition_took_is_not_written_under_another() -> None:
    under_way = Sinks(lineages=(), under_way=True)
    runs = Runs().add(a=a_beat("qa", AT, sink="delta", sinks=under_way))
    runs.go_on(sink="delta", sinks=under_way)
    with pytest.raises(RewindError, match=f"expected to hold batch {AT + 1} of query a, which a driver had"):
        runs.go_on(sink="delta", sinks=under_way, repartitioned=True)
