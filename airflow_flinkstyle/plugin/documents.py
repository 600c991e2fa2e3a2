"""What the page shows of a job, as plain values for JSON. Pure.

Names and errors are texts: the page puts them into text nodes, never into markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.status import (
    Closed,
    Dead,
    Failed,
    JobStatus,
    NeverStarted,
    Running,
    Starting,
    describe_status,
)
from airflow_flinkstyle.protocol.history import is_idle
from airflow_flinkstyle.typed_json import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.jobs.journal import PhaseRecord
    from airflow_flinkstyle.protocol.records import Heartbeat, IncarnationRecord, QueryStatus
    from airflow_flinkstyle.savepoint.files.verified import DamagedRecord, VerifiedRecord
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.summary import Summary

_STATES = {
    NeverStarted: "never started",
    Starting: "starting",
    Running: "running",
    Closed: "closed",
    Failed: "failed",
    Dead: "dead",
}


def status_document(status: JobStatus, process: IncarnationRecord | None) -> dict[str, Any]:
    """Return what a job is doing, since when, and where."""
    document: dict[str, Any] = {"state": _STATES[type(status)], "reason": describe_status(status)}
    if isinstance(status, NeverStarted):
        return {**document, "queries": []}
    run, heartbeat = status.run, status.run.heartbeat
    return {
        **document,
        "is_certain": run.is_certain,
        "generation": run.generation,
        "incarnation": run.incarnation,
        "started_by": run.claim.claim_key,
        "host": process.host if process is not None else None,
        "since_ms": _since_ms(status, process),
        "heartbeat_at_ms": heartbeat.written_at_ms if heartbeat is not None else None,
        "spark_version": heartbeat.spark_version if heartbeat is not None else None,
        "application_id": heartbeat.application_id if heartbeat is not None else None,
        "queries": queries_document(heartbeat) if heartbeat is not None else [],
        **totals_document(heartbeat),
    }


def _since_ms(status: JobStatus, process: IncarnationRecord | None) -> int | None:
    if isinstance(status, NeverStarted):
        return None
    heartbeat = status.run.heartbeat
    if isinstance(status, Closed | Failed | Dead) and heartbeat is not None:
        return heartbeat.written_at_ms
    return process.started_at_ms if process is not None else status.run.claim.claimed_at_ms


def queries_document(heartbeat: Heartbeat) -> list[dict[str, Any]]:
    """Return the queries of a heartbeat, by name."""
    return [_query(name, query) for name, query in sorted(heartbeat.queries.items())]


def _query(name: str, query: QueryStatus) -> dict[str, Any]:
    return {
        "name": name,
        "batch_id": query.batch_id,
        "committed_at_ms": query.batch_committed_at_ms,
        "sink": query.sink,
        "waiting": query.waiting,
        "failed": query.failed,
        "clusters": sorted({source.cluster_id for source in query.sources.values()}),
        "pace": encode(query.pace) if query.pace is not None else None,
    }


def totals_document(heartbeat: Heartbeat | None) -> dict[str, Any]:
    """Return the rates of all queries together; of one without input for a minute they are 0."""
    queries = list(heartbeat.queries.values()) if heartbeat is not None else []
    known = [query.pace for query in queries if query.pace is not None]
    at_ms = heartbeat.written_at_ms if heartbeat is not None else 0
    busy = [pace for pace in known if not is_idle(pace, now_ms=at_ms)]
    lags = [pace.lag_records for pace in known if pace.lag_records is not None]
    commits = [query.batch_committed_at_ms for query in queries if query.batch_committed_at_ms is not None]
    return {
        "input_rows_per_s": sum(pace.input_rows_per_s or 0 for pace in busy) if known else None,
        "processed_rows_per_s": sum(pace.processed_rows_per_s or 0 for pace in busy) if known else None,
        "batch_ms": max((pace.batch_ms for pace in known), default=None),
        "lag_records": sum(lags) if lags else None,
        "last_batch_at_ms": max(commits, default=None),
    }


def savepoint_document(
    one: Summary, passed: VerifiedRecord | None, failed: DamagedRecord | None, pinned: str | None = None
) -> dict[str, Any]:
    """Return what a list shows of a savepoint."""
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
        "verified": encode(passed) if passed is not None and failed is None else None,
        "damaged": failed.found if failed is not None else None,
        "pinned": pinned,
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


def journal_document(migration_id: str, phases: Sequence[PhaseRecord], *, ended: bool) -> dict[str, Any]:
    """Return how far a migration or an upgrade is."""
    in_order = sorted(phases, key=lambda phase: phase.intent_at_ms)
    newest = in_order[-1]
    return {
        "id": migration_id,
        "phase": newest.phase,
        "is_done": newest.result is not None,
        "ended": ended,
        "begun_at_ms": in_order[0].intent_at_ms,
        "newest_at_ms": newest.result_at_ms or newest.intent_at_ms,
        "phases": [
            {"phase": one.phase, "begun_at_ms": one.intent_at_ms, "done_at_ms": one.result_at_ms}
            for one in in_order
        ],
    }


def error_document(error: FlinkstyleError) -> dict[str, Any]:
    """Return an error as three sentences."""
    return {
        "code": error.code,
        "problem": error.problem,
        "state_after": error.state_after,
        "remedy": error.remedy,
    }
