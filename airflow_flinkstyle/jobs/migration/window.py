"""What a migration's window does until the new driver gets its takeover order; all of it can be undone."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.cutover import steps
from airflow_flinkstyle.jobs.errors import PRODUCERS_NOT_HELD
from airflow_flinkstyle.jobs.migration import fence_phase
from airflow_flinkstyle.jobs.migration.context import sources_read
from airflow_flinkstyle.jobs.start.origins import order_to_restore
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.sinks.errors import LineageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.jobs.migration.context import MigrationContext
    from airflow_flinkstyle.jobs.spec import JobSpec
    from airflow_flinkstyle.protocol.records import Claim, KafkaOverride
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)


def start_standby(context: MigrationContext) -> Mapping[str, Any]:
    """Start the next driver and wait until it is ready, before anything is held; note what the job reads."""
    ready = steps.start_standby(context)
    return {**ready, "sources": sources_read(context, context.old())}


def hold(context: MigrationContext) -> Mapping[str, Any]:
    """Hold the producers that obey, fence off those that sleep, and prove that no producer writes.

    The fence comes after a first proof: before, it would refuse what an obedient producer still flushes.
    """
    context.hold.begin(context.new)
    topics = context.topics
    _await_quiet(context, topics)
    if fence_phase.raise_fence(context.journal, context.kafka.watch, topics)["kind"] != "passive":
        _await_quiet(context, topics)
    return {"position": "hold"}


def hold_again(context: MigrationContext) -> None:
    """Hold producers for an attempt that finds the job stopped; records written meanwhile roll it back.

    The hold of the attempt before may have ended, and producers may have written since.
    """
    context.hold.begin(context.new)
    _await_quiet(context, context.topics)
    if context.journal.result("takeover-order") is not None:
        fence_phase.require_quiet(context.journal, context.kafka.watch)
        context.let_take_over()


def _await_quiet(context: MigrationContext, topics: Collection[str]) -> None:
    wait = context.client.view.clock.wait(
        context.settings.hold_timeout_s, every_s=0
    )  # each check waits itself
    while True:
        writes = context.kafka.who_writes(topics, context.settings.steady_window_s)
        if writes is None:
            return
        if not wait.again():
            raise PRODUCERS_NOT_HELD.with_text(
                f"Producers were expected to be held within {context.settings.hold_timeout_s:g} s. {writes}",
                state_after="Nothing was stopped; the job still reads the old cluster.",
                remedy="Make every producer of these partitions obey the switch, then migrate again.",
            )
        context.journal.check()


def caught_up(context: MigrationContext) -> Mapping[str, Any]:
    """Wait for the mirror, where a way needs it."""
    context.kafka.await_mirrored(context.sources, context.settings.caught_up_timeout_s)
    context.hold.require()  # else the job would be stopped for nothing
    return {}


def translate(context: MigrationContext, manifest: Manifest) -> Mapping[str, Any]:
    """Find every position on the new cluster, of topics that were proved quiet."""
    _require_watched(context, manifest)
    _require_whole_output(context, manifest)
    plan = context.kafka.plan(manifest)
    log.info("Plan:\n%s", plan.as_markdown())
    return {"plan": plan.to_json(), "table": plan.as_markdown()}


def _require_watched(context: MigrationContext, manifest: Manifest) -> None:
    old_id = context.kafka.old_cluster_id
    read = {
        topic
        for query in manifest.queries
        for position in query.kafka.values()
        if position.cluster_id == old_id
        for topic in position.offsets.topics
    }
    if missed := sorted(read - fence_phase.watched(context.journal)):
        raise PRODUCERS_NOT_HELD.with_text(
            f"All topics that the job reads were expected to be watched, found that {', '.join(missed)} were "
            "not: its driver did not report them when the migration began.",
            state_after="The savepoint is kept.",
            remedy="Migrate again once all queries run.",
        )


def _require_whole_output(context: MigrationContext, manifest: Manifest) -> None:
    """Require that a sink which moves leaves no batch half written: the new driver would always refuse it.

    A stop that comes before the script has started a query finds its planned batch as a dead driver left it.
    """
    if _sink_rules(context.client.view.claim(context.generation("old"))) == _sink_rules(context.spec):
        return
    for query in manifest.queries:
        if (
            query.sinks
            and query.sinks.lineages
            and (query.planned_offsets is not None or query.sinks.under_way)
        ):
            raise LineageError(
                f"Savepoint {manifest.savepoint_id} was expected to hold query {query.name} between two "
                f"batches, because its sink moves to another cluster, found that batch {query.batch_id + 1} "
                "was planned: a part of it may be in the old output.",
                state_after="The savepoint is kept.",
                remedy="Migrate again once all queries of the job run.",
            )


def _sink_rules(runs: Claim | JobSpec) -> list[KafkaOverride]:
    return [rule for rule in runs.overrides if rule.role == "sink"]


def rewrite(context: MigrationContext, planned: Mapping[str, Any], manifest: Manifest) -> Mapping[str, Any]:
    """Write the savepoint with positions on the new cluster."""
    plan = OffsetRewritePlan.from_json(planned["plan"])
    return {"savepoint_id": context.kafka.apply(plan, manifest, context.client.view.repository).savepoint_id}


def order_takeover(
    context: MigrationContext, rewritten: Manifest, batches: Mapping[str, int]
) -> Mapping[str, Any]:
    """Let the new driver take over while producers are held, if nothing was written since the proof."""
    fence_phase.require_quiet(context.journal, context.kafka.watch)
    context.hold.require()
    order = order_to_restore(rewritten, closed_at=dict(batches))
    order = replace(order, while_held=context.journal.migration_id)
    context.client.starts.order_takeover(context.generation("new"), order)
    context.let_take_over()
    return {}
