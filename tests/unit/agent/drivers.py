"""A driver process in small: the agent's own core on a board of its own, and a small Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.runtime import Runtime
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.agent.spark.process import DriverProcess
from airflow_flinkstyle.clock import LEASE_CLOCK
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.records import Request, TakeoverOrder
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from testbed.memory_store import MemoryStore
from tests.declared import AS_BEFORE
from tests.small_spark import SmallSpark, SmallStart
from tests.unit.agent.conftest import G1, I1, a_claim

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.reasons import Ending
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.protocol.records import Claim, Command
    from airflow_flinkstyle.types import Generation

_HEADER = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'

_RATE = StreamingSource(position=0, name=None, provider="rate", options={})


class SmallDriver(Runtime):
    """One process of a generation; its queries are moved by the tests, and its end is only noted."""

    def __init__(
        self,
        root: Path,
        *,
        board: JobBoard | None = None,
        generation: Generation = G1,
        clock: Clock = LEASE_CLOCK,
        **claim: Any,
    ) -> None:
        board, process = board or JobBoard(MemoryStore(), "orders"), DriverProcess()
        if board.claim(generation) is None:
            place = {"checkpoint_location": str(root / str(generation)), **claim}
            board.create_claim(generation, a_claim(**place))
        driver_run = takeover.begin(board, generation, process, clock=clock)
        super().__init__(board, SavepointRepository(board.store, "orders"), driver_run, process)
        self.root, self.clock, self.spark = root, clock, SmallSpark()
        self.queries.known_spark, self.spark_version = self.spark, self.spark.version
        self.ended_by: list[Ending] = []

    @property
    def claim(self) -> Claim:
        return self.driver_run.claim

    def followed_by(self, generation: Generation, *, adopts: bool, **claim: Any) -> SmallDriver:
        """Return the next generation's first process; it may adopt the checkpoint of this one."""
        place = {"checkpoint_location": self.claim.checkpoint_location} if adopts else {}
        follows = self.driver_run.generation
        return SmallDriver(
            self.root,
            board=self.board,
            generation=generation,
            clock=self.clock,
            follows=follows,
            **{**place, **claim},
        )

    def relaunched(self) -> SmallDriver:
        """Return the next process of this generation."""
        generation = self.driver_run.generation
        return SmallDriver(self.root, board=self.board, generation=generation, clock=self.clock)

    def begin_end(self, why: Ending) -> None:
        self.ended_by.append(why)
        self.ending.set()

    def leave_if_ending(self) -> None:
        if self.ending.is_set():
            raise SystemExit

    def tell_order(self, **changes: Any) -> None:
        said: dict[str, Any] = {"savepoint_id": None, "closed_at": None}
        self.board.create_takeover_order(
            self.driver_run.generation,
            TakeoverOrder(**{**said, "expected": {}, "parent": BEGINNING, **changes}),
        )

    def register(self, name: str, session: SmallSpark | None = None) -> JobQuery:
        return self.queries.register(name, SmallStart(session or self.spark), [_RATE], AS_BEFORE)

    def start(self, name: str) -> JobQuery:
        """Let a query start as the runtime does, up to Spark's own start, which works."""
        query = self.register(name)
        self.admission.admit(query)
        self.run(query)
        self.admission.starting = False
        return query

    def run(self, query: JobQuery) -> None:
        """Let Spark run a query."""
        query.start.place(query.name, query.location)
        self.queries.settle(query, query.start.run())


def end_run(query: JobQuery) -> None:
    """Let a query end by itself."""
    query.started.stop()


def plan(query: JobQuery, batch: int) -> None:
    query.checkpoint.write(f"offsets/{batch}", f"v1\n{_HEADER}\n{batch}".encode())


def commit(query: JobQuery, batch: int) -> None:
    plan(query, batch)
    query.checkpoint.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')


def a_request(command: Command = "savepoint", **changes: Any) -> Request:
    values: dict[str, Any] = {
        "request_id": "r1",
        "incarnation": I1,
        "command": command,
        "state": "sent",
        "savepoint_id": "sp-1",
        "sent_at_ms": 0,
    }
    return Request(**{**values, **changes})
