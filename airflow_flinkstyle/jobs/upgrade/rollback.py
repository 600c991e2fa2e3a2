"""How the old version continues after a new one that failed, by what the new one has written."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.jobs.cutover import race
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.errors import UPGRADE_CHOICE
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.stopped import last_run, offline_lock
from airflow_flinkstyle.jobs.upgrade.repartition import begun_at
from airflow_flinkstyle.savepoint.compat import PROVIDER
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from airflow_flinkstyle.savepoint.files.derive import changed_file, publish_derived
from airflow_flinkstyle.savepoint.sinks import may_skip
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.start.starts import RunHandle
    from airflow_flinkstyle.jobs.stopped.offline_lock import OfflineLock
    from airflow_flinkstyle.jobs.upgrade.context import UpgradeContext
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.query_records import QueryStatus, Sinks
    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest, QuerySnapshot
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import Generation, Rewind

_OF_STATE: Final = (SHUFFLE_PARTITIONS, PROVIDER)
_SOURCE_LOG: Final = re.compile(r"sources/\d+/\d+(\.compact)?")
"""What a source of files or rates writes of each batch; its offsets are numbers of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedVersion:
    """The logs and the last heartbeat of a driver that has ended."""

    committed: Mapping[str, BatchId]
    """Query name -> newest committed batch."""
    planned: Mapping[str, tuple[BatchId, str]]
    """Query name -> the batch that was planned behind it, and its offsets."""
    last_status: Mapping[str, QueryStatus]
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
        # Of any query: the old version then starts from the savepoint itself, without planned batches.
        is_repartitioned = any(began[name] != query.batch_id for name, query in saved.items())
        for name in sorted(self.planned.keys() & saved.keys()):
            batch, text = self.planned[name]
            if is_repartitioned:
                return (
                    f"batch {batch} of query {name} was planned behind a repartition: a part of it may be "
                    "written, and the old version would plan other records for it"
                )
            if saved[name].kafka.keys() - offset_log.parse(text).sources.keys():
                return (
                    f"batch {batch} of query {name} was planned with other names of its sources: a part of "
                    "it may be written, and the old version would plan other records for it"
                )
            if cluster := _moved_to(saved[name].sinks, self.last_status[name].sinks):
                moved = f"a transactional sink of query {name} moved before batch {batch}"
                return f"{moved}: a part of that batch may be on cluster {cluster}"
        return None


def read_failed(runs: JobView, lock: OfflineLock) -> FailedVersion:
    """Read the logs of the driver that the lock represents."""
    committed, planned, checkpoints = {}, {}, {}
    for name in lock.last_heartbeat.queries:
        checkpoint = last_run.read_checkpoint(runs, lock.last, name)
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
        last_status=lock.last_heartbeat.queries,
        checkpoints=checkpoints,
    )


def _moved_to(before: Sinks | None, after: Sinks | None) -> str | None:
    """Return the cluster to which a lineage went; None if all are where they were."""
    places = {one.lineage: one.cluster_id for one in before.lineages} if before else {}
    for one in after.lineages if after else ():
        if places.get(one.lineage, one.cluster_id) != one.cluster_id:
            return one.cluster_id
    return None


def carry_planned(manifest: Manifest, failed: FailedVersion, runs: JobView) -> Manifest:
    """Publish the savepoint with the batches that were planned behind it, by id, offsets and source logs.

    What the sinks had written comes from the last heartbeat of the driver that planned them: a part of the
    batches may already be there.
    """
    planned = failed.planned
    if not planned:
        return manifest
    text = "".join(f"{name}\0{batch}\0{raw}\0" for name, (batch, raw) in sorted(planned.items()))
    digest = hashlib.sha256(f"{manifest.savepoint_id}\0{text}".encode()).hexdigest()[:20]

    def carry(query: QuerySnapshot) -> QuerySnapshot:
        if query.name not in planned:
            return query
        sinks = failed.last_status[query.name].sinks or query.sinks
        logged = source_logs(query, failed.checkpoints[query.name], runs)
        files = tuple(sorted((*query.files, *logged), key=lambda entry: entry.path))
        offsets = _as_saved(planned[query.name][1], query)
        return replace(query, planned_offsets=offsets, sinks=sinks, files=files)

    return publish_derived(manifest, runs.repository, f"sp-carry-{digest}", carry)


def _as_saved(planned: str, query: QuerySnapshot) -> str:
    """Return a planned batch with the saved state's partitions and provider: the new version had others."""
    log = offset_log.parse(planned)
    of_state = {name: query.pinned_confs[name] for name in _OF_STATE if name in query.pinned_confs}
    if of_state.items() <= log.confs.items():
        return planned
    return log.with_confs({**log.confs, **of_state}).render()


def source_logs(query: QuerySnapshot, checkpoint: ObjectStore, runs: JobView) -> list[FileEntry]:
    """Store what sources have logged since the savepoint: offsets of files are numbers of such entries."""
    logged = [info.key for info in checkpoint.list("sources/") if _SOURCE_LOG.fullmatch(info.key)]
    return [
        changed_file(runs.repository, key, checkpoint.read(key))
        for key in sorted(logged)
        if query.file(key) is None
    ]


def require_possible(runs: JobView, if_committed: Rewind, *, skip_known: bool) -> None:
    """Require that the rollback that was chosen loses nothing silently, before anything stops.

    Raises:
        SinkSkipsError: If a sink may leave out batch ids that it has seen.
    """
    if if_committed != "re-emit" or skip_known:
        return
    last = runs.board.current_heartbeat()
    queries = last.queries if last is not None else {}
    found = [name for name, query in sorted(queries.items()) if may_skip(query.sink, query.sinks)]
    if found:
        named = ", ".join(f"{queries[name].sink} of query {name}" for name in found)
        raise SinkSkipsError.of(
            f"{named}, which leaves out, or may leave out, batches whose ids it has seen "
            "(if_committed='re-emit')",
            state_after="Nothing was stopped; the job keeps running.",
        )


def another(upgrade: UpgradeContext) -> Mapping[str, Any] | None:
    """Return what another caller has made of the job since the failure, to be left alone; None for nothing.

    The new version's driver, if it still waits for its order, is ended: no start continues beside it.

    Returns:
        ``generation`` that has the job, ``how``, and ``another`` if that was started, or ``stopped`` if the
        new version was stopped by a request.
    """
    client, own = upgrade.client, f"{upgrade.journal.migration_id}/"
    current = client.view.board.current()
    if current is None or current.value.generation == upgrade.old():
        return None
    generation = current.value.generation
    if generation == upgrade.new and race.was_stopped_by_another(upgrade, generation):
        return _stopped(generation, stays=True)
    key = client.view.claim(generation).claim_key
    if key.startswith((own, offline_lock.lock_key(own))):
        return None
    if upgrade.new is not None and client.view.board.takeover_order(upgrade.new) is None:
        client.drivers.dismiss(upgrade.new)
    return {"generation": generation, "how": f"started by {key}", "another": True}


def _stopped(generation: Generation, *, stays: bool) -> Mapping[str, Any]:
    how = "it was stopped by another request, and stays stopped"
    return {"generation": generation, "how": how, "stopped": True, "stays": stays}


def committed_after_all(upgrade: UpgradeContext) -> Mapping[str, Any] | None:
    """Return the new version if it has committed after all: then only a rewind leads back.

    Returns:
        ``generation`` that runs, ``how``, and ``stays``; None if the old version is to run again.
    """
    stop, status = upgrade.journal.result("stop"), upgrade.client.view.status()
    if stop is None or upgrade.back_to is not None or upgrade.if_committed != "continue":
        return None
    if not isinstance(status, Running) or status.run.generation != upgrade.new:
        return None
    repository, committed = upgrade.client.view.repository, status.heartbeat.batches()
    began = begun_at(stop["batches"], upgrade.spec, stop["savepoint_id"], repository)
    if not any(batch > began.get(name, -1) for name, batch in committed.items()):
        return None
    return {"generation": upgrade.new, "how": f"it has committed {committed} since.", "stays": True}


def roll_back(upgrade: UpgradeContext) -> Mapping[str, Any]:
    """Let the old version run; what the new one has done decides how.

    Returns:
        ``generation`` that runs, ``how``, and ``untouched`` if the old version was never stopped.
    """
    client, old, new = upgrade.client, upgrade.old(), upgrade.new
    for key in (f"{upgrade.journal.migration_id}/{which}" for which in ("return", "rollback")):
        if _may_run(client.view, client.view.own_claim(key)):  # an earlier attempt came this far
            spec, target = client.view.launch_of(old)
            return _running(
                upgrade, client.starts.start(spec, target, claim_key=key), "by an earlier attempt"
            )
    ordered = new is not None and client.view.board.takeover_order(new) is not None
    ended = new is None or (ordered and isinstance(client.drivers.end_driver(new), Gone))
    current = client.view.board.current()
    if current is not None and current.value.generation == old:
        winner, new = race.winner(upgrade)
        if winner == old and race.was_stopped_by_another(upgrade, old):
            return _stopped(old, stays=False)
        if winner == old:
            client.drivers.wait_running(old, timeout_s=upgrade.settings.takeover_timeout_s)
            return {"generation": old, "how": "it was never stopped", "untouched": True}
        if winner != new:
            client.drivers.wait_running(winner, timeout_s=upgrade.settings.takeover_timeout_s)
            return {"generation": winner, "how": "in its own checkpoint: the new version never took over"}
        # It was faster: another caller has started it again since its driver was ended above.
        ended = isinstance(client.drivers.end_driver(winner), Gone)
    handle, how = _from_new(upgrade, driver_has_ended=ended)
    return _running(upgrade, handle, how)


def _may_run(runs: JobView, own: Generation | None) -> bool:
    """Return whether a generation has its takeover order, and no other one has the job since."""
    if own is None or runs.board.takeover_order(own) is None:
        return False
    current = runs.board.current()
    return current is None or current.value.generation in (own, runs.claim(own).follows)


def _running(upgrade: UpgradeContext, handle: RunHandle, how: str) -> Mapping[str, Any]:
    upgrade.client.drivers.wait_running(handle.generation, timeout_s=upgrade.settings.takeover_timeout_s)
    return {"generation": handle.generation, "how": how}


def _from_new(upgrade: UpgradeContext, *, driver_has_ended: bool) -> tuple[RunHandle, str]:
    """Go back from a version that had taken the job over: its logs decide."""
    client, stop = upgrade.client, upgrade.journal.result("stop") or {}
    key = f"{upgrade.journal.migration_id}/rollback"
    manifest = client.view.repository.read(stop["savepoint_id"])
    saved = {query.name: int(query.batch_id) for query in manifest.queries}
    with offline_lock.hold_offline(
        client.view, key, driver_has_ended=driver_has_ended, needed=set(saved)
    ) as lock:
        failed = read_failed(client.view, lock)
        lock.close(failed.committed, ids={}, under_way=failed.planned.keys())
    began = begun_at(saved, upgrade.spec, manifest.savepoint_id, client.view.repository)
    why_not = failed.why_no_rollback(manifest, began)
    if upgrade.back_to is not None:  # its batches are not those behind the stop's savepoint
        why_not = f"it had begun from savepoint {upgrade.back_to.savepoint_id}"
    if why_not is None and began != saved:
        # Only the repartition has used the next batch's number, and no sink has seen that.
        origin = FromSavepoint(savepoint_id=manifest.savepoint_id, rewind="re-emit", skip_known_batches=True)
        how = f"from {manifest.savepoint_id}: but for the repartition, the new version had planned nothing"
    elif why_not is None:
        carried = carry_planned(manifest, failed, client.view)
        origin = FromSavepoint(savepoint_id=carried.savepoint_id)
        which = ", ".join(sorted(failed.planned)) or "no query"
        how = f"from {carried.savepoint_id}, planned batch of {which} carried over"
    elif upgrade.if_committed == "continue":
        tables = " Its tables may have been put back." if upgrade.takes_tables_back else ""
        raise UPGRADE_CHOICE.with_text(
            f"The new version was expected to fail before it wrote anything, found that {why_not}.{tables}",
            state_after=f"The job is stopped. Savepoint {stop['savepoint_id']} is from before the upgrade.",
            remedy="Correct the new version and start it with start_from='checkpoint'; or start the old one "
            "from that savepoint with rewind='fork' or rewind='re-emit'.",
        )
    else:
        origin = FromSavepoint(
            savepoint_id=manifest.savepoint_id,
            rewind=upgrade.if_committed,
            skip_known_batches=upgrade.skip_known_batches,
        )
        how = f"from {manifest.savepoint_id} ({upgrade.if_committed}), although {why_not}"
    spec, target = client.view.launch_of(upgrade.old())
    # Not under the key of a rollback that the new version has outrun: that one follows the old generation.
    again = f"{upgrade.journal.migration_id}/return"
    return client.starts.start(spec, target, claim_key=again, origin=origin), how
