"""A process beside a driver of this machine, which starts it again within a second once it was killed.

It is one more caller, under the rules of all callers, and has less than they: what its driver was started
with, and no signing key. It acts only while the newest submit is its own, and takes the next one as any other
caller does; so it never restarts beside a watcher. A driver that has said why it ended is left to watchers.
Who ends a driver on purpose ends its supervisor first (``DetachedDeployment.end``).

``python -m airflow_flinkstyle.jobs.deployments.supervisor --claim ID``, with a ``Task`` as JSON as its input.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.clock import CLOCK, now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.base import CLAIM, Gone
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment, Task, option
from airflow_flinkstyle.protocol import signatures
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.process import process_started
from airflow_flinkstyle.protocol.records import DriverEnd, Submit
from airflow_flinkstyle.protocol.signatures import ORDER_KEYS_VARIABLE
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.jobs.deployments.base import Deployment, DriverState, Submission
    from airflow_flinkstyle.protocol.records import Heartbeat, IncarnationRecord

FIRST_PAUSE_S, MOST_PAUSE_S = 0.25, 60.0
"""Before the first restart, and before any; each is twice the one before, until a batch is committed."""
MOST_IN_A_ROW: Final = 10
"""Restarts without a batch between them; then it is left to watchers, which are slower."""
STORE_PATIENCE_S = 600.0
"""How long a store that does not answer is asked again."""
END_PATIENCE_S = 600.0
"""How long a driver's processes may take to end."""
log = logging.getLogger(__name__)


class Supervisor:
    """Restarts the driver of one generation; of a driver that ends it learns from the kernel alone."""

    def __init__(
        self,
        board: JobBoard,
        deployment: Deployment,
        submission: Submission,
        native_id: Mapping[str, str],
        *,
        clock: Clock = CLOCK,
    ) -> None:
        """Describe it.

        Args:
            board: The job's records, which it may write as its caller may.
            deployment: Of this machine's drivers.
            submission: How the driver was started.
            native_id: The process.
            clock: By which it waits.
        """
        argv = submission.argv
        self._board, self._deployment, self._clock = board, deployment, clock
        self._submission, self._native_id = submission, native_id
        self._generation, self._claim_id = Generation(int(option(argv, "generation"))), option(argv, "claim")
        self._number = int(option(argv, "submit"))
        self._processes = [native_id]
        """All that it has looked after; each but the last one has ended."""
        self._restarts = 0
        """Since a batch was committed."""
        self._batches: Mapping[str, int] = {}
        self._order_keys = tuple(filter(None, submission.env.get(ORDER_KEYS_VARIABLE, "").split(",")))

    def run(self) -> None:
        """Look after the driver until it is not this one's any more."""
        while True:
            await_end(self._native_id)
            if not self._patiently_restart():
                return

    def _patiently_restart(self) -> bool:
        wait = self._clock.wait(STORE_PATIENCE_S, every_s=1.0)
        while True:
            try:
                return self.restart()
            except FlinkstyleError as error:
                if not error.retryable or not wait.again():
                    raise
                log.warning("The driver is not started again yet: %s", error.problem)

    def restart(self) -> bool:
        """Start the driver again, unless that is for somebody else to decide; returns whether it did."""
        beat = self._board.heartbeat(self._generation)
        words = beat.value if beat is not None else None
        if (why := self._why_not(words)) or words is None:
            log.info("The driver is left as it is: %s", why)
            return False
        if not isinstance(state := self._patiently_end(), Gone):
            log.warning("The driver is not started again: %s", state)
            return False
        if words.batches() != self._batches:
            self._restarts, self._batches = 0, words.batches()
        if self._restarts >= MOST_IN_A_ROW:
            log.warning("The driver has ended %d times without a batch: left to watchers", self._restarts + 1)
            return False
        self._clock.sleep(min(FIRST_PAUSE_S * 2.0**self._restarts, MOST_PAUSE_S))
        self._restarts += 1
        self._tell_end(words)
        return self._submit_next()

    def _patiently_end(self) -> DriverState:
        """End what is left of the driver, which may take a while: a disk that hangs holds its processes."""
        process = {**self._native_id, CLAIM: self._claim_id, "log": self._submission.log_path}
        wait = self._clock.wait(END_PATIENCE_S, every_s=1.0)
        while not isinstance(state := self._deployment.end(process), Gone) and wait.again():
            log.warning("The driver is not started again yet: %s", state)
        return state

    def _why_not(self, words: Heartbeat | None) -> str | None:
        """Return why the driver is not this one's to start again, as half a sentence; None if it is."""
        slot, current = self._board.submit(self._generation), self._board.current()
        if slot is None or slot.value.number != self._number or slot.value.state in ("failed", "dead"):
            return "another caller starts the next one"
        if current is not None and current.value.generation > self._generation:
            return "a later generation has the job"
        if words is None:
            return "it has not said a word: who started it is waiting for that"
        if words.state in ("closed", "failed"):
            return f"its last word is {words.state}"
        spoke = self._board.incarnation(self._generation, words.incarnation)
        if spoke is None or not self._is_mine(spoke):
            return f"driver {words.incarnation} spoke last, which is not this one's"
        return None

    def _is_mine(self, record: IncarnationRecord) -> bool:
        """Return whether a driver is a process that this one has looked after: a submit may have had two."""
        named = self._deployment.native_id(record)
        return any(
            all(named.get(name) == value for name, value in known.items() if name in ("pid", "started"))
            for known in self._processes
        )

    def _tell_end(self, words: Heartbeat) -> None:
        """Let the next driver not wait for the lease."""
        if not self._order_keys:
            return
        end = DriverEnd(
            generation=self._generation,
            incarnation=words.incarnation,
            seen=f"no process of it is left, as its supervisor on {socket.gethostname()} saw",
            seen_at_ms=now_ms(),
        )
        place = self._board.driver_end_place(self._generation, self._generation, words.incarnation)
        self._board.write_driver_end(self._generation, signatures.signed(end, self._order_keys, place))

    def _submit_next(self) -> bool:
        number, argv = self._number + 1, list(self._submission.argv)
        asked = Submit(
            key=f"supervisor:{socket.gethostname()}",
            deployment=self._deployment.name,
            state="asked",
            asked_at_ms=now_ms(),
        )
        try:
            version = self._board.create_submit(self._generation, number, asked)
        except (ObjectExistsError, ObjectChangedError):
            log.info("Another caller starts the next driver")
            return False
        argv[argv.index("--submit") + 1] = str(number)
        submission = replace(self._submission, argv=tuple(argv))
        try:
            native_id = self._deployment.submit(submission)
        except FlinkstyleError as error:
            failed = replace(asked, number=number, state="failed", detail=str(error.problem))
            with suppress(ObjectChangedError):
                self._board.put_submit(self._generation, failed, seen=version)
            return False
        log.warning("The driver was killed, and was started again: submit %d", number)
        self._submission, self._native_id, self._number = submission, native_id, number
        self._processes.append(native_id)
        started = replace(asked, number=number, state="submitted", native_id=dict(native_id))
        with suppress(ObjectChangedError):  # a later one was made: this driver leaves
            self._board.put_submit(self._generation, started, seen=version)
        return True


def await_end(native_id: Mapping[str, str]) -> None:
    """Wait until a process of this machine has ended; asks the kernel once, and no store."""
    pid = int(native_id["pid"])
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if process_started(pid) == native_id["started"]:  # else the number is another one's by now
            select.select([process], [], [])
    finally:
        os.close(process)


def main() -> int:
    """Look after the driver that the standard input names."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s supervisor: %(message)s")
    task = Task(**json.load(sys.stdin))
    submission = task.submission
    board = JobBoard(open_store(option(submission.argv, "root")), option(submission.argv, "job"))
    # It is outside of the worker's service itself, and so is whatever it starts.
    deployment = DetachedDeployment(
        may_end_with_starter=True, beside_driver=True, class_archives=task.class_archives
    )
    try:
        Supervisor(board, deployment, submission, task.native_id).run()
    except FlinkstyleError as error:
        log.error("The driver is supervised no more: %s", error)  # noqa: TRY400  # three sentences say it all
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
