"""A migration's parts, made from connections and from the approved answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.errors import MIGRATION_ENDED, STEP_TIMEOUT
from airflow_flinkstyle.jobs.migration.cutover import approved_of, resumed
from airflow_flinkstyle.jobs.migration.moved_spec import moved_spec, renamed_topics
from airflow_flinkstyle.jobs.migration.preflight import run_preflight
from airflow_flinkstyle.jobs.migration.producers import SwappedSwitch
from airflow_flinkstyle.jobs.migration.report import build_report
from airflow_flinkstyle.jobs.request_slot import AS_IT_IS, DRAINED
from airflow_flinkstyle.jobs.unsettled import find_unsettled, is_abandoned, settle
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH
from airflow_flinkstyle.kafka.login import moved_options
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.cutover.context import Settled
    from airflow_flinkstyle.jobs.migration.approved import Migration
    from airflow_flinkstyle.jobs.migration.cutover import Cutover
    from airflow_flinkstyle.jobs.migration.preflight import Preflight
    from airflow_flinkstyle.jobs.migration.producers import ProducerSwitch


def producer_switch(hook: StreamingJobHook, moving: Migration) -> ProducerSwitch:
    """Return the switch; for a migration back its two positions are swapped."""
    switch = hook.producer_switch(moving.job, moving.producer_switch)
    return SwappedSwitch(switch) if moving.back else switch


def preflight(hook: StreamingJobHook, moving: Migration, *, savepoint_id: str | None = None) -> Preflight:
    """Check everything a migration needs; with a savepoint also what the job has not read yet."""
    kafka = hook.live_kafka(moving)
    moved_options(kafka.new, moving.kafka_options)  # refuses what no driver can log in with
    return run_preflight(
        hook.client(moving.job).view,
        kafka,
        producer_switch(hook, moving),
        target=hook.target(moving.spark_conn_id) if moving.spark_conn_id else None,
        manifest=hook.repository(moving.job).read(savepoint_id) if savepoint_id else None,
    )


def cutover(
    hook: StreamingJobHook,
    moving: Migration,
    migration_id: str,
    *,
    hot_savepoint_id: str | None = None,
    starts_driver: bool = True,
) -> Cutover:
    """Return the window of a migration; every task, and every try of it, makes the same one.

    Args:
        hook: What opens connections.
        moving: The migration.
        migration_id: Names its journal.
        hot_savepoint_id: Restored by the next driver while it waits.
        starts_driver: Whether it may have to start the next driver, for which connections must be good.
    """
    client, kafka = hook.client(moving.job), hook.live_kafka(moving)
    moved = resumed(client, moving, migration_id, kafka=kafka, switch=producer_switch(hook, moving))
    if starts_driver and moved.journal.result("standby") is None:  # else the old cluster may be gone
        moved.spec = moved_spec(
            moved.spec,
            old_servers=kafka.old.bootstrap_servers,
            script_servers=moving.script_servers,
            options=moved_options(kafka.new, moving.kafka_options),
            rename=renamed_topics(client.view, kafka),
        )
        moved.target = hook.target(moving.spark_conn_id) if moving.spark_conn_id else moved.target
    moved.hot_savepoint_id = hot_savepoint_id
    moved.rehearse = moving.rehearse if hot_savepoint_id else None
    moved.stop_mode = DRAINED if moving.strategies.drains else AS_IT_IS
    return moved


def settle_abandoned(
    hook: StreamingJobHook, job: str, *, afresh: bool = False, found: Callable[[], object] = tuple
) -> list[tuple[str, Settled]]:
    """Finish or undo each abandoned migration and upgrade of a job; leave those at work.

    Args:
        hook: What opens connections.
        job: The job.
        afresh: Also those that may be at work, without waiting to see.
        found: Called for each that has not ended, before it takes minutes.

    Returns:
        What was settled, as text, and its outcome.
    """
    client, settled = hook.client(job), []

    def migration(migration_id: str) -> Cutover:
        moving = approved_of(client.view, migration_id).migration
        return cutover(hook, moving, migration_id, starts_driver=False)

    for work in find_unsettled(client.view.board):
        found()
        if not afresh and not is_abandoned(client.view, work):
            hook.log.info("Another process works on %s of job %s", work, job)
            continue
        settled.append((str(work), settle(client, work, migration=migration, afresh=True)))
        hook.log.warning("%s of job %s: %s (%s)", work, job, settled[-1][1].where, settled[-1][1].detail)
    return settled


def verify_moved(moved: Cutover | None, migration_id: str, *, timeout_s: float) -> dict[str, Any]:
    """Prove that the job runs on the target cluster, and commits the records that it reads there.

    Args:
        moved: The window; None if it has not begun.
        migration_id: The migration's id.
        timeout_s: How long the first batch may take.

    Raises:
        JobError: ``MIGRATION_ENDED`` if the window has not ended on the target.
        FlinkstyleError: ``CLUSTER_MISMATCH`` if a query reads another cluster than the target.
        JobError: ``STEP_TIMEOUT`` if there is something to read and no batch comes.
    """
    if moved is None or moved.journal.result("running") is None:
        raise MIGRATION_ENDED.with_text(
            f"Migration {migration_id} was expected to have ended on the target, but it has not.",
            state_after="Nothing was changed.",
            remedy="Look at the task with the window, and at the one that settles it.",
        )
    client, kafka = moved.client, moved.kafka
    report = build_report(client.view, moved.journal)
    target_id = report.plan.target_cluster_id
    wait = client.view.clock.wait(timeout_s, every_s=1.0)
    while True:
        heartbeat = client.drivers.wait_running(Generation(report.generation), timeout_s=timeout_s).heartbeat
        for ref in report.plan.sources:
            found = heartbeat.queries[ref.query].sources[ref.source].cluster_id
            if found != target_id:
                raise CLUSTER_MISMATCH.error(
                    what=f"Source {ref.query}/{ref.source}", expected=target_id, found=found
                )
        batches = heartbeat.batches()
        behind = [name for name, batch in report.plan.batches.items() if batches.get(name, -1) <= batch]
        if not behind or kafka.unread(client.view.repository.read(report.rewritten_id)) == 0:
            return {"cluster_id": target_id, "batches": batches, "generation": report.generation}
        if not wait.again():
            raise STEP_TIMEOUT.with_text(
                f"Queries {behind} of job {report.job} were expected to commit a batch on the target within "
                f"{timeout_s:g} s.",
                state_after="The job has moved: it runs on the target, and producers write there.",
                remedy="Look at the driver's log; correct it there (UpgradeStreamingJobOperator).",
            )
