"""What a version that failed has left, which decides how the one before it continues."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.jobs.running import last_run
from airflow_flinkstyle.savepoint.files.derive import changed_file, publish_derived
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.jobs.running.offline_lock import OfflineLock
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.sink_records import Sinks
    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest, QuerySnapshot
    from airflow_flinkstyle.storage.base import ObjectStore

_SOURCE_LOG: Final = re.compile(r"sources/\d+/\d+(\.compact)?")
"""What a source of files or rates writes of each batch; its offsets are numbers of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedVersion:
    """The logs and last words of a driver that has ended."""

    committed: Mapping[str, BatchId]
    """Query name -> newest committed batch."""
    planned: Mapping[str, tuple[BatchId, str]]
    """Query name -> the batch that was planned behind it, and its offsets."""
    last_words: Mapping[str, QueryStatus]
    checkpoints: Mapping[str, ObjectStore] = field(default_factory=dict)
    """Query name -> its checkpoint, of those with a planned batch."""

    def why_no_rollback(self, manifest: Manifest, began: Mapping[str, int]) -> str | None:
        """Return what it did that going back to a savepoint would repeat or lose; None if nothing. Pure.

        Args:
            manifest: The savepoint.
            began: Query name -> the batch that it began behind: the savepoint's, or an empty one behind that.
        """
        saved = {query.name: query for query in manifest.queries}
        ran_on = {name: batch for name, batch in self.committed.items() if batch > began.get(name, -1)}
        if ran_on:
            return f"batches {ran_on} were committed"
        for name in sorted(self.planned.keys() & saved.keys()):
            batch, _ = self.planned[name]
            if began[name] != saved[name].batch_id:
                return (
                    f"batch {batch} of query {name} was planned behind a repartition: a part of it may be "
                    f"written, and the old version would write the same records as batch {batch - 1}"
                )
            if cluster := _moved_to(saved[name].sinks, self.last_words[name].sinks):
                moved = f"a transactional sink of query {name} moved before batch {batch}"
                return f"{moved}: a part of that batch may be on cluster {cluster}"
        return None


def look_at(client: JobClient, lock: OfflineLock) -> FailedVersion:
    """Read the logs of the driver that the lock represents."""
    committed, planned, checkpoints = {}, {}, {}
    for name in lock.last_words.queries:
        checkpoint = last_run.read_checkpoint(client, lock.last, name)
        done, logged = list_batches(checkpoint, "commits"), list_batches(checkpoint, "offsets")
        newest, last = max(done, default=-1), max(logged, default=-1)
        if done:
            committed[name] = BatchId(newest)
        if last == newest + 1:
            planned[name] = (BatchId(last), checkpoint.read(f"offsets/{last}").decode())
            checkpoints[name] = checkpoint
    return FailedVersion(
        committed=committed,
        planned=planned,
        last_words=lock.last_words.queries,
        checkpoints=checkpoints,
    )


def _moved_to(before: Sinks | None, after: Sinks | None) -> str | None:
    """Return the cluster to which a lineage went; None if all are where they were."""
    places = {one.lineage: one.cluster_id for one in before.lineages} if before else {}
    for one in after.lineages if after else ():
        if places.get(one.lineage, one.cluster_id) != one.cluster_id:
            return one.cluster_id
    return None


def carry_planned(manifest: Manifest, failed: FailedVersion, client: JobClient) -> Manifest:
    """Publish the savepoint with the batches that were planned behind it, by id, offsets and source logs.

    What the sinks had written comes from the last words of who planned them: a part may stand there.
    """
    planned = failed.planned
    if not planned:
        return manifest
    text = "".join(f"{name}\0{batch}\0{raw}\0" for name, (batch, raw) in sorted(planned.items()))
    digest = hashlib.sha256(f"{manifest.savepoint_id}\0{text}".encode()).hexdigest()[:20]

    def carry(query: QuerySnapshot) -> QuerySnapshot:
        if query.name not in planned:
            return query
        told = failed.last_words[query.name].sinks or query.sinks
        logged = source_logs(query, failed.checkpoints[query.name], client)
        files = tuple(sorted((*query.files, *logged), key=lambda entry: entry.path))
        offsets = _as_saved(planned[query.name][1], query)
        return replace(query, planned_offsets=offsets, sinks=told, files=files)

    return publish_derived(manifest, client.repository, f"sp-carry-{digest}", carry)


def _as_saved(planned: str, query: QuerySnapshot) -> str:
    """Return a planned batch with the partitions of the saved state, which the new version had changed."""
    log, saved = offset_log.parse(planned), query.pinned_confs.get(SHUFFLE_PARTITIONS)
    if saved is None or log.confs.get(SHUFFLE_PARTITIONS) == saved:
        return planned
    return log.with_confs({**log.confs, SHUFFLE_PARTITIONS: saved}).render()


def source_logs(query: QuerySnapshot, checkpoint: ObjectStore, client: JobClient) -> list[FileEntry]:
    """Store what sources have logged since the savepoint: offsets of files are numbers of such entries."""
    logged = [info.key for info in checkpoint.list("sources/") if _SOURCE_LOG.fullmatch(info.key)]
    return [
        changed_file(client.repository, key, checkpoint.read(key))
        for key in sorted(logged)
        if query.file(key) is None
    ]
