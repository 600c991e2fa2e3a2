"""Apply a plan: a new savepoint whose parent is the old one. The old one is never touched."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.kafka.log_drift import drift_between
from airflow_flinkstyle.kafka.policies import EXACT_ONLY, Policies
from airflow_flinkstyle.rewrite.errors import PLAN_MISMATCH
from airflow_flinkstyle.rewrite.plan_json import to_json
from airflow_flinkstyle.rewrite.position import position_on
from airflow_flinkstyle.rewrite.preconditions import Situation, check_all, default_preconditions
from airflow_flinkstyle.savepoint.files.derive import changed_file, publish_derived
from airflow_flinkstyle.savepoint.ids import new_savepoint_id

if TYPE_CHECKING:
    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)


def rewritten_id(plan: OffsetRewritePlan) -> str:
    """Return the id of the savepoint that the plan makes; the same plan gives the same id."""
    return new_savepoint_id(plan.job, "rewrite " + hashlib.sha256(to_json(plan).encode()).hexdigest())


def apply_plan(
    plan: OffsetRewritePlan,
    manifest: Manifest,
    repository: SavepointRepository,
    *,
    live: ClusterView,
    allow: Policies = EXACT_ONLY,
) -> Manifest:
    """Write the rewritten savepoint and return its manifest; doing it again changes nothing.

    Only ``offsets/K`` differs in content: in it only the offsets of the sources that move.
    Watermark, pinned confs, commit log and state stay, and so does ``offsets/K-1``, which Spark
    only requires to be there.

    Args:
        plan: What to change.
        manifest: The savepoint it was made for.
        repository: Holds the savepoint, gets the new one.
        live: The target cluster as it is now, with every target topic of the plan.
        allow: Which verdicts are good enough.

    Raises:
        FlinkstyleError: If a precondition does not hold; all are checked before the first write.
    """
    check_all(default_preconditions(plan, allow), Situation(plan=plan, manifest=manifest, live=live))
    log.info("Applying to %s: %s", live.cluster_id, drift_between(plan.target, live).describe())
    moved = {ref.query for ref in plan.sources}
    edits = {q.name: _edited_log(plan, q, repository) for q in manifest.queries if q.name in moved}

    def change(query: QuerySnapshot) -> QuerySnapshot:
        return _moved_query(plan, query, edits[query.name], repository) if query.name in edits else query

    result = publish_derived(manifest, repository, rewritten_id(plan), change, evidence=plan.evidence)
    log.info("Savepoint %s is %s moved to %s", result.savepoint_id, result.parent, plan.target_cluster_id)
    return result


def _offsets_path(query: QuerySnapshot) -> str:
    return f"offsets/{query.batch_id}"


def _edited_log(plan: OffsetRewritePlan, query: QuerySnapshot, repository: SavepointRepository) -> OffsetLog:
    """Return the query's offset log with the sources moved; nothing is written yet."""
    entry = query.file(_offsets_path(query))
    if entry is None:
        raise PLAN_MISMATCH.error(what="file", planned=_offsets_path(query), found="no such file")
    parsed = offset_log.parse(repository.read_file(entry).decode())
    for source, position in query.kafka.items():
        if parsed.kafka_offsets(source) != position.offsets:
            raise PLAN_MISMATCH.error(
                what=f"offsets of source {source} in {entry.path}",
                planned=str(position.offsets.by_topic),
                found=str(parsed.kafka_offsets(source).by_topic),
            )
    return _with_moves(plan, query, parsed, planned=False)


def _with_moves(
    plan: OffsetRewritePlan, query: QuerySnapshot, parsed: OffsetLog, *, planned: bool
) -> OffsetLog:
    for ref in plan.sources:
        if ref.query == query.name and str(ref) not in plan.unread:  # Spark writes "-" or "{}" for none
            parsed = parsed.with_kafka_offsets(ref.source, plan.positions(ref, planned=planned))
    return parsed


def _moved_query(
    plan: OffsetRewritePlan, query: QuerySnapshot, edited: OffsetLog, repository: SavepointRepository
) -> QuerySnapshot:
    entry = changed_file(repository, _offsets_path(query), edited.render().encode())
    planned = query.planned_offsets
    if planned is not None:
        planned = _with_moves(plan, query, offset_log.parse(planned), planned=True).render()
    refs = [ref for ref in plan.sources if ref.query == query.name]
    moved = {ref.source: position_on(plan.target, plan.positions(ref)) for ref in refs}
    return replace(
        query,
        planned_offsets=planned,
        kafka={**query.kafka, **moved},
        files=tuple(entry if file.path == entry.path else file for file in query.files),
    )
