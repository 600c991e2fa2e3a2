"""``JobRuns``: start a dead driver again, wait for one, and end one."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs import requests
from airflow_flinkstyle.jobs.deployments.base import DriverState, Gone
from airflow_flinkstyle.jobs.errors import DriverFailedError, StepTimeoutError
from airflow_flinkstyle.jobs.running.starts import JobStarts
from airflow_flinkstyle.jobs.status import (
    Closed,
    Dead,
    Failed,
    JobStatus,
    Running,
    Starting,
    classify,
    describe_status,
)

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.types import Generation

log = logging.getLogger(__name__)


class JobRuns(JobStarts):
    """The job's runs, their begin, and how they go on and end."""

    def ensure_running(self, *, relaunch_failed: bool = False) -> JobStatus:
        """Start one more incarnation if the driver of the run that may run has died without a word.

        Args:
            relaunch_failed: Also relaunch a driver that said why it failed.

        Raises:
            DriverFailedError: If the driver failed with an error, which would happen again.
        """
        status = self.status()
        match status:
            case Dead(run) if run.claim.launch:
                log.warning("The driver of generation %d is gone, starting it again", run.generation)
            case Failed(run) if relaunch_failed and run.claim.launch:
                log.warning("Starting generation %d again after %s", run.generation, status.code)
            case Failed(run):
                raise self.driver_failed(run)
            case _:
                return status
        self._submit(run.generation, run.claim)
        return Starting(run)

    def wait_running(self, generation: Generation, *, timeout_s: float) -> Running:
        """Wait until the generation's driver holds ``current.json``.

        Raises:
            DriverFailedError: If it ended before; its own error and the end of its log are in the message.
            JobRunningError: If another generation took over.
            StepTimeoutError: If it neither came up nor ended in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            current = self.board.current()
            named = current.value.generation if current else None
            run = self.run(generation)
            status = classify(run, is_current=named == generation)
            if isinstance(status, Running):
                return status
            if named is not None and named != generation and named != run.claim.follows:
                raise self._running(f"generation {named} took over before generation {generation}")
            if isinstance(status, (Failed, Dead, Closed)):
                raise self.driver_failed(run)
            if time.monotonic() > deadline:
                raise StepTimeoutError(
                    f"Generation {generation} of job {self.board.job} was expected to take over within "
                    f"{timeout_s:g} s, found that {describe_status(status)}.",
                    left="Its driver goes on starting. End of its log: " + self.log_tail(run),
                    remedy="Look at its log; wait again, or stop it.",
                )
            time.sleep(self.poll_s)

    def end_driver(self, generation: Generation) -> DriverState:
        """Kill a generation's driver without a chance to drain."""
        run = self.run(generation)
        state = run.driver if run.handle is None else self.deployment.end(run.handle.native_id)
        if run.incarnation is not None and (record := self.board.incarnation(generation, run.incarnation)):
            state = self.deployment.end(self.deployment.native_id(record))
        log.info("Ended the driver of generation %d: %s", generation, state)
        return state

    def dismiss(self, generation: Generation) -> None:
        """End a driver that only waits; it holds nothing, so there is nothing to drain."""
        run = self.run(generation)
        if run.is_over or isinstance(self.end_driver(generation), Gone) or run.heartbeat is None:
            return
        pending = requests.request_for("dismiss", "stop", generation, run.heartbeat.incarnation)
        requests.send(self.board, pending)  # it runs where nobody here can reach it

    def driver_failed(self, run: Run) -> DriverFailedError:
        """Build the error for a run that ended by itself."""
        heartbeat = run.heartbeat
        code, text = (heartbeat.error if heartbeat else None) or ("", "")
        said = f"it failed with {code}: {text}" if code else "it ended without a word"
        if heartbeat is not None and heartbeat.state == "closed":
            said = f"its script ended at {heartbeat.batches() or 'no batch'}"
        return DriverFailedError(
            f"Generation {run.generation} of job {self.board.job} was expected to run, found that {said}.",
            left=f"Its checkpoint {run.claim.checkpoint_location} is as it left it. End of its log:\n"
            f"{self.log_tail(run)}\n",
            remedy="Correct the cause, then start the job again from its checkpoint or a savepoint.",
        )
