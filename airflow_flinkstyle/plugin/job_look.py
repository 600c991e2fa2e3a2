"""One job as the page sees it in its store: what changes often is read often, the rest seldom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.journal import has_ended, read_phases
from airflow_flinkstyle.jobs.status import NeverStarted
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.plugin.documents import (
    error_document,
    journal_document,
    savepoint_document,
    status_document,
    totals_document,
)
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.blobs.pins import pins
from airflow_flinkstyle.savepoint.files.verified import damaged_records, verified_records
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import read_listing

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.lease import Sightings
    from airflow_flinkstyle.jobs.status import JobStatus
    from airflow_flinkstyle.protocol.records import IncarnationRecord
    from airflow_flinkstyle.savepoint.repository.summary import Listing
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import Generation, Incarnation

SELDOM_S = 60.0
"""How old what is read of savepoints and migrations may be in the table of jobs."""
NEWEST_RUNS = 20
NEWEST_SAVEPOINTS = 200
NEWEST_JOURNALS = 20


class JobLook:
    """Reads one job; remembers what cannot have changed. Threads that read at once may read twice."""

    def __init__(self, store: ObjectStore, job: str, sightings: Sightings) -> None:
        self.job = job
        self.board, self.repository = JobBoard(store, job), SavepointRepository(store, job)
        self._view = JobView(
            board=self.board, repository=self.repository, deployment=DetachedDeployment(), sightings=sightings
        )
        self._process: tuple[tuple[Generation, Incarnation], IncarnationRecord | None] | None = None
        self._seldom: dict[str, Any] = {}
        self._seldom_at_s: float | None = None
        self._listed: dict[str, tuple[dict[str, str], Any]] = {}
        """Folder -> the versions in it, and what was made of them."""
        self._ended_runs: dict[int, dict[str, Any]] = {}

    def row(self, now_s: float) -> dict[str, Any]:
        """Return the job's row in the table: 4 to 8 requests, and 6 more once a minute.

        An error of the store, or of what is in it, is part of the row: one job does not hide the others.
        """
        try:
            if self._seldom_at_s is None or now_s - self._seldom_at_s >= SELDOM_S:
                self._seldom, self._seldom_at_s = self._read_seldom(), now_s
            return {"job": self.job, **self._status(), **self._seldom, "error": None}
        except FlinkstyleError as error:
            return {
                "job": self.job,
                "state": "unknown",
                "reason": error.problem,
                "queries": [],
                **totals_document(None),
                "newest_savepoint": None,
                "savepoints": None,
                "open": [],
                "error": error_document(error),
            }

    def detail(self) -> dict[str, Any]:
        """Return everything that the job's own view shows."""
        savepoints = self.savepoints()
        return {
            "job": self.job,
            "read_at_ms": now_ms(),
            **self._status(),
            "savepoints": savepoints[:NEWEST_SAVEPOINTS],
            "savepoints_total": len(savepoints),
            "damaged": [
                {"savepoint_id": one.savepoint_id, "problem": one.problem, "remedy": one.remedy}
                for one in self._listing().damaged
            ],
            "runs": self._runs(),
            "journals": self._journals()[:NEWEST_JOURNALS],
            "history": self._history(),
        }

    # --- parts --------------------------------------------------------------------------------

    def _status(self) -> dict[str, Any]:
        status = self._view.status()
        return status_document(status, self._process_of(status))

    def _process_of(self, status: JobStatus) -> IncarnationRecord | None:
        """Return what the driver said of itself: written once, so it is read once."""
        if isinstance(status, NeverStarted) or status.run.incarnation is None:
            return None
        of = (status.run.generation, status.run.incarnation)
        if self._process is None or self._process[0] != of:
            self._process = (of, self.board.incarnation(*of))
        return self._process[1]

    def _read_seldom(self) -> dict[str, Any]:
        savepoints = self.savepoints()
        return {
            "newest_savepoint": savepoints[0] if savepoints else None,
            "savepoints": len(savepoints),
            "open": [one for one in self._journals() if not one["ended"]],
        }

    def savepoints(self) -> list[dict[str, Any]]:
        """Return all savepoints, the newest first."""
        passed = self._remembered("verified", lambda: verified_records(self.repository), "damaged")
        failed = self._remembered("damaged", lambda: damaged_records(self.repository))
        pinned = self._remembered("pins", lambda: pins(self.repository))
        return [
            savepoint_document(
                one,
                passed.get(one.savepoint_id),
                failed.get(one.savepoint_id),
                pinned[one.savepoint_id].reason if one.savepoint_id in pinned else None,
            )
            for one in self._listing().savepoints
        ]

    def _listing(self) -> Listing:
        found: Listing = self._remembered("savepoints", lambda: read_listing(self.repository))
        return found

    def _journals(self) -> list[dict[str, Any]]:
        """Return migrations and upgrades, the newest first."""
        phases = self._remembered("migrations", lambda: read_phases(self.board.store, self.job))
        found = [
            journal_document(journal, told, ended=has_ended(told)) for journal, told in phases.items() if told
        ]
        return sorted(found, key=lambda one: -int(one["begun_at_ms"]))

    def _remembered(self, folder: str, read: Any, *also: str) -> Any:  # noqa: ANN401 - as ``read`` returns
        """Read a folder again only if a listing shows that it changed."""
        versions = {
            info.key: info.version
            for name in (folder, *also)
            for info in self.board.store.list(f"{self.job}/{name}/")
        }
        before = self._listed.get(folder)
        if before is None or before[0] != versions:
            before = (versions, read())
            self._listed[folder] = before
        return before[1]

    def _runs(self) -> list[dict[str, Any]]:
        """Return the newest runs, the newest first; one that has ended is read once."""
        generations = self.board.generations()[-NEWEST_RUNS:]
        return [self._run(generation) for generation in reversed(generations)]

    def _run(self, generation: Generation) -> dict[str, Any]:
        if generation in self._ended_runs:
            return self._ended_runs[generation]
        claim, order = self.board.claim(generation), self.board.takeover_order(generation)
        slot = self.board.heartbeat(generation)
        heartbeat = slot.value if slot is not None else None
        run = {
            "generation": generation,
            "started_by": claim.claim_key if claim is not None else None,
            "claimed_at_ms": claim.claimed_at_ms if claim is not None else None,
            "follows": claim.follows if claim is not None else None,
            "from_savepoint": order.savepoint_id if order is not None else None,
            "state": heartbeat.state if heartbeat is not None else "no heartbeat",
            "heartbeat_at_ms": heartbeat.written_at_ms if heartbeat is not None else None,
            "savepoint_id": heartbeat.savepoint_id if heartbeat is not None else None,
            "error": list(heartbeat.error) if heartbeat is not None and heartbeat.error else None,
            "batches": heartbeat.batches() if heartbeat is not None else {},
        }
        if heartbeat is not None and heartbeat.state == "closed":  # a failed one may be started again
            self._ended_runs[generation] = run
        return run

    def _history(self) -> dict[str, list[list[float | int | None]]]:
        """Return per seconds of one point: begin, input and processed rows per second, batch ms, lag."""
        try:
            slot = self.board.history()
        except FlinkstyleError:  # plots are empty; the agent begins it anew
            return {}
        samples = slot.value.samples() if slot is not None else {}
        return {
            str(step_s): [
                [one.at_s, one.input_rows_per_s, one.processed_rows_per_s, one.batch_ms, one.lag_records]
                for one in points
            ]
            for step_s, points in samples.items()
        }
