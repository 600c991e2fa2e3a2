"""What the page shows of savepoints, as plain values for JSON (``answers`` has the types). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.start.dry import NotJudged, Passes, Refuses
from airflow_flinkstyle.python_versions import assert_never

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_flinkstyle.jobs.start.dry import DryStart, StartCheck
    from airflow_flinkstyle.savepoint.files.verified import DamagedRecord, VerifiedRecord
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.summary import Summary


def savepoint_document(
    one: Summary,
    passed: VerifiedRecord | None,
    failed: DamagedRecord | None,
    pinned: str | None = None,
    in_use: str | None = None,
    new_bytes: int | None = None,
    beside: str | None = None,
) -> dict[str, Any]:
    """Return what a list shows of a savepoint."""
    is_good = passed is not None and failed is None
    return {
        "savepoint_id": one.savepoint_id,
        "taken_at_ms": one.taken_at_ms,
        "generation": one.taken_from_generation,
        "spark_version": one.spark_version,
        "alignment": one.alignment,
        "cut_id": one.cut_id,
        "parent": one.parent,
        "batches": dict(one.batches),
        "files": one.files,
        "size_bytes": one.size_bytes,
        "new_bytes": new_bytes,
        "verified": {"level": passed.level, "at_ms": passed.at_ms} if passed and is_good else None,
        "damaged": failed.found if failed is not None else None,
        "pinned": pinned,
        "in_use": in_use,
        "beside": beside,
    }


def manifest_document(manifest: Manifest) -> dict[str, Any]:
    """Return what is in a savepoint, without the names of its files."""
    return {
        "savepoint_id": manifest.savepoint_id,
        "evidence": dict(manifest.evidence),
        "queries": [
            {
                "name": query.name,
                "query_id": query.query_id,
                "batch_id": query.batch_id,
                "sink": query.sink,
                "checkpoint_location": query.checkpoint_location,
                "has_planned_batch": query.planned_offsets is not None,
                "files": len(query.files),
                "size_bytes": sum(entry.size_bytes for entry in query.files),
                "settings": dict(query.pinned_confs),
                "positions": positions_document(query.kafka),
            }
            for query in manifest.queries
        ],
    }


def positions_document(sources: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per partition of Kafka; ``unread`` counts to the log's end at the savepoint's time."""
    rows = []
    for source, position in sources.items():
        for (topic, partition), offset in position.offsets.items():
            first, end = position.log_range.get(topic, {}).get(partition, (None, None))
            rows.append(
                {
                    "source": source,
                    "cluster": position.cluster_id,
                    "topic": topic,
                    "partition": partition,
                    "next_offset": offset,
                    "earliest": first,
                    "unread": None if end is None else max(0, end - offset),
                }
            )
    return rows


def dry_start_document(
    manifest: Manifest, found: DryStart, more: Iterable[StartCheck], *, read_at_ms: int
) -> dict[str, Any]:
    """Return what a start from a savepoint would meet; ``more`` are checks of its files and positions."""
    return {
        "savepoint_id": manifest.savepoint_id,
        "read_at_ms": read_at_ms,
        "since": dict(found.since),
        "restores_files": sum(len(query.files) for query in manifest.queries),
        "restores_bytes": manifest.total_bytes,
        "checks": [_check(check) for check in (*found.checks, *more)],
        "ways": {rewind: [_check(check) for check in checks] for rewind, checks in found.ways.items()},
        "kafka_connections": list(found.kafka_connections),
    }


def _check(check: StartCheck) -> dict[str, Any]:
    blank = {"about": check.about, "code": None, "remedy": None}
    match check.verdict:
        case Passes(reason):
            return {**blank, "verdict": "passes", "says": reason}
        case NotJudged(why):
            return {**blank, "verdict": "not judged", "says": why}
        case Refuses(code=code, problem=problem, remedy=remedy):
            return {**blank, "verdict": "refused", "says": problem, "code": code, "remedy": remedy}
        case _:
            assert_never(check.verdict)
