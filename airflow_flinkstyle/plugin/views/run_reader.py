"""The runs of one job as the page lists them; one that has ended is read once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.stopped.offline_lock import is_lock
from airflow_flinkstyle.plugin.views.comparisons import comparison_document
from airflow_flinkstyle.plugin.views.documents import asked_by
from airflow_flinkstyle.protocol.line import Abandoned, batches_run
from airflow_flinkstyle.types import Incarnation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.line import Line
    from airflow_flinkstyle.protocol.records import Claim, Heartbeat
    from airflow_flinkstyle.types import Generation

NEWEST_RUNS = 20
MOST_RESTARTS = 5
"""Of so many drivers of a run it is shown when they began: the newest."""


class RunReader:
    """Reads the runs of one job."""

    def __init__(self, board: JobBoard) -> None:
        self._board = board
        self._ended: dict[int, dict[str, Any]] = {}
        self._claims: dict[int, Claim] = {}
        self._batches_run: dict[int, int] = {}
        """Of generations that a driver ran: a caller that held the job has no takeover order."""
        self._began_at_ms: dict[tuple[Generation, int], int | None] = {}

    def newest(self, line: Line | None) -> list[dict[str, Any]]:
        """Return the newest runs, the newest first; ``line`` is that of the job's head.

        Raises:
            StoreError: If the store cannot be read.
        """
        generations = self._board.generations()[-NEWEST_RUNS:]
        asked_for = (generation for generation in reversed(generations) if not self._is_lock(generation))
        runs = (self._run(generation) for generation in asked_for)
        return [{**run, "beside": self._beside(run, line)} for run in runs]

    def _is_lock(self, generation: Generation) -> bool:
        """Return whether a caller saved the stopped job under it: no driver was asked for."""
        try:
            claim = self._claim(generation)
        except FlinkstyleError as error:
            if error.retryable:
                raise
            return False
        return claim is not None and is_lock(claim.claim_key)

    def _run(self, generation: Generation) -> dict[str, Any]:
        if generation in self._ended:
            return self._ended[generation]
        try:
            run, heartbeat = self._read(generation)
        except FlinkstyleError as error:
            if error.retryable:
                raise
            return {**_BLANK, "generation": generation, "state": "unreadable", "error": _error_texts(error)}
        if heartbeat is not None and heartbeat.state == "closed":  # a failed one may be started again
            self._ended[generation] = run
        return run

    def _read(self, generation: Generation) -> tuple[dict[str, Any], Heartbeat | None]:
        claim, order = self._claim(generation), self._board.takeover_order(generation)
        slot = self._board.heartbeat(generation)
        heartbeat = slot.value if slot is not None else None
        run = {**_BLANK, "generation": generation}
        if claim is not None:
            run |= {
                "started_by": claim.claim_key,
                "asked_by": asked_by(claim),
                "claimed_at_ms": claim.claimed_at_ms,
            }
            if claim.is_drill and (found := self._board.comparison(generation)) is not None:
                run["comparison"] = comparison_document(found, rows=False)
        if order is not None:
            run |= {"from_savepoint": order.savepoint_id, "adopts_checkpoint_of": order.adopts}
        if heartbeat is not None:
            run |= {
                "state": heartbeat.state,
                "heartbeat_at_ms": heartbeat.written_at_ms,
                "restarted_at_ms": self._restarts(generation, heartbeat.incarnation),
                "savepoint_id": heartbeat.savepoint_id,
                "error": list(heartbeat.error) if heartbeat.error else None,
                "batches": heartbeat.batches(),
            }
            if order is not None:
                self._batches_run[generation] = batches_run(heartbeat.batches().values())
        return run, heartbeat

    def _claim(self, generation: Generation) -> Claim | None:
        """Return a claim: written once, so it is read once."""
        if generation not in self._claims:
            claim = self._board.claim(generation)
            if claim is None:
                return None
            self._claims[generation] = claim
        return self._claims[generation]

    def _beside(self, run: Mapping[str, Any], line: Line | None) -> str | None:
        """Return which start abandoned what a driver did last; None if none did."""
        run_by_then = self._batches_run.get(run["generation"], 0)
        where = line.where(run["generation"], run_by_then) if line is not None and run_by_then else None
        return str(where) if isinstance(where, Abandoned) else None

    def _restarts(self, generation: Generation, newest: int) -> list[int]:
        """Return when drivers after the first began: one before them had ended without closing."""
        numbers = range(max(2, newest - MOST_RESTARTS + 1), newest + 1)
        return [at_ms for number in numbers if (at_ms := self._began(generation, number)) is not None]

    def _began(self, generation: Generation, number: int) -> int | None:
        key = (generation, number)
        if key not in self._began_at_ms:  # written once
            record = self._board.incarnation(generation, Incarnation(number))
            self._began_at_ms[key] = record.started_at_ms if record is not None else None
        return self._began_at_ms[key]


_BLANK: dict[str, Any] = {
    "started_by": None,
    "asked_by": None,
    "claimed_at_ms": None,
    "from_savepoint": None,
    "adopts_checkpoint_of": None,
    "beside": None,
    "state": "no heartbeat",
    "heartbeat_at_ms": None,
    "restarted_at_ms": [],
    "savepoint_id": None,
    "error": None,
    "batches": {},
    "comparison": None,
}


def _error_texts(error: FlinkstyleError) -> list[str]:
    return [error.code, f"{error.problem} {error.remedy}"]
