"""A job by its records alone, with as much behind it as a test wants, and what a look at it costs."""

# ruff: noqa: ANN401
from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.base import Alive
from airflow_flinkstyle.jobs.status import Sightings
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import QueryStatus
from airflow_flinkstyle.protocol.records import (
    Claim,
    End,
    Heartbeat,
    IncarnationRecord,
    Progress,
    Submit,
    TakeoverOrder,
)
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import Generation, Incarnation
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore
from tests.counting import CountingStore

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.deployments.base import DriverState

PROCESS = IncarnationRecord(host="here", pid=1, jvm_pid=1, pid_started="x", started_at_ms=1)


class Job:
    """A job with as much behind it as a test wants, and what a poll of it costs."""

    def __init__(self, finished: int) -> None:
        self.store = MemoryStore()
        self.board = JobBoard(self.store, "orders")
        self.version: str | None = None
        self.driver: DriverState = Alive()
        for generation in range(1, finished + 1):
            self.claim(generation)
            self.board.beat(Generation(generation), a_heartbeat("closed", 1), seen=None)
        self.newest = Generation(finished + 1)
        self.claim(self.newest)
        for number in range(1, finished + 1):
            self.relaunch(number)
            end = End(
                request_id=f"r{number}", outcome="done", savepoint_id=None, detail="Done.", ended_at_ms=1
            )
            shown = Progress(
                request_id=end.request_id, files_done=1, files_total=1, bytes_done=1, bytes_total=1, at_ms=1
            )
            self.board.write_progress(self.newest, shown)
            self.board.create_end(self.newest, end)
        for number in range(1, finished):
            self.board.create_incarnation(self.newest, Incarnation(number), PROCESS)
        self.run = self.take_over(finished)

    def claim(self, generation: int) -> None:
        claim = Claim(
            claim_key=f"run {generation}", follows=Generation(generation - 1) or None,
            checkpoint_location="/checkpoints", prepare_savepoint_id=None, overrides=(), lease_s=30.0,
            launch={"spec": {"name": "orders"}}, claimed_at_ms=1,
        )  # fmt: skip
        order = TakeoverOrder(savepoint_id=None, closed_at=None, expected={}, parent=BEGINNING)
        self.board.create_claim(Generation(generation), claim)
        self.board.create_takeover_order(Generation(generation), order)

    def relaunch(self, number: int) -> None:
        submit = Submit(
            key="start", deployment="here", state="submitted", asked_at_ms=1, native_id={"pid": "1"}
        )
        self.board.create_submit(self.newest, number, submit)

    def take_over(self, submit: int) -> takeover.DriverRun:
        process: Any = SimpleNamespace(record=lambda: PROCESS)
        run = takeover.begin(self.board, self.newest, process, submit=submit)
        self.beat("standby", run.incarnation)
        takeover.take_current(self.board, run, self.board.current())
        self.beat("running", run.incarnation)
        return run

    def beat(self, state: Any, incarnation: int | None = None, **last: Any) -> None:
        heartbeat = a_heartbeat(state, incarnation or self.run.incarnation, **last)
        self.version = self.board.beat(self.newest, heartbeat, seen=self.version)

    def poll(self) -> tuple[Any, CountingStore]:
        """Look once, as a process does that has seen nothing so far."""
        counted: Any = CountingStore(self.store)
        return self.client(counted).view.status(), counted

    def client(self, store: Any) -> JobClient:
        here: Any = SimpleNamespace(
            name="here", native_id=lambda _: {}, state=lambda _: self.driver, find=lambda _: None
        )
        return JobClient(
            view=JobView(
                board=JobBoard(store, "orders"),
                repository=SavepointRepository(store, "orders"),
                deployment=here,
                signer=SIGNER,
                base_env={},
                sightings=Sightings(),
            )
        )


def a_heartbeat(state: Any, incarnation: int, **last: Any) -> Heartbeat:
    query = QueryStatus(query_id="q", batch_id=7, batch_committed_at_ms=1, sources={})
    return Heartbeat(
        incarnation=Incarnation(incarnation), state=state, beat=1, written_at_ms=1, spark_version="4.2.0",
        application_id="app", queries={"orders": query}, **last,
    )  # fmt: skip
