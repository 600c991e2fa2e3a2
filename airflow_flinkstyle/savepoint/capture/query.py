"""Copy one query's checkpoint into the repository, while the query runs or after it stopped.

The logs are read first and the state after them: the state of batch K is then there, and stays for many
batches. If Spark replaces files meanwhile, the capture starts over with a newer batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import commit_log, metadata, offset_log, schema_tracking, state_store
from airflow_flinkstyle.checkpoint.errors import LogFormatError, StateIncompleteError
from airflow_flinkstyle.checkpoint.inventory import Inventory, read_inventory
from airflow_flinkstyle.checkpoint.stores_in_use import shuffle_partitions
from airflow_flinkstyle.checkpoint.table_position import TablePosition, source_position
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.blobs.packing import PACKED_BELOW_BYTES
from airflow_flinkstyle.savepoint.capture.copier import FileCopier, StoredBlobs, ignore, never
from airflow_flinkstyle.savepoint.capture.patience import StorePatience
from airflow_flinkstyle.savepoint.errors import BATCH_MISMATCH, capture_failed
from airflow_flinkstyle.savepoint.manifest import KafkaLog, KafkaPosition, QuerySnapshot
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectMissingError
from airflow_flinkstyle.types import BatchId, version_after

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.protocol.query_records import Sinks
    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectInfo, ObjectStore

log = logging.getLogger(__name__)
FindWritten = Callable[[str, BatchId], TablePosition | None]
"""Finds the version of a sink's table that a query's batch wrote, by the query's id."""

_UNKNOWN = KafkaLog(cluster_id=None, topic_ids={}, log_range={})
_PAUSE_S = 0.2
_CHANGING = (ObjectMissingError, ObjectChangedError, StateIncompleteError)
"""Failures that a running query causes by continuing; a newer batch does not have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """The files to copy: the logs' content as read, the others by path."""

    batch_id: BatchId
    query_id: str
    offsets: OffsetLog
    planned_offsets: str | None
    contents: Mapping[str, bytes]
    """Files that were read already; stored exactly as read."""
    files: Mapping[str, ObjectInfo]
    """Files still to be read, as they were listed, each zip's SSTs behind it."""


def capture_query(
    checkpoint: ObjectStore,
    repository: SavepointRepository,
    *,
    name: str,
    kafka: Mapping[str, KafkaLog] | None,
    previous: QuerySnapshot | None = None,
    sink: str | None = None,
    sinks: Sinks | None = None,
    find_written: FindWritten | None = None,
    batch_id: BatchId | None = None,
    runs_on: bool = False,
    cancelled: Callable[[], bool] = never,
    progress: Callable[[CaptureProgress], None] = ignore,
    uploaded: Callable[[str], None] = ignore,
    stored: StoredBlobs | None = None,
    attempts: int = 5,
    threads: int = 8,
    plan_threads: int = 16,
    patience_s: float = 0.0,
    packed_below_bytes: int = PACKED_BELOW_BYTES,
) -> QuerySnapshot:
    """Copy the newest committed batch of a checkpoint; uploads only what the repository lacks.

    Args:
        checkpoint: Rooted at the checkpoint location.
        repository: Where the files go; nothing is published.
        name: Name of the query.
        kafka: The log of each Kafka source, by position (offset log v1) or name (v2); None if the sources
            are not known: then those whose offsets look like Kafka's count as Kafka sources.
        previous: The same query in an earlier savepoint; its SSTs are not read again.
        sink: Spark's name of the query's sink, if it is known.
        sinks: What its transactional sinks have written, if it is known.
        find_written: Finds what it has written to a table with versions; None for other sinks.
        batch_id: Demand that the checkpoint ends with this batch, as a stopped job's must.
        runs_on: The query has run on since ``batch_id``: leave out later batches.
        cancelled: Called before each file, by several threads.
        progress: Called after each file, by the calling thread.
        uploaded: Called with the key of each blob before it is uploaded, by several threads; not for blobs
            that were listed before.
        stored: The listed blobs, shared with other queries of the take; None to list them.
        attempts: How often to start over when the running query replaces files meanwhile.
        threads: Files copied at a time.
        plan_threads: Small files read at a time to find those to copy; most of that time is waiting.
        patience_s: How long one call to a store may continue failing for a reason that may pass.
        packed_below_bytes: Smaller files that are read go into packs.

    Raises:
        FlinkstyleError: ``NO_COMMIT_YET`` if the query has committed nothing yet.
        FlinkstyleError: ``CAPTURE_FAILED`` if files kept changing; retryable.
        FlinkstyleError: ``BATCH_MISMATCH`` if ``batch_id`` is given and is not the newest committed batch.
        TakeCancelledError: If ``cancelled`` returned True.
        CheckpointError: If the checkpoint is of an unsupported kind, or contradicts itself.
    """
    patience = StorePatience(for_s=patience_s, ends=cancelled, what=f"query {name}")
    copier = FileCopier(
        checkpoint=checkpoint,
        repository=repository,
        query=name,
        previous=previous,
        cancelled=cancelled,
        progress=progress,
        uploaded=uploaded,
        threads=threads,
        patience=patience,
        stored=stored or StoredBlobs(repository),
        packed_below_bytes=packed_below_bytes,
    )
    for attempt in range(1, attempts + 1):
        try:
            cut = patience(lambda: _plan_cut(checkpoint, batch_id, runs_on=runs_on, threads=plan_threads))
            positions = _positions(cut.offsets, kafka)
            files = copier.copy(cut.query_id, cut.contents, cut.files)
        except _CHANGING as error:
            if attempt == attempts and isinstance(error, StateIncompleteError):
                raise  # names the store; a stopped checkpoint gets here too
            if attempt == attempts:
                raise capture_failed(attempts, checkpoint.uri, error) from error
            log.info("Query %s: a file changed while it was copied, starting over: %s", name, error.problem)
            time.sleep(_PAUSE_S)
            continue
        return QuerySnapshot(
            name=name,
            query_id=cut.query_id,
            batch_id=cut.batch_id,
            checkpoint_location=checkpoint.uri,
            planned_offsets=cut.planned_offsets,
            pinned_confs=cut.offsets.confs,
            kafka=positions,
            tables=_tables(cut.offsets),
            sink=sink,
            sinks=sinks,
            sink_table=find_written(cut.query_id, cut.batch_id) if find_written else None,
            files=files,
        )
    raise BadInputError(
        f"Expected at least one attempt, found {attempts}.",
        state_after="No savepoint was made.",
        remedy="Pass attempts=1 or more.",
    )


def _plan_cut(checkpoint: ObjectStore, demanded: BatchId | None, *, runs_on: bool, threads: int) -> _Cut:
    """Read the logs, then list what else batch K needs."""
    inventory = read_inventory(checkpoint)
    if demanded is not None and runs_on and demanded <= inventory.committed:
        inventory = Inventory(committed=demanded, planned=None)
    batch = inventory.committed
    if demanded is not None and batch != demanded:
        raise BATCH_MISMATCH.error(location=checkpoint.uri, expected=demanded, found=batch)
    wanted = [f"commits/{batch}", f"offsets/{batch}", "metadata"]
    contents = {path: checkpoint.read(path) for path in wanted}
    offsets = offset_log.parse(_text(contents[f"offsets/{batch}"]))
    if batch > 0:
        contents[f"offsets/{batch - 1}"] = before = _log_before(checkpoint, batch, contents)
        offset_log.parse(_text(before))
    commit = commit_log.parse(_text(contents[f"commits/{batch}"]))
    query_id = metadata.parse(_text(contents["metadata"])).query_id
    state_store.refuse_unsupported(offsets.confs)
    planned = None
    if inventory.planned is not None:
        planned = _text(checkpoint.read(f"offsets/{inventory.planned}"))
        offset_log.parse(planned)
    listed = {info.key: info for info in checkpoint.list("state/")}
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="plan") as pool:
        state = state_store.state_closure(
            listed,
            version_after(batch),
            commit.state_unique_ids,
            checkpoint.read,
            partitions=shuffle_partitions(offsets.confs),
            over=pool.map,
        )
    sources = {info.key: info for info in checkpoint.list("sources/") if "/." not in info.key}
    tracked = schema_tracking.entries_up_to(sources, offsets.sources.values(), checkpoint.read)
    sources = {path: info for path, info in sources.items() if path not in tracked}
    contents |= {path: content for path, content in tracked.items() if content is not None}
    contents |= {file.path: file.content for file in state if file.content is not None}
    files = {file.path: listed[file.path] for file in state if file.content is None}
    return _Cut(
        batch_id=batch,
        query_id=query_id,
        offsets=offsets,
        planned_offsets=planned,
        contents=contents,
        files=files | sources,
    )


def _log_before(checkpoint: ObjectStore, batch: BatchId, contents: Mapping[str, bytes]) -> bytes:
    """Return the offset log before the newest committed one; a stand-in if Spark has deleted it.

    With ``minBatchesToRetain`` 1 Spark deletes it when it plans the next batch. A restart after a committed
    batch reads it for the older kind of sources only, to give them their last batch again: with the stand-in,
    that batch ends where it begins, so it has no rows.
    """
    try:
        return checkpoint.read(f"offsets/{batch - 1}")
    except ObjectMissingError:
        return contents[f"offsets/{batch}"]


def _positions(offsets: OffsetLog, kafka: Mapping[str, KafkaLog] | None) -> dict[str, KafkaPosition]:
    """Join the offsets of the logs with what the caller knows of the cluster.

    The caller knows which sources are Kafka's: other connectors write offsets of the same form. Topics that
    came after the ids were read (``subscribePattern``) have none; topics that are gone are not included.

    Raises:
        BadInputError: If the caller names a source that the query does not have.
    """
    positions = {}
    if kafka is None:
        kafka = dict.fromkeys(offsets.kafka_sources, _UNKNOWN)
    for source, known in sorted(kafka.items()):
        read = offsets.kafka_offsets(source)
        topics = read.topics or known.topic_ids.keys()  # before its first batch it has no offsets
        positions[source] = KafkaPosition(
            cluster_id=known.cluster_id,
            topic_ids={topic: known.topic_ids.get(topic) for topic in sorted(topics)},
            offsets=read,
            log_range={topic: dict(ranges) for topic, ranges in known.log_range.items() if topic in topics},
        )
    return positions


def _tables(offsets: OffsetLog) -> dict[str, TablePosition]:
    found = {source: source_position(raw) for source, raw in sorted(offsets.sources.items())}
    return {source: position for source, position in found.items() if position is not None}


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise LogFormatError.of("A log file", "UTF-8 text", content[:40].hex()) from error
