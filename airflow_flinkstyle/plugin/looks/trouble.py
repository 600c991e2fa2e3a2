"""What went wrong with a job, for its timeline. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST = 100


def troubles(
    status: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    journals: Sequence[Mapping[str, Any]],
    damaged_at_ms: Mapping[str, int],
) -> list[dict[str, Any]]:
    """Return failures, dead and restarted drivers, cutovers that went back and damage, the newest first.

    Args:
        status: As ``answers.Status``.
        runs: As ``answers.Run``.
        journals: As ``answers.Journal``.
        damaged_at_ms: Savepoint id -> when a check found it damaged.
    """
    found = [
        *_of_status(status),
        *(trouble for run in runs for trouble in _of_run(run)),
        *(_went_back(journal) for journal in journals if journal["went_back"]),
        *(
            _trouble(at_ms, None, "damaged", f"savepoint {savepoint_id} did not pass a check")
            for savepoint_id, at_ms in damaged_at_ms.items()
        ),
    ]
    return sorted(found, key=lambda one: -int(one["at_ms"]))[:MOST]


def _of_status(status: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if status["state"] == "dead" and status["since_ms"] is not None:
        yield _trouble(status["since_ms"], status["generation"], "dead", status["reason"])


def _of_run(run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    generation = run["generation"]
    if run["state"] == "failed" and run["heartbeat_at_ms"] is not None:
        yield _trouble(run["heartbeat_at_ms"], generation, "failed", ": ".join(run["error"] or ()))
    for at_ms in run["restarted_at_ms"]:
        yield _trouble(at_ms, generation, "restarted", "its driver had ended, another one was started")


def _went_back(journal: Mapping[str, Any]) -> dict[str, Any]:
    why = f"{journal['id']}: {journal['failure'] or 'it went back'}"
    return _trouble(journal["newest_at_ms"], None, "went back", why)


def _trouble(at_ms: int, generation: int | None, kind: str, text: str) -> dict[str, Any]:
    return {"at_ms": at_ms, "generation": generation, "kind": kind, "text": text}
