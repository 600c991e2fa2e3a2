"""One job as the page sees it in its store: what changes often is read often, the rest seldom.

Also what went wrong with it, for its timeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.journal import has_ended, read_phases
from airflow_flinkstyle.jobs.retention import savepoints_in_use
from airflow_flinkstyle.jobs.status import Closed, NeverStarted
from airflow_flinkstyle.jobs.stopped.last_run import driver_of, without_saving
from airflow_flinkstyle.jobs.stopped.offline_lock import is_lock
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.plugin.views.documents import (
    journal_document,
    status_document,
    unreadable_document,
)
from airflow_flinkstyle.plugin.views.lineage import lineage
from airflow_flinkstyle.plugin.views.run_reader import RunReader
from airflow_flinkstyle.plugin.views.savepoint_reader import SavepointReader
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.head import read_line
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.jobs.journal import PhaseRecord
    from airflow_flinkstyle.jobs.status import JobStatus, Sightings
    from airflow_flinkstyle.protocol.line import Line
    from airflow_flinkstyle.protocol.records import IncarnationRecord
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import Generation, Incarnation

SELDOM_S = 60.0
"""How old what is read of savepoints and migrations may be in the table of jobs."""
NEWEST_SAVEPOINTS = 200
NEWEST_JOURNALS = 20
_NOT_READ: dict[str, Any] = {"newest_savepoint": None, "savepoints": None, "open": []}
LIVING = ("running", "draining", "standby")
"""States that a driver records while it lives; a killed one's record stays in its last."""


class JobReader:
    """Reads one job; remembers what cannot have changed. Threads that read at once may read twice."""

    def __init__(self, store: ObjectStore, job: str, sightings: Sightings) -> None:
        self.job = job
        self.board, self.repository = JobBoard(store, job), SavepointRepository(store, job)
        self.savepoints, self.runs = SavepointReader(self.repository), RunReader(self.board)
        self._view = JobView(
            board=self.board, repository=self.repository, deployment=DetachedDeployment(), sightings=sightings
        )
        self._process: tuple[tuple[Generation, Incarnation], IncarnationRecord | None] | None = None
        self._saved: tuple[Generation, dict[str, Any]] | None = None
        self._seldom: dict[str, Any] = _NOT_READ
        self._seldom_at_s = float("-inf")

    @property
    def seldom_at_s(self) -> float:
        """When savepoints and migrations were read last."""
        return self._seldom_at_s

    def row(self, now_s: float, *, seldom_too: bool = True) -> dict[str, Any]:
        """Return the job's row in the table: 4 to 8 requests, and 7 more once a minute.

        An error of the store, or of what is in it, is part of the row: one job does not hide the others.

        Args:
            now_s: When the reading began.
            seldom_too: Whether savepoints and migrations are read again if they are old.
        """
        try:
            if seldom_too and now_s - self._seldom_at_s >= SELDOM_S:
                self._seldom, self._seldom_at_s = self._read_seldom(), now_s
            return {"job": self.job, **self._status(), **self._seldom}
        except FlinkstyleError as error:
            return {"job": self.job, **unreadable_document(error), **_NOT_READ}

    def detail(self) -> dict[str, Any]:
        """Return everything that the job's own view shows.

        Records that cannot be read are an error in their place: the rest is shown.

        Raises:
            StoreError: If the store cannot be read.
        """
        savepoints, status = self.listed(), self._readable_status()
        runs = [self._judged(run, status) for run in self.runs.newest(self._line())]
        journals = self._journals(runs)[:NEWEST_JOURNALS]
        return {
            "job": self.job,
            "read_at_ms": now_ms(),
            **status,
            "savepoints": savepoints[:NEWEST_SAVEPOINTS],
            "savepoints_total": len(savepoints),
            "damaged": self.savepoints.unreadable(),
            "runs": runs,
            "journals": journals,
            "trouble": troubles(status, runs, journals, self.savepoints.damaged_at_ms()),
            "lineage": lineage(runs, savepoints),
            "history": self._history(),
        }

    def listed(self) -> list[dict[str, Any]]:
        """Return all savepoints, the newest first."""
        return self.savepoints.listed(self._in_use())

    # --- parts --------------------------------------------------------------------------------

    def _readable_status(self) -> dict[str, Any]:
        try:
            return self._status()
        except FlinkstyleError as error:
            if error.retryable:  # the store is away: there is nothing to show
                raise
            return unreadable_document(error)

    def _judged(self, run: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        """Return a run in the header's state, or in its own: a killed driver's record stays "running"."""
        if run["generation"] == status["generation"]:
            return {**run, "state": status["state"]}
        if run["state"] not in LIVING:
            return run
        if run["generation"] < (status["generation"] or 0):  # a later one has the job, or is about to
            return run if status["state"] == "starting" else {**run, "state": "dead"}
        lives = self._view.run(run["generation"]).holds_the_job  # a driver that waits to take over
        return run if lives else {**run, "state": "dead"}

    def _status(self) -> dict[str, Any]:
        status = self._view.status()
        if not isinstance(status, Closed) or not is_lock(status.run.claim.claim_key):
            return status_document(status, self._process_of(status))
        if self._saved is None or self._saved[0] != status.run.generation:
            # A caller has saved the stopped job: what it was is its driver's run, and changes no more.
            shown = without_saving(self._view, status)
            if isinstance(shown, Closed):
                driver = self._view.run(driver_of(self._view, status.run))
                shown = Closed(driver, status.heartbeat)
            self._saved = (status.run.generation, status_document(shown, self._process_of(shown)))
        return self._saved[1]

    def _process_of(self, status: JobStatus) -> IncarnationRecord | None:
        """Return the record of the driver's process: written once, so it is read once."""
        if isinstance(status, NeverStarted) or status.run.incarnation is None:
            return None
        heartbeat = status.run.heartbeat
        if heartbeat is not None and heartbeat.incarnation == status.run.incarnation:
            return status.run.process
        of = (status.run.generation, status.run.incarnation)
        if self._process is None or self._process[0] != of:
            self._process = (of, self.board.incarnation(*of))
        return self._process[1]

    def _read_seldom(self) -> dict[str, Any]:
        savepoints = self.savepoints.listed(more=0)
        return {
            "newest_savepoint": next((one for one in savepoints if one["beside"] is None), None),
            "savepoints": len(savepoints),
            "open": [one for one in self._journals(()) if not one["ended"]],
        }

    def _line(self) -> Line | None:
        try:
            return read_line(self.board)
        except FlinkstyleError as error:
            if error.retryable:
                raise
            return None  # contradicting records are an error in their own place

    def _in_use(self) -> dict[str, str]:
        try:
            return savepoints_in_use(self.board, self.repository, journals=self._phases())
        except FlinkstyleError as error:
            if error.retryable:
                raise
            return {}  # a run that cannot be read is an error in its own place

    def _phases(self) -> dict[str, list[PhaseRecord]]:
        found: dict[str, list[PhaseRecord]] = self.savepoints.folders.remembered(
            "migrations", lambda: read_phases(self.board.store, self.job)
        )
        return found

    def _journals(self, runs: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - documents
        """Return migrations and upgrades, the newest first, with who asked if they started a run."""
        asked = {str(run["started_by"]).partition("/")[0]: run["asked_by"] for run in runs}
        found = [
            journal_document(name, phases, ended=has_ended(phases), asked_by=asked.get(name))
            for name, phases in self._phases().items()
            if phases
        ]
        return sorted(found, key=lambda one: -int(one["begun_at_ms"]))

    def _history(self) -> dict[str, list[dict[str, Any]]]:
        """Return the points of the plots, by the seconds that one stands for."""
        try:
            slot = self.board.history()
        except FlinkstyleError:  # plots are empty; the agent begins a new one
            return {}
        return slot.value.answer() if slot is not None else {}


_MOST_TROUBLES = 100


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
    return sorted(found, key=lambda one: -int(one["at_ms"]))[:_MOST_TROUBLES]


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
