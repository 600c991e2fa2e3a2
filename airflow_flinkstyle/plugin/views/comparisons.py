"""What the page shows of two versions that were compared, as plain values for JSON. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.protocol.comparison_records import LEAVES_OPEN
from airflow_flinkstyle.typed_json import encode

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.comparison_records import ComparedQuery, Comparison


def comparison_document(found: Comparison, *, rows: bool) -> dict[str, Any]:
    """Return what was found; ``rows``: with the rows and keys that differ, which are the job's data."""
    return {
        "verdict": found.verdict,
        "summary": found.summary(),
        "savepoint_id": found.savepoint_id,
        "old": found.old,
        "new": found.new,
        "again": found.again,
        "asks_again": found.asks_for_another_run,
        "ended_at_ms": found.ended_at_ms,
        "leaves_open": LEAVES_OPEN,
        "queries": [
            {
                "name": name,
                "verdict": one.verdict,
                "notes": list(one.notes()),
                "found": encode(one if rows else _without_rows(one)),
            }
            for name, one in sorted(found.queries.items())
        ],
    }


def _without_rows(one: ComparedQuery) -> ComparedQuery:
    states = tuple(replace(state, samples=()) for state in one.states)
    return replace(one, samples=(), states=states)
