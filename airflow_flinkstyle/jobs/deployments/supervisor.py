"""A process beside a driver of this machine, which starts it again within a second after it was killed.

It is a caller under the rules of all callers, and has less than others: what its driver was started with, and
no signing key. It acts only while the newest submit is its own, and makes the next one as any other caller
does; so it never restarts beside a watcher. It leaves a driver that has reported why it ended to watchers.
A caller that ends a driver on purpose ends its supervisor first (``DetachedDeployment.end``).

``python -m airflow_flinkstyle.jobs.deployments.supervisor --claim ID``, with a ``Task`` as JSON as its input.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import select
import socket
import sys
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, TypeVar

from airflow_flinkstyle.clock import CLOCK, now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.base import BY_SUPERVISOR, CLAIM, SUCCEEDED, Gone
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment, Task, option
from airflow_flinkstyle.patience import patiently
from airflow_flinkstyle.protocol import signatures
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.process import process_started
from airflow_flinkstyle.protocol.records import LIVED_S, DriverEnd, Submit
from airflow_flinkstyle.protocol.signatures import ORDER_KEYS_VARIABLE
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.jobs.deployments.base import Deployment, DriverState, Submission
    from airflow_flinkstyle.protocol.board import Slot
    from airflow_flinkstyle.protocol.records import Heartbeat, IncarnationRecord

FIRST_PAUSE_S, MOST_PAUSE_S = 0.25, 60.0
"""Before the first restart, and the longest before any; each is twice the last, until a batch commits."""
MOST_IN_A_ROW: Final = 10
"""Restarts without a batch between them; then watchers take over, which are slower."""
STORE_PATIENCE_S, STORE_RETRY_S = 600.0, 1.0
"""How long, and how often, to repeat a call that the store does not answer."""
END_PATIENCE_S = 600.0
"""How long a driver's processes may take to end."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class Supervisor:
    """Restarts the driver of one generation; it learns of the driver's end from the kernel alone."""

    def __init__(
        self,
        board: JobBoard,
        deployment: Deployment,
        submission: Submission,
        native_id: Mapping[str, str],
        *,
        clock: Clock = CLOCK,
    ) -> None:
        """Prepare.

        Args:
            board: The job's records, which it may write as its caller may.
            deployment: Of this machine's drivers.
            submission: How the driver was started.
            native_id: The driver's process.
            clock: For its waits.
        """
        argv = submission.argv
        self._board, self._deployment, self._clock = board, deployment, clock
        self._submission, self._native_id = submission, native_id
        self._generation, self._claim_id = Generation(int(option(argv, "generation"))), option(argv, "claim")
        self._number = int(option(argv, "submit"))
        self._key = f"{BY_SUPERVISOR}{socket.gethostname()}:{secrets.token_hex(4)}"
        """Tells its submits from those of another supervisor of this machine."""
        self._processes = [native_id]
        """All driver processes so far; each but the last has ended."""
        self._restarts = 0
        """Number of restarts since a batch was committed."""
        self._batches: Mapping[str, int] = {}
        self._order_keys = tuple(filter(None, submission.env.get(ORDER_KEYS_VARIABLE, "").split(",")))

    @cached_property
    def _lease_s(self) -> float:
        """The lease of the run; 0 if there is no claim any more."""
        claim = self._patiently(partial(self._board.claim, self._generation))
        return claim.lease_s if claim is not None else 0.0

    def run(self) -> None:
        """Restart the driver until that is another caller's to do."""
        while True:
            await_end(self._native_id)
            if not self.restart():
                return

    def restart(self) -> bool:
        """Start the driver again, unless another caller decides about that; returns whether it did."""
        while (last := self._patiently(self._last_heartbeat)) is not None:
            if not isinstance(state := self._patiently_end(), Gone):
                log.warning("The driver is not started again: %s", state)
                return False
            if last.batches() != self._batches or last.lived_s(self._lease_s) > LIVED_S:
                self._restarts, self._batches = 0, last.batches()
            if self._restarts >= MOST_IN_A_ROW:
                log.warning("No batch after %d restarts: the driver is left to watchers", self._restarts)
                break
            self._clock.sleep(min(FIRST_PAUSE_S * 2.0**self._restarts, MOST_PAUSE_S))
            self._restarts += 1
            self._patiently(partial(self._record_end, last))
            if self._submit_next(last):
                return True
        self._patiently(self._record_unheard)
        return False

    def _record_unheard(self) -> None:
        """Record the end of a newest driver that wrote no heartbeat: elsewhere it counts as one that starts.

        This supervisor does not start it again: it cannot tell one that was killed from one that left since
        an earlier driver lives.
        """
        submit, last = self._own_submit(), self._board.heartbeat(self._generation)
        if submit is None:
            return
        if last is not None:
            writer = self._board.incarnation(self._generation, last.value.incarnation)
            if writer is None or writer.submit == 0 or writer.submit >= self._number:
                return
        if isinstance(self._patiently_end(), Gone):
            detail = "it ended before its first heartbeat, as its supervisor saw"
            self._record_result(replace(submit.value, state="dead", detail=detail), submit.version)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Return what one call of the store returns, once the store answers.

        Only this call is made again: a restart that began anew would end the driver that it has started.
        """
        return patiently(
            call, of=(FlinkstyleError,), for_s=STORE_PATIENCE_S, every_s=STORE_RETRY_S, clock=self._clock
        )

    def _last_heartbeat(self) -> Heartbeat | None:
        """Return the last heartbeat of the driver that this supervisor is to start again; None for none."""
        slot = self._board.heartbeat(self._generation)
        heartbeat = slot.value if slot is not None else None
        if why := self._why_not(heartbeat):
            log.info("The driver is left as it is: %s", why)
            return None
        return heartbeat

    def _patiently_end(self) -> DriverState:
        """End the driver's remaining processes; that may take a while, as a disk that hangs blocks them."""
        bound = {CLAIM: self._claim_id, SUCCEEDED: "true"}
        process = {**self._native_id, **bound, "log": self._submission.log_path}
        wait = self._clock.wait(END_PATIENCE_S, every_s=1.0)
        while not isinstance(state := self._deployment.end(process), Gone) and wait.again():
            log.warning("The driver is not started again yet: %s", state)
        return state

    def _own_submit(self) -> Slot[Submit] | None:
        """Return the newest submit; None if it is another caller's, or nobody expects a driver of it."""
        slot = self._board.submit(self._generation)
        is_own = slot is not None and slot.value.number == self._number
        return slot if is_own and slot is not None and slot.value.state not in ("failed", "dead") else None

    def _why_not(self, heartbeat: Heartbeat | None) -> str | None:
        """Return why this supervisor must not start the driver again, as half a sentence; None if it may."""
        current = self._board.current()
        if self._own_submit() is None:
            return "another caller starts the next one"
        if current is not None and current.value.generation > self._generation:
            return "a later generation has the job"
        if heartbeat is None:
            return "it has written no heartbeat: the caller that started it waits for the first one"
        if heartbeat.state in ("closed", "failed"):
            return f"its last heartbeat is {heartbeat.state}"
        writer = self._board.incarnation(self._generation, heartbeat.incarnation)
        if writer is None or not self._is_mine(writer):
            return f"driver {heartbeat.incarnation} wrote the last heartbeat, and is not this supervisor's"
        return None

    def _is_mine(self, record: IncarnationRecord) -> bool:
        """Return whether a driver is one of this supervisor's processes: a submit may have had two."""
        named = self._deployment.native_id(record)
        return any(
            all(named.get(name) == value for name, value in known.items() if name in ("pid", "started"))
            for known in self._processes
        )

    def _record_end(self, last: Heartbeat) -> None:
        """Record the driver's end, so that the next driver need not wait for the lease."""
        if not self._order_keys:
            return
        end = DriverEnd(
            generation=self._generation,
            incarnation=last.incarnation,
            seen=f"no process of it is left, as its supervisor on {socket.gethostname()} saw",
            seen_at_ms=now_ms(),
        )
        place = self._board.driver_end_place(self._generation, self._generation, last.incarnation)
        self._board.write_driver_end(self._generation, signatures.signed(end, self._order_keys, place))

    def _submit_next(self, last: Heartbeat) -> bool:
        """Start the next driver; returns whether it was started, and is the one to supervise."""
        number, argv = self._number + 1, list(self._submission.argv)
        asked = self._patiently(partial(self._next, number, last))
        version = self._patiently(partial(self._take, asked))
        if version is None:
            return False
        self._number = number
        argv[argv.index("--submit") + 1] = str(number)
        submission = replace(self._submission, argv=tuple(argv))
        try:
            native_id = self._deployment.submit(submission)
        except FlinkstyleError as error:  # the machine may have no memory or no process left for a moment
            log.warning("The driver could not be started: %s", error.problem)
            if self._restarts >= MOST_IN_A_ROW:
                failed = replace(asked, state="failed", detail=str(error.problem), transient=error.retryable)
                self._record_result(failed, version)
            return False
        log.warning("The driver was killed, and was started again: submit %d", number)
        self._submission, self._native_id = submission, native_id
        self._processes.append(native_id)
        self._record_result(replace(asked, state="submitted", native_id=dict(native_id)), version)
        return True

    def _next(self, number: int, last: Heartbeat) -> Submit:
        """Return the next submit, which counts on: watchers report a driver that dies again and again."""
        slot, asked_at_ms = self._board.submit(self._generation), now_ms()
        retry, since_ms = 1, asked_at_ms
        if slot is not None and (retry := slot.value.next_retry(last, self._lease_s)) > 1:
            since_ms = slot.value.failing_since_ms or slot.value.asked_at_ms
        return Submit(
            number=number,
            key=self._key,
            deployment=self._deployment.name,
            state="asked",
            asked_at_ms=asked_at_ms,
            retry=retry,
            retried_at=last.batches(),
            failing_since_ms=since_ms,
        )

    def _take(self, asked: Submit) -> str | None:
        """Take the right to start the next driver; returns its version, or None if another caller wrote."""
        try:
            return self._board.create_submit(self._generation, asked.number, asked)
        except (ObjectExistsError, ObjectChangedError):
            slot = self._board.submit(self._generation)
            # It is there already where the answer to an earlier try was lost.
            return slot.version if slot is not None and slot.value == asked else None

    def _record_result(self, submit: Submit, version: str) -> None:
        """Record a submit's result; a driver that has a later submit meanwhile ends itself."""
        with suppress(ObjectChangedError):  # that, or the answer to an earlier try was lost
            self._patiently(partial(self._board.put_submit, self._generation, submit, seen=version))


def await_end(native_id: Mapping[str, str]) -> None:
    """Wait until a process of this machine has ended; asks only the kernel, no store."""
    pid = int(native_id["pid"])
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if process_started(pid) == native_id["started"]:  # else the pid is another process's by now
            select.select([process], [], [])
    finally:
        os.close(process)


def main() -> int:
    """Supervise the driver that the standard input names."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s supervisor: %(message)s")
    task = Task(**json.load(sys.stdin))
    submission = task.submission
    board = JobBoard(open_store(option(submission.argv, "root")), option(submission.argv, "job"))
    # This process is outside of the worker's service, and so is every driver that it starts.
    deployment = DetachedDeployment(may_end_with_starter=True, class_archives=task.class_archives)
    try:
        Supervisor(board, deployment, submission, task.native_id).run()
    except FlinkstyleError as error:
        log.error("The driver is supervised no more: %s", error)  # noqa: TRY400  # three sentences say it all
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
