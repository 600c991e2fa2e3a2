"""``continue`` from a savepoint that lacks a query: it would begin anew."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.errors import RewindError
from airflow_flinkstyle.jobs.running.newest import require_newest
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.query_records import QueryStatus
from airflow_flinkstyle.protocol.records import Heartbeat
from airflow_flinkstyle.protocol.sink_records import Sinks
from airflow_flinkstyle.savepoint.compat import note_of_repartition
from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from testbed.memory_store import MemoryStore
from tests.manifests import a_manifest
from tests.unit.agent.conftest import a_claim

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.records import AgentState

AT = 4


def a_beat(query_id: str, batch: int | None, *, waiting: bool = False, **told: Any) -> QueryStatus:
    batch_id = None if batch is None else BatchId(batch)
    return QueryStatus(
        query_id=query_id, batch_id=batch_id, batch_committed_at_ms=None, sources={}, waiting=waiting, **told
    )


class Runs:
    """The last words of a job's runs, the first one the one that the savepoint was taken from."""

    def __init__(self) -> None:
        self.board, self.newest = JobBoard(MemoryStore(), "shop"), 0

    def add(self, state: AgentState = "closed", **queries: QueryStatus) -> Runs:
        self.newest += 1
        words = Heartbeat(
            incarnation=Incarnation(1), state=state, beat=1, written_at_ms=1, spark_version="4.2.0",
            application_id="app", queries=queries,
        )  # fmt: skip
        self.board.create_claim(Generation(self.newest), a_claim())
        self.board.beat(Generation(self.newest), words, seen=None)
        return self

    def go_on(self, *, repartitioned: bool = False, **saved: Any) -> None:
        query = QuerySnapshot(
            name="a", query_id="qa", batch_id=BatchId(AT), checkpoint_location="x", planned_offsets=None,
            pinned_confs={}, kafka={}, files=(), **saved,
        )  # fmt: skip
        manifest = a_manifest(query)
        if repartitioned:  # where files hold the number of their batch, it goes on behind an empty one
            manifest = replace(
                manifest,
                evidence=note_of_repartition(manifest, ["a"]),
                queries=(replace(query, batch_id=BatchId(AT + 1)),),
            )
        runs: Any = SimpleNamespace(board=self.board)
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
    ],
)
def test_query_that_was_started_behind_the_savepoint_is_refused(runs: Runs, found: str) -> None:
    with pytest.raises(RewindError, match=found):
        runs.go_on()


def test_query_of_which_a_dead_driver_told_no_batch_may_have_run() -> None:
    # A caller has closed for the dead driver since, and says how far the saved query was.
    runs = Runs().add("running", a=IDLE, b=a_beat("qb", None)).add(a=IDLE)
    with pytest.raises(RewindError, match="query b, which was started after it was taken, may have run"):
        runs.go_on()
    Runs().add("running", a=IDLE, b=a_beat("qb", None)).add(a=IDLE, b=a_beat("qb", None)).go_on()


@pytest.mark.parametrize(
    "runs",
    [
        Runs().add(a=IDLE),
        Runs().add(a=IDLE, b=a_beat("", None)),  # Spark was never told to start it
        Runs().add(a=IDLE).add(a=a_beat("another lineage", 1), b=a_beat("qb", 1)),
    ],
)
def test_savepoint_that_lacks_nothing_is_gone_on_from(runs: Runs) -> None:
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
