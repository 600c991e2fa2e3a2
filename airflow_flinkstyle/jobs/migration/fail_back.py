"""The fail-back of a finished migration: it moves the job and its producers back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.answers.rules import mirror_settings
from airflow_flinkstyle.jobs.errors import LATE_WRITES, MIRROR_BEHIND
from airflow_flinkstyle.jobs.journal import CutoverJournal, read_phases
from airflow_flinkstyle.jobs.migration import fence_phase
from airflow_flinkstyle.jobs.migration.approved import Approved
from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.migration.form_reader import require_names
from airflow_flinkstyle.jobs.migration.report import plan_of
from airflow_flinkstyle.kafka.cluster import describe, existing_topics
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH, MirrorPositionMissingError
from airflow_flinkstyle.kafka.fence.fences import FenceRecord, PassiveFence
from airflow_flinkstyle.kafka.mirror.found import UNNAMED
from airflow_flinkstyle.kafka.mirror.lag import MirrorBehind
from airflow_flinkstyle.kafka.mirror.start import set_mirror_start, wait_copied
from airflow_flinkstyle.kafka.mirror.topics import read_positions
from airflow_flinkstyle.kafka.policies import parse_policies
from airflow_flinkstyle.kafka.verdict import Bounded, Exact
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.types import id_words, ids_differ
from airflow_flinkstyle.wording import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.journal import PhaseRecord
    from airflow_flinkstyle.jobs.migration.approved import Migration
    from airflow_flinkstyle.jobs.migration.form import MigrationForm
    from airflow_flinkstyle.jobs.signing import Signer
    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.policies import Policies
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.storage.base import ObjectStore

Topics = Literal["original", "as_mirrored"]
"""Which topics of the old cluster the job reads again:

- ``original``: those it read before the migration. The mirror back must write to them, and only what is
  new: where it is to begin is stored for it.
- ``as_mirrored``: copies that the mirror back makes of the whole topics, named by its policy.
"""

_SHOWN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedMigration:
    """A migration whose job has committed, or had nothing to read, on the target."""

    migration_id: str
    plan: OffsetRewritePlan
    """With the ends of the target's logs when the job had stopped and producers were held."""
    fence: FenceRecord | None
    """What keeps producers away from the old topics since; None if no fence was asked for."""
    approved: Migration | None = None
    """As it was approved; None if a program moved the job by itself, without the operators."""
    ended: Offsets | None = None
    """Where the logs of the old topics ended when the job left them; None if that was not noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailBack:
    """What a migration back starts with."""

    migration_id: str
    """The one that it reverses."""
    rename: Mapping[str, str]
    """Topic that the job reads now -> topic to read then, beyond what the mirror's policy renames."""
    noted: Offsets
    """Where the mirror back is set to begin."""

    def as_markdown(self) -> str:
        """Render for the approval."""
        topics = [f"{now} -> {then}" if now != then else now for now, then in sorted(self.rename.items())]
        named = ", ".join(topics[:_SHOWN]) or "as the mirror back names them"
        more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
        return (
            f"Reverses migration {escape(self.migration_id)}. Topics: {escape(named)}{more}. What was "
            "written on the new cluster so far is on the old one too."
        )


def last_migration(
    store: ObjectStore, job: str, migration_id: str | None = None, *, signer: Signer, besides: str = ""
) -> FinishedMigration:
    """Return a finished migration of the job, the newest unless it is named.

    Args:
        store: With the job's records.
        job: Its name.
        migration_id: Which; None for the newest.
        signer: To verify them.
        besides: The one that asks: its task may be cleared after it has moved the job, and would reverse
            itself.

    Raises:
        BadInputError: If there is none.
        SignatureError: If no caller with the key has written it.
    """
    finished: dict[str, dict[str, PhaseRecord]] = {}
    for name, phases in read_phases(store, job).items():
        done = {record.phase: record for record in phases if record.result is not None}
        if name != besides and {"translate", "takeover", "running"} <= done.keys():
            finished[name] = done
    newest = max(finished, key=lambda name: _ran_as(finished[name]), default=None)
    chosen = migration_id or newest
    if chosen not in finished:
        raise BadInputError(
            f"Job {job} was expected to have the finished migration {migration_id or '(any)'}, found "
            f"{sorted(finished) or 'none'}.",
            state_after="Nothing was changed.",
            remedy="Name a finished migration, or none for the newest.",
        )
    journal = CutoverJournal(store, job, chosen, PHASES, signer=signer)
    fenced, approved = journal.read(fence_phase.PHASE), journal.approved()
    return FinishedMigration(
        migration_id=chosen,
        plan=plan_of(journal),
        fence=FenceRecord.from_dict(fenced.intent) if fenced else None,
        approved=Approved.from_fields(approved).migration if approved is not None else None,
        ended=fence_phase.noted_ends(journal),
    )


def _ran_as(done: Mapping[str, PhaseRecord]) -> int:
    """Return the generation that a migration let take over: these only grow, and clocks differ."""
    found = (done["takeover"].result or {}).get("generation")
    return found if isinstance(found, int) else 0


def fill_back(form: MigrationForm, finished: FinishedMigration) -> MigrationForm:
    """Return the form of a migration back; where it has no answer, with that of the finished one. Pure.

    The clusters and the mirror's aliases are swapped. Where the finished one had no alias of its target, the
    form must name it.
    """
    before = finished.approved
    if before is None:
        return form
    mirror = {name: value for name, value in (form.mirror or {}).items() if value not in (None, "")}
    if (
        before.mirror is not None and not before.mirror.keeps_offsets
    ):  # a mirror that keeps offsets has no aliases
        swapped = {"source_alias": before.mirror.target_alias, "target_alias": before.mirror.source_alias}
        mirror = {**{name: alias for name, alias in swapped.items() if alias != UNNAMED}, **mirror}
    return replace(
        form,
        source_kafka_conn_id=form.source_kafka_conn_id or before.target.conn_id,
        target_kafka_conn_id=form.target_kafka_conn_id or before.source.conn_id,
        mirror=mirror,
        isolation=form.isolation or before.isolation,
    )


def topics_back(plan: OffsetRewritePlan) -> dict[str, str]:
    """Return topic of the target -> topic it was before. Pure.

    Raises:
        BadInputError: If the migration has merged or split topics.
    """
    pairs = {(move.target_topic, move.topic) for move in plan.moves}
    now, before = zip(*pairs, strict=True)
    if len(set(now)) < len(pairs) or len(set(before)) < len(pairs) or any("+" in name for name in before):
        raise BadInputError(
            f"Topics that were moved one by one were expected, found {sorted(pairs)[:_SHOWN]}.",
            state_after="Nothing was changed.",
            remedy="Migrate to the old cluster as to any other (DAG migrate_kafka_cluster with the clusters "
            "swapped), and pick positions.",
        )
    return dict(pairs)


def mirror_begins(plan: OffsetRewritePlan) -> Offsets:
    """Return where the logs of the target ended when everything on them was on the old cluster too. Pure.

    Only of topics whose positions were proved: what the others held then is not known.
    """
    proved = {move.target_topic for move in plan.moves if isinstance(move.after, (Exact, Bounded))}
    picked = {move.target_topic for move in plan.moves} - proved
    return plan.target.ends.in_topics(plan.target.topics.keys() - picked)


def begin_fail_back(
    store: ObjectStore,
    form: MigrationForm,
    *,
    now: KafkaCluster,
    then: KafkaCluster,
    migration_id: str | None,
    topics: Topics,
    mirror_timeout_s: float,
    signer: Signer,
) -> FailBack:
    """Prepare a migration back: set where the mirror begins, and require that it has copied what is new.

    The fence that the migration left on the old topics is taken down.

    Args:
        store: With the job's records.
        form: The migration back.
        now: The cluster that the job reads, the form's source.
        then: The cluster to go back to, the form's target.
        migration_id: The migration to reverse; None for the newest.
        topics: See ``Topics``.
        mirror_timeout_s: How long to wait for records that are on the cluster now; 0 only checks.
        signer: Verifies the migration's records.

    Raises:
        BadInputError: If there is nothing to reverse, or the job reads another cluster by now.
        FlinkstyleError: ``CLUSTER_MISMATCH`` if the connections are not the clusters of that migration.
        JobError: ``LATE_WRITES`` if others have written to the old topics since, and ``allow`` of the form
            does not accept as many ``passed_over``; the fence stands.
        JobError: ``MIRROR_BEHIND`` if records are only on the job's cluster; they are counted by partition.
    """
    require_names(form)
    finished = last_migration(store, form.job, migration_id, signer=signer)
    require_there(JobBoard(store, form.job), finished)
    _require_clusters(finished, now, then)
    mirror, names = mirror_settings(form.mirror or {}), topics_back(finished.plan)
    _require_all_read(finished, now, then, mirror, names, parse_policies(form.allow))
    if finished.fence is not None:  # neither a mirror back nor producers could write
        PassiveFence(cluster=then).lift(finished.fence)
    noted = Offsets()
    if topics == "original" and not mirror.keeps_offsets:  # such a mirror begins where its copy ends
        noted = set_mirror_start(then, mirror, mirror_begins(finished.plan))
    found = wait_copied(now, then, mirror, names, timeout_s=mirror_timeout_s)
    if isinstance(found, MirrorBehind):
        raise _not_copied(found, finished, now, then, mirror)
    rename = names if topics == "original" else {}
    return FailBack(migration_id=finished.migration_id, rename=rename, noted=noted)


def require_there(board: JobBoard, finished: FinishedMigration) -> None:
    """Require that the job reads where the migration brought it: its fence comes down only to go back.

    Raises:
        BadInputError: If it reads other clusters.
    """
    last = board.current_heartbeat()
    queries = last.queries.values() if last is not None else ()
    read = {source.cluster_id for query in queries for source in query.sources.values()}
    if read and finished.plan.target_cluster_id not in read:
        raise BadInputError(
            f"Job {board.job} was expected to read cluster {finished.plan.target_cluster_id}, where "
            f"migration {finished.migration_id} brought it, found {', '.join(sorted(map(id_words, read)))}.",
            state_after="Nothing was changed.",
            remedy="Name the migration that brought the job where it is now.",
        )


def _require_clusters(finished: FinishedMigration, now: KafkaCluster, then: KafkaCluster) -> None:
    plan = finished.plan
    for cluster, expected in ((now, plan.target_cluster_id), (then, plan.source_cluster_id)):
        found = describe(cluster, ()).cluster_id
        if ids_differ(expected, found):
            what = f"Migration {finished.migration_id}, reversed,"
            raise CLUSTER_MISMATCH.error(what=what, expected=expected, found=f"{found} ({cluster})")


def _require_all_read(
    finished: FinishedMigration,
    now: KafkaCluster,
    then: KafkaCluster,
    mirror: MirrorSettings,
    names: Mapping[str, str],
    allow: Policies,
) -> None:
    """Require that the old topics hold nothing that the job has not read, before anything is copied back.

    What a forgotten producer has written there since stands before the copies, where the translation, which
    compares the newest records, does not look. What the migration's own mirror has still copied, the job has
    read. A partition that the mirror back copies to was looked at before that.
    """
    if finished.ended is None or mirror.keeps_offsets:  # nobody else writes to the copy of such a mirror
        return
    ended = finished.ended.in_topics(finished.ended.topics & existing_topics(then))
    ends, begins = describe(then, ended.topics).ends, mirror_begins(finished.plan)
    forth = finished.approved.mirror if finished.approved is not None else None
    copied = _positions(now, forth) if forth is not None and not forth.keeps_offsets else Offsets()
    under_way = {
        (names.get(topic, topic), number)
        for (topic, number), at in _positions(then, mirror).items()
        if at > begins.get((topic, number), 0)
    }
    spans = {tp: (max(at, copied.get(tp, at)), ends.get(tp, at)) for tp, at in ended.items()}
    unread = {
        tp: (at, end)
        for tp, (at, end) in spans.items()
        if end > at and tp not in under_way and allow.judge(Bounded(end, {"passed_over": end - at}))
    }
    if unread:
        most = max(end - at for at, end in unread.values())
        found = ", ".join(f"{topic}-{n} ({at} to {end})" for (topic, n), (at, end) in sorted(unread.items()))
        raise LATE_WRITES.with_text(
            f"Topics of {then} were expected to hold nothing that job {finished.plan.job} has not read, "
            f"found records since migration {finished.migration_id}: {found}.",
            state_after="Nothing was changed: the job stays where it is, and a fence stands.",
            remedy=f"Find their producer, and write them to {now}, too. To go back without them, allow them: "
            f"allow=['exact', 'passed_over<={most}'].",
        )


def _positions(target: KafkaCluster, mirror: MirrorSettings) -> Offsets:
    """Return how far a mirror to this cluster has copied; nothing if it never ran."""
    try:
        return read_positions(target, mirror)
    except MirrorPositionMissingError:
        return Offsets()


def _not_copied(
    found: MirrorBehind,
    finished: FinishedMigration,
    now: KafkaCluster,
    then: KafkaCluster,
    mirror: MirrorSettings,
) -> FlinkstyleError:
    here, there = mirror.source_alias, mirror.target_alias
    was_fenced = finished.fence is not None and finished.fence.rules
    fence = f" The fence on {then} is down: nobody else may write there." if was_fenced else ""
    return MIRROR_BEHIND.with_text(
        f"Everything on {now} was expected to be on {then} too. {found.describe()}",
        state_after="The job and its producers stay where they are; where a mirror back begins is stored "
        f"for it.{fence}",
        remedy=f"Stop the mirror {there}->{here}, start MirrorMaker {here}->{there} for these topics and let "
        "it catch up, then fail back again.",
    )
