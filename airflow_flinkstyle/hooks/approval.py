"""The approved answers of a migration: stored before the approval, and read by every task after it.

Until the window begins, a task with other answers is refused. After that other answers stop nothing: the
migration is completed, or brought back, with the approved ones.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.hooks.migration import cutover
from airflow_flinkstyle.jobs.errors import NOT_AS_APPROVED
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.approved import Approved
from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.migration.form_reader import fill_in, read_form
from airflow_flinkstyle.kafka.errors import ClusterMismatchError
from airflow_flinkstyle.rewrite.errors import moves_refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.jobs.migration.approved import Migration
    from airflow_flinkstyle.jobs.migration.cutover import Cutover
    from airflow_flinkstyle.jobs.migration.form import MigrationForm
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan

log = logging.getLogger(__name__)


def stored(hook: StreamingJobHook, form: MigrationForm, migration_id: str) -> Approved | None:
    """Return the approved answers; None if none are stored yet. Nothing that the form names is read.

    Raises:
        JobError: ``NOT_AS_APPROVED`` if the form holds other answers and the window has not begun.
    """
    journal = _journal(hook, form, migration_id)
    fields = journal.approved()
    if fields is None:
        return None
    approved = Approved.from_fields(fields)
    if differing := approved.differing(form.told()):
        differences = "; ".join(f"{name}: {what}" for name, what in differing.items())
        if not journal.has_begun:
            raise NOT_AS_APPROVED.with_text(
                f"The tasks of migration {migration_id} were expected to have the answers that were stored "
                f"for the approval ({approved.digest}), found others. {differences}.",
                state_after="Nothing was stopped or held.",
                remedy="Trigger a new run of the DAG with these answers, or give the task the approved ones.",
            )
        log.warning(
            "The window has begun, so what was approved (%s) is applied. %s", approved.digest, differences
        )
    return approved


def approved_or_read(hook: StreamingJobHook, form: MigrationForm, migration_id: str) -> Approved:
    """Return the approved answers, or those of the form if none are stored yet; stores nothing."""
    approved = stored(hook, form, migration_id)
    return approved or Approved(migration=read(hook, form), told=form.told())


def read(hook: StreamingJobHook, form: MigrationForm) -> Migration:
    """Read the form, with the hook's connections; answers that it leaves open are looked up."""
    return read_form(
        fill_in(form, hook.client(form.job).view, hook.look_ups()),
        servers=lambda conn_id: hook.kafka(conn_id).bootstrap_servers,
        repository=hook.repository(form.job),
        producer_switch=hook.switch_name(None),
    )


def plan_and_store(
    hook: StreamingJobHook, form: MigrationForm, migration_id: str, savepoint_id: str
) -> tuple[OffsetRewritePlan, Approved]:
    """Plan the move of a savepoint, and store what is to be approved with it.

    A plan with refusals stores nothing, so that a file that it read can be corrected and planned again.

    Raises:
        FlinkstyleError: ``MOVES_REFUSED`` if a partition has no safe offset.
    """
    asked = approved_or_read(hook, form, migration_id)
    manifest = hook.repository(form.job).read(savepoint_id)
    plan = hook.live_kafka(asked.migration).plan(manifest, preview=True)
    if plan.refused:
        log.info("Plan for savepoint %s:\n%s", savepoint_id, plan.as_markdown())
        raise moves_refused(
            f"{len(plan.refused)} partitions have no safe offset on the target",
            plan.refused,
            remedy="Read the reasons in the table; the job keeps running.",
        )
    wanted = Approved(
        migration=asked.migration,
        told=asked.told,
        source_cluster_id=plan.source_cluster_id,
        target_cluster_id=plan.target.cluster_id,
    )
    return plan, store(hook, wanted, migration_id)


def store(hook: StreamingJobHook, wanted: Approved, migration_id: str) -> Approved:
    """Store the answers to apply, once: what another try has stored before must be the same.

    Raises:
        JobError: ``NOT_AS_APPROVED`` if something else is stored.
    """
    journal = CutoverJournal(hook.store, wanted.migration.job, migration_id, PHASES, signer=hook.signer)
    found = Approved.from_fields(journal.approve(wanted.as_fields()))
    if found.digest != wanted.digest:
        raise _stored_otherwise(migration_id, found, wanted)
    return found


def decide(
    hook: StreamingJobHook, job: str, migration_id: str, who: Mapping[str, str], *, approved: bool
) -> None:
    """Keep in the journal who has approved or rejected a migration."""
    journal = CutoverJournal(hook.store, job, migration_id, PHASES, signer=hook.signer)
    journal.decide(who, approved=approved)


def require_clusters(approved: Approved, moved: Cutover) -> None:
    """Require that the connections still lead to the clusters that were approved.

    Raises:
        ClusterMismatchError: If one leads elsewhere.
    """
    moving, kafka = approved.migration, moved.kafka
    for ref, expected, found in (
        (moving.source, approved.source_cluster_id, kafka.old_cluster_id),
        (moving.target, approved.target_cluster_id, kafka.new_cluster_id),
    ):
        if expected is not None and found != expected:
            raise ClusterMismatchError.between(
                f"Connection {ref.conn_id}, as approved,", expected=expected, found=found
            )


def begun(hook: StreamingJobHook, form: MigrationForm, migration_id: str) -> Cutover | None:
    """Return a window that has begun, with what was approved; None if none has. No answer can be refused.

    Raises:
        MessageFormatError: If what was approved is gone.
    """
    journal = _journal(hook, form, migration_id)
    if not journal.has_begun:
        return None
    approved = stored(hook, form, migration_id) or Approved.from_fields({})
    return cutover(hook, approved.migration, migration_id, starts_driver=False)


def _journal(hook: StreamingJobHook, form: MigrationForm, migration_id: str) -> CutoverJournal:
    return CutoverJournal(hook.store, form.job, migration_id, PHASES, signer=hook.signer)


def _stored_otherwise(migration_id: str, found: Approved, wanted: Approved) -> FlinkstyleError:
    return NOT_AS_APPROVED.with_text(
        f"Migration {migration_id} was expected to be stored for the approval as it was planned now "
        f"({wanted.digest}), found it stored otherwise ({found.digest}): by another try, or a connection "
        "leads to another cluster by now.",
        state_after="Nothing was stopped or held; what was stored first stays.",
        remedy="Try again to plan what is stored; if that fails too, trigger a new run of the DAG.",
    )
