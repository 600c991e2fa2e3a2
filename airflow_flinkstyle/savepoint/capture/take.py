"""Take a savepoint of a job: capture each query, then publish the manifest, last."""

from __future__ import annotations

import logging
import math
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint.inventory import read_inventory
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.line import batches_run
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.packing import PACKED_BELOW_BYTES
from airflow_flinkstyle.savepoint.capture.copier import StoredBlobs, ignore, never
from airflow_flinkstyle.savepoint.capture.patience import StorePatience
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.errors import (
    TAKE_TIMED_OUT,
    RepositoryBusyError,
    SavepointConflictError,
    TakeCancelledError,
)
from airflow_flinkstyle.savepoint.files.verified import publish_trusted
from airflow_flinkstyle.savepoint.manifest import KafkaLog, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.protocol.query_records import QueryStatus, Sinks
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.capture.query import FindWritten
    from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import Alignment, BatchId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySource:
    """One query to include, and what the caller knows of it."""

    name: str
    checkpoint: ObjectStore
    """Rooted at the query's checkpoint location."""
    kafka: Mapping[str, KafkaLog] | None
    """By position (offset log v1) or source name (v2); empty for a query without Kafka, None if its sources
    are not known."""
    sink: str | None = None
    """Spark's name of the query's sink; None if unknown."""
    sinks: Sinks | None = None
    """What its transactional sinks have written; None if unknown."""
    find_written: FindWritten | None = None
    """Finds what the query has written to a table with versions."""
    batch_id: BatchId | None = None
    """Demand that the checkpoint ends with this batch; None for whatever is newest."""
    runs_on: bool = False
    """The query has run on since ``batch_id``: cut it there nevertheless."""

    @staticmethod
    def at_rest(name: str, checkpoint: ObjectStore, status: QueryStatus) -> QuerySource:
        """Describe a query that does not run, by the last status that a heartbeat reported."""
        logs = {
            source: KafkaLog(cluster_id=identity.cluster_id, topic_ids=dict(identity.topic_ids), log_range={})
            for source, identity in status.sources.items()
        }
        return QuerySource(
            name=name,
            checkpoint=checkpoint,
            kafka=logs if logs or status.providers is not None else None,
            sink=status.sink,
            sinks=status.sinks,
            batch_id=read_inventory(checkpoint).committed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointLabel:
    """Fields of the manifest about the savepoint as a whole."""

    savepoint_id: str
    taken_at_ms: int
    """Epoch milliseconds, UTC."""
    spark_version: str
    taken_from_generation: int | None
    alignment: Alignment = "none"
    cut_id: str | None = None
    """Shared by the savepoints of several jobs that were cut together."""


def take_savepoint(
    repository: SavepointRepository,
    queries: Sequence[QuerySource],
    label: SavepointLabel,
    *,
    previous: Manifest | None = None,
    cancelled: Callable[[], bool] = never,
    progress: Callable[[CaptureProgress], None] = ignore,
    timeout_s: float | None = None,
    patience_s: float = 0.0,
    packed_below_bytes: int = PACKED_BELOW_BYTES,
) -> Manifest:
    """Take a savepoint and return its manifest; if one of this id exists, that one is returned.

    If it ends early, its uploads stay: a take deletes no blob. The next take finds them in the repository; if
    there is none, a prune frees them.

    Args:
        repository: Where the savepoint goes.
        queries: All queries of the job.
        label: Id, time and origin.
        previous: An earlier savepoint of the job; its SSTs are not uploaded again.
        cancelled: Called before each file and before the manifest; True ends the take without a savepoint.
        progress: Called after each file.
        timeout_s: Give up before the first file that would begin later; a call to a store that hangs is
            ended by the store's own time-out.
        patience_s: How long one call to a store may continue failing for a reason that may pass.
        packed_below_bytes: Smaller files that are read go into packs.

    Raises:
        TakeCancelledError: If ``cancelled`` returned True.
        FlinkstyleError: ``TAKE_TIMED_OUT`` if it was not done in time.
        FlinkstyleError: Whatever ``capture_query`` or the store raises; no savepoint was made then.
    """
    end, what = _EarlyEnd(cancelled, timeout_s), f"job {repository.job}"
    patience = StorePatience(for_s=patience_s, ends=end, what=what)
    _require_names(queries)
    try:
        existing = patience(lambda: repository.find(label.savepoint_id))
        if existing is not None:
            return existing
        return _take(
            repository,
            queries,
            label,
            previous=previous,
            end=end,
            progress=progress,
            patience=patience,
            packed_below_bytes=packed_below_bytes,
        )
    except SavepointConflictError:  # another attempt of the same request was first
        return repository.read(label.savepoint_id)
    except (TakeCancelledError, RepositoryBusyError) as error:
        raise (end.reason(what) or error) from error.__cause__  # the store's error, if it waited for that


def _take(
    repository: SavepointRepository,
    queries: Sequence[QuerySource],
    label: SavepointLabel,
    *,
    previous: Manifest | None,
    end: _EarlyEnd,
    progress: Callable[[CaptureProgress], None],
    patience: StorePatience,
    packed_below_bytes: int,
) -> Manifest:
    """Capture and publish while no prune frees blobs."""
    holder = f"the taker of {label.savepoint_id}"
    with ExitStack() as stack, _uploads() as uploads:
        held = patience(
            lambda: stack.enter_context(
                hold_intent(
                    repository, "take", holder=holder, publishes=label.savepoint_id, give_up_waiting=end
                )
            )
        )
        stored = StoredBlobs(repository)
        snapshots = [
            capture_query(
                query.checkpoint,
                repository,
                name=query.name,
                kafka=query.kafka,
                previous=previous.query(query.name) if previous else None,
                sink=query.sink,
                sinks=query.sinks,
                find_written=query.find_written,
                batch_id=query.batch_id,
                runs_on=query.runs_on,
                cancelled=end,
                progress=progress,
                uploaded=uploads.add,
                stored=stored,
                patience_s=patience.for_s,
                packed_below_bytes=packed_below_bytes,
            )
            for query in queries
        ]
        if end():
            raise TakeCancelledError.of(f"job {repository.job}")
        manifest = compose(repository.job, snapshots, label)
        patience(lambda: publish_trusted(held, repository, manifest))
        return manifest


class _EarlyEnd:
    """Tells whether a take is to end early, and remembers why: cancelled, or its time is up."""

    def __init__(self, cancelled: Callable[[], bool], timeout_s: float | None) -> None:
        self._ask, self._began_s = cancelled, time.monotonic()
        self._timeout_s = math.inf if timeout_s is None else timeout_s  # 0: it is up already
        self._cancelled = self._timed_out = False

    def __call__(self) -> bool:
        if self._ask():
            self._cancelled = True
        elif time.monotonic() - self._began_s >= self._timeout_s:
            self._timed_out = True
        return self._cancelled or self._timed_out

    def reason(self, what: str) -> FlinkstyleError | None:
        """Return the error of an early end; None if there was no reason for one."""
        if self._cancelled:
            return TakeCancelledError.of(what)
        return TAKE_TIMED_OUT.error(what=what, timeout_s=self._timeout_s) if self._timed_out else None


@contextmanager
def _uploads() -> Iterator[set[str]]:
    """Collect a take's uploads, and log that they stay if no savepoint is made: a take deletes no blob."""
    uploads: set[str] = set()
    try:
        yield uploads
    except BaseException:
        log.info("Up to %d uploaded files stay for the next take; a prune frees them", len(uploads))
        raise


def compose(job: str, snapshots: Sequence[QuerySnapshot], label: SavepointLabel) -> Manifest:
    """Make a manifest of captured queries. Pure; the caller publishes it."""
    return Manifest(
        savepoint_id=label.savepoint_id,
        job=job,
        parent=None,
        alignment=label.alignment,
        cut_id=label.cut_id,
        taken_at_ms=label.taken_at_ms,
        taken_from_generation=label.taken_from_generation,
        batches_run=batches_run(snapshot.batch_id for snapshot in snapshots),
        spark_version=label.spark_version,
        evidence={},
        queries=tuple(sorted(snapshots, key=lambda snapshot: snapshot.name)),
    )


def _require_names(queries: Sequence[QuerySource]) -> None:
    names = [query.name for query in queries]
    if not names or len(set(names)) != len(names) or not all(names):
        raise BadInputError(
            f"Expected at least one query, each with a name of its own, found {names}.",
            state_after="No savepoint was made.",
            remedy="Give each query a name with queryName().",
        )
