"""What must hold before a plan is applied; all of it is checked before the first write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.errors import TopicRecreatedError, log_truncated
from airflow_flinkstyle.kafka.log_drift import drift_between
from airflow_flinkstyle.kafka.policies import EXACT_ONLY, Policies
from airflow_flinkstyle.kafka.positions import require_inside, require_partitions
from airflow_flinkstyle.kafka.verdict import Exact, Refused
from airflow_flinkstyle.rewrite.errors import (
    NOTHING_WRITTEN,
    PLAN_MISMATCH,
    PLANNED_BATCH,
    PREVIEW_ONLY,
    moves_refused,
    rewrite_refused,
)
from airflow_flinkstyle.types import ids_differ
from airflow_flinkstyle.wording import batch_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest

_TARGET = "the target cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the preconditions check."""

    plan: OffsetRewritePlan
    manifest: Manifest
    """The savepoint to rewrite."""
    live: ClusterView
    """The target as it is now, with every target topic of the plan."""


class Precondition(Protocol):
    """Something that must hold."""

    def check(self, situation: Situation) -> None:
        """Raise a ``FlinkstyleError`` if it does not."""


@dataclass(frozen=True, slots=True)
class RequireSavepoint:
    """The plan was made for this savepoint, at these batches."""

    def check(self, situation: Situation) -> None:
        """Raise ``PLAN_MISMATCH``."""
        plan, manifest = situation.plan, situation.manifest
        if (plan.job, plan.savepoint_id) != (manifest.job, manifest.savepoint_id):
            raise PLAN_MISMATCH.error(
                what="savepoint",
                planned=f"{plan.savepoint_id} of job {plan.job}",
                found=f"{manifest.savepoint_id} of job {manifest.job}",
            )
        batches = {query.name: query.batch_id for query in manifest.queries}
        if plan.batches != batches:
            raise PLAN_MISMATCH.error(
                what="the savepoint at", planned=batch_words(plan.batches), found=batch_words(batches)
            )


@dataclass(frozen=True, slots=True)
class RequireClusterId:
    """The cluster that answers is the one the plan was made for."""

    cluster_id: str | None

    def check(self, situation: Situation) -> None:
        """Raise ``PLAN_MISMATCH``."""
        if ids_differ(self.cluster_id, situation.live.cluster_id):
            raise PLAN_MISMATCH.error(
                what="cluster", planned=self.cluster_id, found=situation.live.cluster_id
            )


@dataclass(frozen=True, slots=True)
class RequireTopicIds:
    """No target topic was deleted and created again since the plan."""

    def check(self, situation: Situation) -> None:
        """Raise ``TopicRecreatedError``."""
        for topic, planned in situation.plan.target.topics.items():
            live = situation.live.topics.get(topic)
            if live is not None and ids_differ(planned.topic_id, live.topic_id):
                raise TopicRecreatedError.between(
                    _TARGET, topic, expected=planned.topic_id, found=live.topic_id
                )


@dataclass(frozen=True, slots=True)
class RequirePartitions:
    """Each source has an offset for exactly the live partitions of its topics."""

    def check(self, situation: Situation) -> None:
        """Raise ``TopicMissingError`` or ``PartitionSetError``."""
        plan = situation.plan
        for ref in plan.sources:
            rows = [(move.target_topic, move.partition) for move in plan.moves if move.ref == ref]
            require_partitions(rows, situation.live, _TARGET)


@dataclass(frozen=True, slots=True)
class RequireWithinLog:
    """Each offset lies between the start and the end of its log, and no log lost its end since the plan."""

    def check(self, situation: Situation) -> None:
        """Raise ``OFFSET_BEFORE_START``, ``OFFSET_BEYOND_END`` or ``LOG_TRUNCATED``."""
        for ref in situation.plan.sources:
            for planned in (False, True):
                offsets = situation.plan.positions(ref, planned=planned)
                require_inside(offsets, situation.live, _TARGET)
        lost = drift_between(situation.plan.target, situation.live).truncated
        if lost:
            raise log_truncated(_TARGET, lost)


@dataclass(frozen=True, slots=True)
class RequireStillEmpty:
    """Where a drained source begins with the target's first record, no record came since the plan."""

    def check(self, situation: Situation) -> None:
        """Raise ``MOVES_REFUSED``."""
        plan, live = situation.plan, situation.live
        drained = {
            (strategy.query, strategy.source)
            for strategy in plan.strategies
            if strategy.strategy == "producers_first"
        }
        filled = [
            move
            for move in plan.moves
            if (move.query, move.source) in drained
            and isinstance(move.after, Exact)  # a picked position is Chosen
            and (log := live.log_range((move.target_topic, move.partition)))
            and log.end != move.after.offset
        ]
        if filled:
            raise moves_refused(
                f"{len(filled)} partitions of the target were expected to be empty still, but records came "
                "since the plan, perhaps from a mirror that still copies",
                filled,
                remedy="Stop the mirror of these topics and empty them; or, if all of it is new, pick "
                "'earliest' as start.",
            )


@dataclass(frozen=True, slots=True)
class RequireNoPlannedBatch:
    """No batch is planned and uncommitted, or both its ends stand exactly on the target."""

    def check(self, situation: Situation) -> None:
        """Raise ``PLANNED_BATCH``."""
        plan = situation.plan
        for query in situation.manifest.queries:
            if query.planned_offsets is None or query.name not in {ref.query for ref in plan.sources}:
                continue
            rows = [m for m in (*plan.moves, *plan.planned) if m.query == query.name]
            inexact = [m for m in rows if not isinstance(m.after, Exact)]
            known = {(m.source, m.topic, m.partition) for m in plan.planned if m.query == query.name}
            wanted = {(m.source, m.topic, m.partition) for m in plan.moves if m.query == query.name}
            if inexact or known != wanted:
                raise PLANNED_BATCH.with_text(
                    f"Query {query.name} planned batch {query.batch_id + 1} and did not commit it; "
                    f"{len(inexact) or len(wanted ^ known)} of its offsets have no exact place there.",
                    state_after=NOTHING_WRITTEN,
                    remedy="Start the job once on the old cluster so that the batch commits, stop it with a "
                    "savepoint (StopStreamingJobOperator), and rewrite that one.",
                )


@dataclass(frozen=True, slots=True)
class RequireNoRefusal:
    """Every partition has an offset."""

    def check(self, situation: Situation) -> None:
        """Raise ``MOVES_REFUSED``."""
        refused = situation.plan.refused
        if refused:
            raise moves_refused(
                f"{len(refused)} partitions have no safe offset on the target",
                refused,
                remedy="Remove the reasons (let MirrorMaker catch up, hold the producers) and plan again; "
                "or choose offsets for these partitions by hand and accept what that skips or repeats.",
            )


@dataclass(frozen=True, slots=True)
class RequireVerdictPolicy:
    """Every verdict is good enough."""

    policies: Policies = EXACT_ONLY

    def check(self, situation: Situation) -> None:
        """Raise ``MOVES_REFUSED``; refusals are ``RequireNoRefusal``'s."""
        denied = [
            move
            for move in situation.plan.moves
            if not isinstance(move.after, Refused) and self.policies.judge(move.after) is not None
        ]
        if denied:
            raise moves_refused(
                f"{len(denied)} offsets are less than what is allowed ({self.policies.describe()})",
                denied,
                remedy="Read what these offsets repeat or leave out; if that is acceptable, allow its class, "
                "or up to a number of records (for example duplicate<=100).",
            )


@dataclass(frozen=True, slots=True)
class RequireSettled:
    """The plan is more than a preview."""

    def check(self, situation: Situation) -> None:
        """Raise ``PREVIEW_ONLY``."""
        if not situation.plan.settled:
            raise PREVIEW_ONLY.with_text(
                f"The plan for savepoint {situation.plan.savepoint_id} should rest on logs nobody writes to, "
                "but is a preview made while producers were at work.",
                state_after=NOTHING_WRITTEN,
                remedy="Hold the producers, wait until MirrorMaker has caught up, and plan again.",
            )


def default_preconditions(
    plan: OffsetRewritePlan, policies: Policies = EXACT_ONLY
) -> tuple[Precondition, ...]:
    """Return everything that must hold before a plan is applied."""
    return (
        RequireSavepoint(),
        RequireClusterId(plan.target_cluster_id),
        RequireTopicIds(),
        RequirePartitions(),
        RequireWithinLog(),
        RequireStillEmpty(),
        RequireSettled(),
        RequireNoRefusal(),
        RequireVerdictPolicy(policies),
        RequireNoPlannedBatch(),
    )


def check_all(preconditions: Sequence[Precondition], situation: Situation) -> None:
    """Check every precondition, then report all that failed.

    Raises:
        FlinkstyleError: The failure itself if it is the only one, else ``REWRITE_REFUSED`` with all.
    """
    failures: list[FlinkstyleError] = []
    for precondition in preconditions:
        try:
            precondition.check(situation)
        except FlinkstyleError as error:
            failures.append(error)
    if failures:
        raise rewrite_refused(situation.plan.savepoint_id, failures)
