"""A driver process in small: the agent's own parts on a board of its own, and what it needs of Spark."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.board import takeover
from airflow_flinkstyle.agent.board.heartbeat import HeartbeatWriter
from airflow_flinkstyle.agent.board.inbox import Inbox
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.agent.jvm.process import DriverProcess
from airflow_flinkstyle.agent.queries.hold import QueryHold
from airflow_flinkstyle.agent.queries.registry import Queries
from airflow_flinkstyle.agent.queries.schema_logs import SchemaLogs
from airflow_flinkstyle.agent.run.admission import Admission
from airflow_flinkstyle.agent.run.serving import Serving
from airflow_flinkstyle.agent.run.taking import Taking
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

    from airflow_flinkstyle.agent.job_query import JobQuery
    from airflow_flinkstyle.agent.run.reasons import Ending
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.records import Claim, Command
    from airflow_flinkstyle.types import Generation

_HEADER = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'

_RATE = StreamingSource(position=0, name=None, provider="rate", options={})


class SmallDriver:
    """One process of a generation; its queries are moved by the tests."""

    def __init__(
        self,
        root: Path,
        *,
        board: JobBoard | None = None,
        generation: Generation = G1,
        clock: Clock = LEASE_CLOCK,
        **claim: Any,
    ) -> None:
        self.root, self.clock, self.board = root, clock, board or JobBoard(MemoryStore(), "orders")
        if self.board.claim(generation) is None:
            place = {"checkpoint_location": str(root / str(generation)), **claim}
            self.board.create_claim(generation, a_claim(**place))
        self.repository = SavepointRepository(self.board.store, "orders")
        self.process = DriverProcess()
        self.driver_run = takeover.begin(self.board, generation, self.process, clock=clock)
        self.queries = Queries(self.driver_run.claim.checkpoint_location)
        self.queries.known_spark = self.spark = SmallSpark()
        self.schema_logs = SchemaLogs(self.board, self.repository, self.driver_run, self.queries)
        self.held, self.spark_version = QueryHold(self.queries), "4.2.0"
        self.commits: Any = None  # nothing commits offsets to Kafka
        self.heartbeat_writer = HeartbeatWriter(
            self.board,
            generation,
            self.driver_run.incarnation,
            lease_s=self.driver_run.claim.lease_s,
            seen=self.driver_run.prior.version if self.driver_run.prior else None,
            queries=self.queries.beats,
            before={},
            clock=clock,
        )
        self.ending, self.gate, self.start_lock = threading.Event(), threading.Lock(), threading.Lock()
        self.ended_by: list[Ending] = []
        self.admission = Admission(self)
        self.serving = Serving(self, self.admission, Taking(self, self.admission))
        self.inbox = Inbox(self.board, generation, self.driver_run.incarnation, self.serving)

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

    def describe(self, source: object) -> ClusterView:
        raise AssertionError(f"no query of this driver reads Kafka, not {source} either")

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
