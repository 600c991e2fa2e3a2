"""What the agent needs of Spark: ``agent.spark`` does it by PySpark, unit tests by a small Spark of theirs.

A ``Spark`` is one session of the driver: a script may have several, each with settings of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from airflow_flinkstyle.storage.base import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from airflow_flinkstyle.checkpoint.table_position import TableCommit, TableFormat, TablePosition
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.protocol.comparison_records import Compare, ComparedQuery
    from airflow_flinkstyle.protocol.query_records import Pace
    from airflow_flinkstyle.savepoint.compat import StateChanges
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.types import BatchId

_KAFKA = frozenset({"kafka", "org.apache.spark.sql.kafka010.kafkasourceprovider"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingSource:
    """One streaming source of a query."""

    position: int
    """In the plan; the line in an offset log v1."""
    name: str | None
    """Given with ``.name()`` (Spark 4.2); the key in an offset log v2."""
    provider: str
    """The format it was loaded with."""
    options: Mapping[str, str]
    """As Spark will use them, overrides included."""
    detail: str = ""
    """What identifies it beside its options: the format of files, a table's name in a catalog."""

    @property
    def is_kafka(self) -> bool:
        """Whether it is Spark's own Kafka source, so that its log must be guarded.

        By its provider: other connectors have similar names, and similar offsets.
        """
        return self.provider.lower() in _KAFKA

    @property
    def follows_pattern(self) -> bool:
        """Whether topics come and go by themselves."""
        return self.option("subscribePattern") is not None

    @property
    def accepts_loss(self) -> bool:
        """Whether the script lets Spark skip records that are deleted before they are read."""
        return (self.option("failOnDataLoss") or "").lower() == "false"

    def option(self, name: str) -> str | None:
        """Return an option, whatever its case; Spark ignores it too."""
        wanted = name.lower()
        return next((value for key, value in self.options.items() if key.lower() == wanted), None)

    def key(self, log_version: int) -> str:
        """Return how an offset log of this version names the source."""
        return self.name if log_version > 1 and self.name else str(self.position)


Describe = Callable[[StreamingSource], "ClusterView"]
"""Describes the Kafka cluster of a source, with exactly the partitions that it subscribes to."""
Handle = Any
"""What a script holds of a query: PySpark's ``StreamingQuery``."""


class ConsumerGroup(Protocol):
    """A consumer group of Kafka, for which the agent commits with the options of one source."""

    @property
    def name(self) -> str:
        """Its id."""

    def commit(self, offsets: Offsets) -> None:
        """Commit these offsets without joining the group, and wait for the answer."""

    def lag(self, offsets: Offsets) -> dict[str, int]:
        """Return how many offsets lie between these and the logs' ends, by topic."""

    def close(self) -> None:
        """Give back the client; waits for nothing."""


class StopFlag(Protocol):
    """The stop flag of one run of a query, for one thread, which may keep the run from its next batch."""

    def try_set(self) -> bool:
        """Set the flag if the run is between two batches; returns whether it is set."""

    def sleeps(self) -> bool:
        """Return whether the run waits for its next trigger: with the flag set it begins no batch."""

    def let_go(self) -> None:
        """Release the run, if it is kept from its next batch."""


class SparkQuery(Protocol):
    """A query that Spark has started; its run may change beneath the handle that the script has of it."""

    @property
    def handle(self) -> Handle:
        """The script's."""

    @property
    def id(self) -> str:
        """Its id: that of its checkpoint."""

    @property
    def run_id(self) -> str:
        """Id of its run."""

    @property
    def is_active(self) -> bool:
        """Whether Spark runs it now."""

    @property
    def has_thread(self) -> bool:
        """Whether the thread of its run lives: a while longer than it is active."""

    @property
    def is_triggered(self) -> bool:
        """Whether it is in a batch, or checks for new data."""

    @property
    def failure(self) -> Exception | None:
        """The exception that ended it, if one did."""

    def stop_flag(self) -> StopFlag:
        """Return what stops its run between two batches."""

    def stop(self) -> None:
        """Stop it at once, and wait for its end."""

    def await_end(self, timeout_ms: int) -> bool:
        """Wait for its end; returns whether it has ended, and raises its failure."""

    def pace(self) -> Pace | None:
        """Return the pace of its newest batch, by Spark's progress; None before the first."""

    def ended_at_ms(self, batch: BatchId) -> int | None:
        """Return when a batch ended by Spark's progress; None if its newest batch is another one."""

    def progress(self) -> Sequence[Mapping[str, Any]]:
        """Return Spark's progress of its last batches, the newest last, as ``recentProgress`` does."""

    def stand_for(self, handle: Handle) -> None:
        """Let another handle of the script lead to the run of this one."""


class SparkStart(Protocol):
    """A start of a query, as the script asks for it."""

    @property
    def session(self) -> Spark:
        """In which it is started."""

    def sources(self) -> tuple[StreamingSource, ...]:
        """Return its streaming sources, in the offset log's order."""

    def place(self, name: str, location: str) -> None:
        """Give it its name and its checkpoint."""

    def follow_schema(self, source: StreamingSource, location: str) -> None:
        """Let one source of Delta follow its schema elsewhere; raises ``UNSUPPORTED_MODE``."""

    def run(self, under: Handle = None, *, once: bool = False) -> SparkQuery:
        """Let Spark start it, as the script would.

        Args:
            under: A handle that the script has already.
            once: For the batch that is planned only.
        """

    def run_again(self, query: SparkQuery, *, trigger: Mapping[str, Any], once: bool, thread: Any) -> None:  # noqa: ANN401
        """Let Spark start it once more, under its handle.

        Args:
            query: It has ended.
            trigger: The script's; empty for Spark's default.
            once: For the batch that is planned only.
            thread: What ``thread_settings`` returned at its first start.
        """

    def thread_settings(self) -> Any:  # noqa: ANN401
        """Return what a start takes from the calling thread, like ``spark.scheduler.pool``."""

    def try_out(
        self, name: str, location: str, output_mode: str, *, once: bool, rows: str | None = None
    ) -> SparkQuery:
        """Start its plan under another name and checkpoint, into a sink that writes nothing.

        With ``rows`` its rows are written there, a folder for each batch, whatever its output mode.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOfQuery:
    """The results of one run of a query, for a comparison; locations as Spark writes them."""

    rows: str
    """Its rows, a folder for each batch."""
    copy: str
    """Its checkpoint, with its state after the last batch."""
    is_format_2: bool
    """Its state is of checkpoint format 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsToCompare:
    """The runs of one query."""

    query: QuerySnapshot
    """As the savepoint has it, from which all began."""
    savepoint_id: str
    output_mode: str
    asked: Compare
    old: RunOfQuery
    new: RunOfQuery
    again: RunOfQuery | None
    """The old version once more, to find what is not deterministic."""


class SinkTable(Protocol):
    """A table with versions that a query writes to; what fails raises Spark's errors."""

    def line(self) -> Iterator[TableCommit]:
        """Yield the versions that the table is made of, the newest first."""

    def holds(self, position: TablePosition) -> bool:
        """Return whether a source's position is in this table."""

    def missing(self, version: int) -> str | None:
        """Return a file of one of those versions that is gone; None if it has all its files."""

    def put_back(self, version: int, *, now: int) -> None:
        """Put the table back to one of those versions.

        Raises:
            FlinkstyleError: ``TABLE_RESTORE`` if its newest one is not ``now``: others have written.
        """

    def tags(self) -> set[str] | None:
        """Return the names by which versions are kept alive; None for a format without such names."""

    def set_tags(self, add: Mapping[str, int], remove: Collection[str]) -> None:
        """Keep versions alive by names, and take other names away."""

    def kept_for(self) -> str:
        """Return, for people, how long versions are kept that no name keeps; empty if that is not known."""


class StartSettings(Protocol):
    """What a start depends on beside its query, at one moment."""

    def again(self) -> AbstractContextManager[None]:
        """Give it to the session and to the calling thread for a while."""


class ShutdownHook(Protocol):
    """A call that is made when Spark's process gets a signal to end."""

    def remove(self) -> None:
        """Take it away."""


class HadoopPlace(ObjectStore, Protocol):
    """A place, opened by Hadoop's own client."""

    @property
    def qualified(self) -> str:
        """The location with its scheme and its whole path, by the client's own rules."""


class Spark(Protocol):
    """One session."""

    @property
    def version(self) -> str:
        """Of Spark."""

    @property
    def application_id(self) -> str:
        """As the cluster knows it."""

    @property
    def ui_url(self) -> str | None:
        """None with ``spark.ui.enabled=false``."""

    @property
    def default_format(self) -> str:
        """Of a sink, where the script names none."""

    # --- settings

    def setting(self, name: str, default: str = "") -> str:
        """Return a setting of the session."""

    def given(self, names: Iterable[str]) -> dict[str, str]:
        """Return those settings that are set in the session, without Spark's defaults."""

    def start_settings(self) -> StartSettings:
        """Return what the calling thread would start a query with."""

    def require_executor_timeout(self) -> None:
        """Refuse an ``executorTimeout`` that is no time; raises ``BadInputError``."""

    # --- places

    def open(self, location: str) -> ObjectStore:
        """Open a checkpoint, or a place beside it, as executors reach it."""

    def needs_hadoop(self, location: str) -> bool:
        """Return whether only Hadoop's client can open a place."""

    def open_by_hadoop(self, location: str) -> HadoopPlace:
        """Open what the script names, as Spark does; raises ``BadInputError`` without such a client."""

    def clear(self, location: str, *, but: str) -> None:
        """Remove all that is below a location but for one file; none is no error."""

    def remove(self, location: str, *, last: str) -> None:
        """Remove a location with all that is below it, one file last; none is no error."""

    def spelled(self, location: str) -> str:
        """Return a location as Spark 2.4 wrote it into a path."""

    def whole(self, location: str) -> str | None:
        """Return a location completed without reading its store; None if only the store could complete it."""

    def table(self, name: str) -> tuple[str | None, str | None] | None:
        """Return the provider and the place of a table; None if there is none."""

    def sink_table(self, kind: TableFormat, name: str | None, path: str | None) -> SinkTable:
        """Open a table with versions, by its name in a catalog or by its path."""

    # --- Kafka

    def describe(self, source: StreamingSource) -> ClusterView:
        """Describe the Kafka cluster of a source, as Spark reaches it; raises ``KafkaError``."""

    def positions_at(self, source: StreamingSource, at_ms: int) -> Offsets:
        """Return the first record of each partition that is of a time, epoch milliseconds, or later.

        Where there is none, the log's end for this reader. Raises as ``describe``.
        """

    def group(self, source: StreamingSource, name: str) -> ConsumerGroup:
        """Return a consumer group on the cluster of a source."""

    # --- queries

    def active(self) -> list[tuple[str, str | None]]:
        """Return ids and names of all queries that run, those started past the agent too."""

    def without_listeners(self) -> AbstractContextManager[None]:
        """Take the JVM's listeners of the session's queries away for a while."""

    def has_seen_an_end(self) -> bool:
        """Return whether a query of the session has ended: then ``awaitAnyTermination`` returns at once."""

    def forget_ends(self) -> None:
        """Let ``awaitAnyTermination`` wait for the next end."""

    def stand_in(self, name: str, query_id: str | None, begun: Callable[[], None]) -> Handle:
        """Return a handle for a query whose start is put off.

        Args:
            name: The query's.
            query_id: Its id, known from a savepoint; None to wait for it.
            begun: Waits for Spark's start of it under this handle.
        """

    def asked_of(self, handle: Handle) -> str:
        """Return what the script asked first of a query that is put off; empty if it can wait."""

    def raised(self, error: Exception) -> bool:
        """Return whether an error is one of Spark's."""

    # --- its process

    def on_shutdown(self, call: Callable[[], object]) -> ShutdownHook:
        """Call this when Spark's process gets a signal to end."""

    # --- a savepoint's state, moved by this session

    def in_rocksdb(self, repository: SavepointRepository, manifest: Manifest, location: str) -> Manifest:
        """Return a savepoint with its state in RocksDB; raises ``STATE_TRANSFORM``."""

    def state_changed(
        self, repository: SavepointRepository, manifest: Manifest, asked: StateChanges, location: str
    ) -> Manifest:
        """Return a savepoint with its state changed as an upgrade has asked; raises ``STATE_TRANSFORM``."""

    def repartitioned(
        self, repository: SavepointRepository, manifest: Manifest, partitions: int, location: str
    ) -> tuple[Manifest, int]:
        """Return a savepoint with another number of partitions, and how many keys it has."""

    # --- a comparison of what two versions have computed

    def compare(self, runs: RunsToCompare) -> ComparedQuery:
        """Compare rows and state of two runs of a query, not what they have read."""
