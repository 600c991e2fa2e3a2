"""How the old version continues after a new one that failed, and what must hold for that beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.cutover import back
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.errors import UpgradeChoiceError
from airflow_flinkstyle.jobs.running import stopped
from airflow_flinkstyle.jobs.running.start_plan import FromSavepoint
from airflow_flinkstyle.jobs.upgrade.failed_version import carry_planned, look_at
from airflow_flinkstyle.jobs.upgrade.repartition import begun_at
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from airflow_flinkstyle.savepoint.sinks import may_skip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.jobs.running.starts import RunHandle
    from airflow_flinkstyle.jobs.upgrade.context import UpgradeContext
    from airflow_flinkstyle.protocol.records import Rewind


def require_possible(client: JobClient, if_committed: Rewind, *, skip_known: bool) -> None:
    """Require that the rollback that was chosen loses nothing silently, before anything stops.

    Raises:
        SinkSkipsError: If a sink may leave out batch ids that it has seen.
    """
    if if_committed != "re-emit" or skip_known:
        return
    board = client.board
    current = board.current()
    slot = board.heartbeat(current.value.generation) if current else None
    told = slot.value.queries if slot else {}
    found = [name for name, beat in sorted(told.items()) if may_skip(beat.sink, beat.sinks)]
    if found:
        named = ", ".join(f"{told[name].sink} of query {name}" for name in found)
        raise SinkSkipsError.of(
            f"{named}, which leaves out, or may leave out, batches whose ids it has seen "
            "(if_committed='re-emit')",
            state_after="Nothing was stopped; the job keeps running.",
        )


def roll_back(upgrade: UpgradeContext) -> Mapping[str, Any]:
    """Let the old version run; what the new one has done decides how.

    Returns:
        ``generation`` that runs, ``how``, and ``untouched`` if the old version was never stopped.
    """
    client, old, new = upgrade.client, upgrade.old(), upgrade.new
    key = f"{upgrade.journal.migration_id}/rollback"
    own = client.own_claim(key)
    if own is not None and client.board.takeover_order(own) is not None:  # an earlier attempt came this far
        spec, target = client.launch_of(old)
        return _running(upgrade, client.start(spec, target, claim_key=key), "by an earlier attempt")
    told = new is not None and client.board.takeover_order(new) is not None
    ended = new is None or (told and isinstance(client.end_driver(new), Gone))
    current = client.board.current()
    if current is not None and current.value.generation == old:
        winner, new = back.winner(upgrade)
        if winner == old:
            client.wait_running(old, timeout_s=upgrade.settings.takeover_timeout_s)
            return {"generation": old, "how": "it was never stopped", "untouched": True}
        if winner != new:
            client.wait_running(winner, timeout_s=upgrade.settings.first_commit_timeout_s)
            return {"generation": winner, "how": "in its own checkpoint: the new version never took over"}
        ended = ended or isinstance(client.end_driver(winner), Gone)  # it was faster
    handle, how = _from_new(upgrade, driver_has_ended=ended)
    return _running(upgrade, handle, how)


def _running(upgrade: UpgradeContext, handle: RunHandle, how: str) -> Mapping[str, Any]:
    upgrade.client.wait_running(handle.generation, timeout_s=upgrade.settings.first_commit_timeout_s)
    return {"generation": handle.generation, "how": how}


def _from_new(upgrade: UpgradeContext, *, driver_has_ended: bool) -> tuple[RunHandle, str]:
    """Go back from a version that had taken the job over: its logs decide."""
    client, stop = upgrade.client, upgrade.journal.result("stop") or {}
    key = f"{upgrade.journal.migration_id}/rollback"
    manifest = client.repository.read(stop["savepoint_id"])
    saved = {query.name: int(query.batch_id) for query in manifest.queries}
    lock = stopped.lock_offline(client, key, driver_has_ended=driver_has_ended, needed=set(saved))
    failed = look_at(client, lock)
    stopped.unlock(client, lock, failed.committed, under_way=failed.planned.keys())
    began = begun_at(saved, upgrade.spec, manifest.savepoint_id, client.repository)
    why_not = failed.why_no_rollback(manifest, began)
    if upgrade.back_to is not None:  # its batches are not those behind the stop's savepoint
        why_not = f"it had begun from savepoint {upgrade.back_to.savepoint_id}"
    if why_not is None and began != saved:
        # Only the repartition has used the next batch's number, and no sink has seen that.
        origin = FromSavepoint(savepoint_id=manifest.savepoint_id, rewind="re-emit", skip_known_batches=True)
        how = f"from {manifest.savepoint_id}: but for the repartition, the new version had planned nothing"
    elif why_not is None:
        carried = carry_planned(manifest, failed, client)
        origin = FromSavepoint(savepoint_id=carried.savepoint_id)
        which = ", ".join(sorted(failed.planned)) or "no query"
        how = f"from {carried.savepoint_id}, planned batch of {which} carried over"
    elif upgrade.if_committed == "continue":
        raise UpgradeChoiceError(
            f"The new version was expected to fail before it wrote anything, found that {why_not}.",
            state_after=f"The job is stopped. Savepoint {stop['savepoint_id']} is from before the upgrade.",
            remedy="Correct the new version and start it from the checkpoint (FromCheckpoint), or the "
            "old one from that savepoint with rewind='fork' or rewind='re-emit'.",
        )
    else:
        origin = FromSavepoint(
            savepoint_id=manifest.savepoint_id,
            rewind=upgrade.if_committed,
            skip_known_batches=upgrade.skip_known_batches,
        )
        how = f"from {manifest.savepoint_id} ({upgrade.if_committed}), although {why_not}"
    spec, target = client.launch_of(upgrade.old())
    return client.start(spec, target, claim_key=key, origin=origin), how
