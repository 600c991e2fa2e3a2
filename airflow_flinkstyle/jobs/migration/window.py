"""What the phases of a migration's window do until the new driver is told to go; all of it can be undone."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.errors import ProducersNotHeldError, RequestFailedError, StepTimeoutError
from airflow_flinkstyle.jobs.migration import fence_phase
from airflow_flinkstyle.jobs.running.client import SavepointOnly
from airflow_flinkstyle.jobs.running.lineage import go_restored
from airflow_flinkstyle.rewrite import plan_json

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.jobs.migration.cutover import Cutover
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)


def start_standby(cutover: Cutover) -> Mapping[str, Any]:
    """Start the next driver and wait until it is ready, before anything is held."""
    client = cutover.client
    handle = client.standby(
        cutover.spec,
        cutover.target,
        claim_key=f"{cutover.journal.migration_id}/next",
        prepare_savepoint_id=cutover.hot_savepoint_id,
    )
    deadline = time.monotonic() + cutover.settings.standby_timeout_s
    while True:
        run = client.run(handle.generation)
        beat = run.heartbeat
        if beat is not None and beat.state == "standby" and beat.application_id:  # its script has come up
            old = cutover.old()
            return {"old": old, "new": handle.generation, "sources": sources_read(cutover, old)}
        if run.is_over or not run.holds_the_job:
            raise client.driver_failed(run)
        if time.monotonic() > deadline:
            raise late("The next driver", "come up and wait", cutover.settings.standby_timeout_s)
        time.sleep(client.poll_s)


def sources_read(cutover: Cutover, old: Generation) -> dict[str, list[str]]:
    """Return ``query/source`` -> topics on the old cluster; a driver that starts again tells few, or none."""
    slot, old_id = cutover.client.board.heartbeat(old), cutover.kafka.old_cluster_id
    return {
        f"{query}/{name}": sorted(source.topic_ids)
        for query, beat in (slot.value.queries if slot else {}).items()
        for name, source in beat.sources.items()
        if source.cluster_id == old_id
    }


def hold(cutover: Cutover) -> Mapping[str, Any]:
    """Hold the producers that obey, fence off those that sleep, and prove that nobody writes.

    The fence comes behind a first proof: it would refuse what an obedient producer is still flushing.
    """
    cutover.switch.apply("hold", cutover.journal.token)
    topics = cutover.topics
    _await_quiet(cutover, topics)
    if fence_phase.raise_fence(cutover.journal, cutover.kafka.watch, topics)["kind"] != "passive":
        _await_quiet(cutover, topics)
    return {"position": "hold"}


def _await_quiet(cutover: Cutover, topics: Collection[str]) -> None:
    deadline = time.monotonic() + cutover.settings.hold_timeout_s
    while True:
        writes = cutover.kafka.who_writes("old", topics, cutover.settings.steady_window_s)
        if writes is None:
            return
        if time.monotonic() > deadline:
            raise ProducersNotHeldError(
                f"Producers were expected to be held within {cutover.settings.hold_timeout_s:g} s. {writes}",
                left="Nothing was stopped; the job still reads the old cluster.",
                remedy="Make every producer of these partitions obey the switch, then migrate again.",
            )
        cutover.journal.check()


def caught_up(cutover: Cutover) -> Mapping[str, Any]:
    """Wait for the mirror, where a way needs it."""
    cutover.kafka.await_mirrored(cutover.sources, cutover.settings.caught_up_timeout_s)
    return {}


def stop(cutover: Cutover) -> Mapping[str, Any]:
    """Stop the job with a savepoint; read to the end of its inputs if a way asks for it."""
    outcome = cutover.client.stop(
        cutover.stop_key,
        savepoint=True,
        timeout_s=cutover.settings.stop_timeout_s,
        mode=cutover.stop_mode,
        confirm=cutover.journal.check,
    )
    if isinstance(outcome, SavepointOnly) or outcome.savepoint_id is None:
        found = outcome.reason if isinstance(outcome, SavepointOnly) else "it closed by itself"
        raise RequestFailedError(
            f"The job was expected to stop with a savepoint, found: {found}",
            left="The savepoint, if there is one, is kept.",
            remedy="Migrate again.",
        )
    return {"savepoint_id": outcome.savepoint_id, "batches": dict(outcome.batches)}


def translate(cutover: Cutover, manifest: Manifest) -> Mapping[str, Any]:
    """Find every position on the new cluster, of topics that were proved quiet."""
    _require_watched(cutover, manifest)
    plan = cutover.kafka.plan(manifest)
    log.info("Plan:\n%s", plan.as_markdown())
    return {"plan": plan_json.to_json(plan), "table": plan.as_markdown()}


def _require_watched(cutover: Cutover, manifest: Manifest) -> None:
    old_id = cutover.kafka.old_cluster_id
    read = {
        topic
        for query in manifest.queries
        for position in query.kafka.values()
        if position.cluster_id == old_id
        for topic in position.offsets
    }
    if missed := sorted(read - fence_phase.watched(cutover.journal)):
        raise ProducersNotHeldError(
            f"All topics that the job reads were expected to be watched, found that {', '.join(missed)} were "
            "not: its driver did not tell of them when the migration began.",
            left="The savepoint is kept.",
            remedy="Migrate again once all queries run.",
        )


def rewrite(cutover: Cutover, planned: Mapping[str, Any], manifest: Manifest) -> Mapping[str, Any]:
    """Write the savepoint that stands on the new cluster."""
    plan = plan_json.from_json(planned["plan"])
    return {"savepoint_id": cutover.kafka.apply(plan, manifest, cutover.client.repository).savepoint_id}


def go(cutover: Cutover, rewritten: Manifest, batches: Mapping[str, int]) -> Mapping[str, Any]:
    """Let the new driver take over, if nobody has written to the old cluster since the proof."""
    fence_phase.require_quiet(cutover.journal, cutover.kafka.watch)
    cutover.client.go(cutover.generation("new"), go_restored(rewritten, closed_at=dict(batches)))
    return {}


def late(who: str, what: str, timeout_s: float) -> StepTimeoutError:
    """Return the error for something that was waited for too long."""
    return StepTimeoutError(
        f"{who} was expected to {what} within {timeout_s:g} s.",
        left="It may still be starting.",
        remedy="Look at its log, then migrate again with a longer time-out.",
    )
