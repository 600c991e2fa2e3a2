"""What the parts of the agent share: the job's places in the store, its queries, and how the run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import threading

    from airflow_flinkstyle.agent.core.board.heartbeat import HeartbeatWriter
    from airflow_flinkstyle.agent.core.board.inbox import Inbox
    from airflow_flinkstyle.agent.core.board.takeover import DriverRun
    from airflow_flinkstyle.agent.core.commits.batch_watch import BatchWatch
    from airflow_flinkstyle.agent.core.process import Process
    from airflow_flinkstyle.agent.core.queries.hold import QueryHold
    from airflow_flinkstyle.agent.core.queries.registry import Queries
    from airflow_flinkstyle.agent.core.queries.schema_logs import SchemaLogs
    from airflow_flinkstyle.agent.core.run.reasons import Ending
    from airflow_flinkstyle.agent.core.spark import StreamingSource
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository


class Driver(Protocol):
    """This process, as its parts use it; ``Runtime`` is one."""

    board: JobBoard
    repository: SavepointRepository
    driver_run: DriverRun
    process: Process
    spark_version: str
    queries: Queries
    schema_logs: SchemaLogs
    held: QueryHold
    commits: BatchWatch
    heartbeat_writer: HeartbeatWriter
    inbox: Inbox
    ending: threading.Event
    """The end of the run has begun."""
    gate: threading.Lock
    """A takeover and the begin of the end exclude each other."""
    start_lock: threading.Lock
    """A start of a query, and a read of all that were started, exclude each other."""

    def describe(self, source: StreamingSource) -> ClusterView:
        """Describe the Kafka cluster of a source, as Spark reaches it."""

    def begin_end(self, why: Ending) -> None:
        """End the run in a thread of its own; returns once the end has begun."""

    def leave_if_ending(self) -> None:
        """End the calling thread of the script once the run ends."""
