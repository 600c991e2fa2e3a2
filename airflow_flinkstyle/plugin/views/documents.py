"""What the page shows of a job's runs, as plain values for JSON (``answers`` has the types). Pure.

Names and errors are texts: the page puts them into text nodes, never into markup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.journal import APPROVED, DECIDED
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
from airflow_flinkstyle.jobs.view import LOG_FOLLOWS
from airflow_flinkstyle.links.address import web_address
from airflow_flinkstyle.protocol.history import totals
from airflow_flinkstyle.typed_json import encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.jobs.journal import PhaseRecord
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import Claim, Heartbeat, IncarnationRecord

_STATES = {
    NeverStarted: "never started",
    Starting: "starting",
    Running: "running",
    Closed: "closed",
    Failed: "failed",
    Dead: "dead",
}
_ASKED_BY = ("dag_id", "run_id", "task_id")
_FAILURE_SHOWN = 20_000
_SHOWN_AS = {APPROVED: "planned", DECIDED: "answered"}
"""Shown names of phases before the first: a person may not have seen yet what is stored as approved."""
_WAITS = "waits for approval"
_UNKNOWN: dict[str, Any] = {
    "is_certain": None,
    "generation": None,
    "incarnation": None,
    "started_by": None,
    "asked_by": None,
    "host": None,
    "since_ms": None,
    "heartbeat_at_ms": None,
    "spark_version": None,
    "application_id": None,
    "spark_ui": None,
    "queries": [],
    "error": None,
}


def status_document(status: JobStatus, process: IncarnationRecord | None) -> dict[str, Any]:
    """Return what a job is doing, since when, and where."""
    document = {"state": _STATES[type(status)], "reason": describe_status(status), **_UNKNOWN}
    if isinstance(status, NeverStarted):
        return {**document, **totals_document(None)}
    run, heartbeat = status.run, status.run.heartbeat
    lives = isinstance(status, Running | Starting)
    return {
        **document,
        "is_certain": run.is_certain,
        "generation": run.generation,
        "incarnation": run.incarnation,
        "started_by": run.claim.claim_key,
        "asked_by": asked_by(run.claim),
        "host": process.host if process is not None else None,
        "since_ms": _since_ms(status, process),
        "heartbeat_at_ms": heartbeat.written_at_ms if heartbeat is not None else None,
        "spark_version": heartbeat.spark_version if heartbeat is not None else None,
        "application_id": heartbeat.application_id if heartbeat is not None else None,
        "spark_ui": web_address(heartbeat.ui_url) if heartbeat is not None and lives else None,
        "queries": queries_document(heartbeat) if heartbeat is not None else [],
        **totals_document(heartbeat, lives=lives),
    }


def unreadable_document(error: FlinkstyleError) -> dict[str, Any]:
    """Return the status of a job whose records cannot be read."""
    return {
        "state": "unknown",
        "reason": error.problem,
        **_UNKNOWN,
        **totals_document(None),
        "error": error_document(error),
    }


def _since_ms(status: JobStatus, process: IncarnationRecord | None) -> int | None:
    if isinstance(status, NeverStarted):
        return None
    heartbeat = status.run.heartbeat
    if isinstance(status, Closed | Failed | Dead) and heartbeat is not None:
        return heartbeat.written_at_ms
    return process.started_at_ms if process is not None else status.run.claim.claimed_at_ms


def asked_by(claim: Claim) -> dict[str, str] | None:
    """Return the task of Airflow that asked for a start; None if none did, or none is recorded."""
    task = {name: claim.asked_by.get(name, "") for name in _ASKED_BY}
    return task if all(task.values()) else None


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
        "clusters": sorted({source.cluster_id or "not told" for source in query.sources.values()}),
        "notes": query.notes(),
        "pace": encode(query.pace) if query.pace is not None else None,
    }


def totals_document(heartbeat: Heartbeat | None, *, lives: bool = False) -> dict[str, Any]:
    """Return what all queries do together, by the rule of the plots: idle ones have rates of 0."""
    queries = list(heartbeat.queries.values()) if heartbeat is not None else []
    at_ms = heartbeat.written_at_ms if heartbeat is not None else 0
    found = totals((query.pace for query in queries), now_ms=at_ms, runs=lives)
    commits = [query.batch_committed_at_ms for query in queries if query.batch_committed_at_ms is not None]
    names = ("input_rows_per_s", "processed_rows_per_s", "batch_ms", "lag_records")
    return {
        **{name: getattr(found, name, None) for name in names},
        "last_batch_at_ms": max(commits, default=None),
    }


def journal_document(
    migration_id: str,
    phases: Sequence[PhaseRecord],
    *,
    ended: bool,
    asked_by: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return how far a migration or an upgrade is, and whether it went back."""
    in_order = sorted(phases, key=lambda phase: phase.intent_at_ms)
    newest = in_order[-1]
    phase_documents = [_phase(one) for one in in_order]
    went_back = any(one.phase == "rollback" for one in in_order)
    return {
        "id": migration_id,
        "phase": _WAITS if newest.phase == APPROVED else _SHOWN_AS.get(newest.phase, newest.phase),
        "is_done": newest.result is not None,
        "ended": ended,
        "went_back": went_back,
        "failure": next((one["failure"] for one in reversed(phase_documents) if one["failure"]), None),
        "compared": next(filter(None, map(_compared, in_order)), None),
        "asked_by": asked_by,
        "begun_at_ms": in_order[0].intent_at_ms,
        "newest_at_ms": newest.result_at_ms or newest.intent_at_ms,
        "phases": phase_documents,
    }


def _compared(one: PhaseRecord) -> str | None:
    found = one.intent.get("comparison")
    return str(found.get("summary"))[:_FAILURE_SHOWN] if isinstance(found, dict) else None


def _phase(one: PhaseRecord) -> dict[str, Any]:
    told = (one.result or {}).get("failure") or one.intent.get("failure")
    # The log itself, which may hold records, is for users who may read logs.
    failure = str(told).partition(LOG_FOLLOWS)[0] if told else None
    return {
        "phase": _SHOWN_AS.get(one.phase, one.phase),
        "begun_at_ms": one.intent_at_ms,
        "done_at_ms": one.intent_at_ms if one.phase == APPROVED else one.result_at_ms,
        "failure": failure[:_FAILURE_SHOWN] if failure else None,
    }


def error_document(error: FlinkstyleError) -> dict[str, Any]:
    """Return an error as three sentences."""
    return {
        "code": error.code,
        "problem": error.problem,
        "state_after": error.state_after,
        "remedy": error.remedy,
    }
