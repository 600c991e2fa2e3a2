"""How a run ends: drained at a batch boundary, then one write records the end."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.agent.core.errors import SCRIPT_FAILED, NoQueryError, SupersededError
from airflow_flinkstyle.agent.core.process import EXIT_DONE, EXIT_FAILED, EXIT_JVM_GONE
from airflow_flinkstyle.agent.core.queries.stopping import commit_planned, listeners_away, stop_at_boundary
from airflow_flinkstyle.agent.core.run.reasons import (
    Drilled,
    Failure,
    Replayed,
    ScriptEnded,
    Signalled,
    StopAsked,
)
from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.errors import DRIVER_TOLD_TO_END_DRAINED, DRIVER_TOLD_TO_END_WAITING
from airflow_flinkstyle.python_versions import assert_never
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.core.run.admission import Admission
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.run.reasons import Ending
    from airflow_flinkstyle.protocol.board import Slot
    from airflow_flinkstyle.protocol.records import Request
    from airflow_flinkstyle.types import BatchId

T = TypeVar("T")
_RETRY_S = 0.5
JVM_SEEN_S = 0.5
"""How long a JVM that was killed may still be this process's parent: the kernel closes its sockets before."""
_POLL_S = 0.02
log = logging.getLogger(__name__)


class RunEnd:
    """Ends one run; afterwards no query of this process runs."""

    def __init__(self, driver: Driver, admission: Admission) -> None:
        self._driver, self._admission = driver, admission

    def run(self, why: Ending) -> int:
        """Drain, write the last heartbeat; returns the exit code."""
        log.info("The run ends: %s", why)
        try:
            self._halt_if_jvm_is_gone(why)
            if not self._admission.taken_over:
                return self._end_waiting(why)
            return self._end_running(why)
        except SupersededError:
            log.exception("Another driver has taken over while this one ended")
            self._driver.process.halt(EXIT_DONE)
        except Exception:
            # Whether the queries have stopped is not known: they must not outlive this.
            log.exception("The run could not be ended in order")
            self._driver.process.halt(EXIT_FAILED)
        raise AssertionError("halt returned")

    def _halt_if_jvm_is_gone(self, why: Ending) -> None:
        """End without a last heartbeat if the script ended because its JVM was killed.

        ``failed`` would keep the supervisor from starting the job again. Where a query was started, the calls
        that stop it meet the dead JVM.
        """
        if not isinstance(why, (Failure, ScriptEnded)) or self._driver.queries.all():
            return
        wait = CLOCK.wait(JVM_SEEN_S, every_s=_POLL_S)
        while not self._driver.process.jvm_is_gone():
            if not wait.again():
                return
        log.error("The JVM has died, which ended the script")
        self._driver.process.halt(EXIT_JVM_GONE)

    def _end_waiting(self, why: Ending) -> int:
        """End a process that has run no batch."""
        heartbeat_writer = self._driver.heartbeat_writer
        match why:
            case Failure():
                return self._fail(why)
            case StopAsked(request):
                self._write(lambda: heartbeat_writer.end("closed", request_id=request.request_id))
                self._end_request(why, batches={})
                return EXIT_DONE
            case ScriptEnded():
                error = NoQueryError(
                    "The script was expected to start a streaming query, but it ended without one.",
                    state_after="No batch was run.",
                    remedy="Start a query with writeStream...start() in the script.",
                )
                return self._fail(Failure.of(error))
            case Signalled() if self._admission.relaunched:
                # An earlier incarnation ran batches: the next one continues from them.
                heartbeat_writer.ended = True
                return EXIT_FAILED
            case Signalled() if not self._driver.driver_run.claim.is_drill:
                return self._fail(Failure.of(DRIVER_TOLD_TO_END_WAITING.error()))
            case Signalled() | Drilled() | Replayed():
                self._write(lambda: heartbeat_writer.end("closed"))
                return EXIT_DONE
            case _:
                assert_never(why)

    def _end_running(self, why: Ending) -> int:
        driver = self._driver
        driver.inbox.stopping.set()
        self._write(lambda: driver.heartbeat_writer.beat("draining"))
        stop = why if isinstance(why, StopAsked) else None
        signalled = Failure.of(DRIVER_TOLD_TO_END_DRAINED.error()) if isinstance(why, Signalled) else None
        if signalled is not None:
            stop = self._write(lambda: self._stop_in_the_slot(signalled))
        driver.inbox.cancel_take()
        failure = why if isinstance(why, Failure) else self._failed_query(why)
        with driver.start_lock:
            queries, waiting = driver.queries.started_and_waiting()
        with listeners_away(queries):
            stop_at_boundary(queries)
        if failure is not None:
            return self._fail(self._cause(failure))
        try:
            batches = {query.name: query.status.batch_id for query in waiting}
            with listeners_away(queries):
                batches |= {query.name: commit_planned(query) for query in queries}
            committed = {name: batch for name, batch in batches.items() if batch is not None}
        except FlinkstyleError as error:
            failure = Failure.of(error)
            if signalled is not None:  # executors and brokers may be ending as well
                failure = replace(failure, transient=True)
            if stop is not None:
                self._write(partial(self._end_failed, stop, failure))
            return self._fail(failure)
        driver.commits.finish()
        if signalled is not None and stop is None:  # one may have come while the queries drained
            stop = self._write(lambda: self._stop_in_the_slot(signalled))
        self._write(lambda: self._close(stop, signalled))
        if stop is not None:
            self._end_request(stop, batches=committed)
        return EXIT_DONE

    def _end_failed(self, stop: StopAsked, failure: Failure) -> None:
        detail = f"{failure.code}: {failure.text}"
        self._driver.inbox.end(stop.request, "failed", detail, transient=failure.transient)

    def _stop_in_the_slot(self, signalled: Failure) -> StopAsked | None:
        """Return the stop that a caller waits for, if there is one: no watcher must start that job again."""
        while (slot := self._unanswered_stop()) is not None:
            if slot.value.state == "closing" or self._driver.inbox.make_final(slot):
                return StopAsked(slot.value, failed=None if self._has_all(slot.value) else signalled)
            # It was taken back, or the inbox has accepted it at this moment: the next look tells.
        return None

    def _unanswered_stop(self) -> Slot[Request] | None:
        board, run = self._driver.board, self._driver.driver_run
        slot = board.request(run.generation)
        if slot is None or slot.value.incarnation != run.incarnation or "stop" not in slot.value.command:
            return None
        has_ended = board.end(run.generation, slot.value.request_id) is not None
        return None if has_ended or slot.value.state == "cancelled" else slot

    def _has_all(self, request: Request) -> bool:
        """Return whether a stop has the savepoint that it asked for, if it did.

        ``closing`` alone does not tell: it may close without, and a retry here meets its own write.
        """
        if request.savepoint_id is None:
            return True
        return request.state == "closing" and self._driver.repository.find(request.savepoint_id) is not None

    def _close(self, stop: StopAsked | None, signalled: Failure | None) -> None:
        if stop is None:
            error = (signalled.code, signalled.text) if signalled is not None else None
            return self._driver.heartbeat_writer.end("closed", error=error)
        failed = stop.failed
        self._driver.heartbeat_writer.end(
            "closed",
            request_id=stop.request.request_id,
            savepoint_id=stop.savepoint_id,
            error=(failed.code, failed.text) if failed is not None else None,
        )

    def _failed_query(self, why: Ending) -> Failure | None:
        """Return the failure of a query, if one failed unawaited; a stop still tries to commit its batch."""
        if isinstance(why, StopAsked):
            return None
        failures = [query.failure for query in self._driver.queries.all()]
        failed = next((error for error in failures if error is not None), None)
        if failed is None:
            return None
        log.error("A query failed that the script did not wait for", exc_info=failed)
        return Failure.of(failed)

    def _cause(self, failure: Failure) -> Failure:
        """Return a sink's error if the script failed because of it; else the failure."""
        if failure.code != SCRIPT_FAILED.code:
            return failure
        refused = (query.refusal for query in self._driver.queries.all())
        return next((Failure.of(error) for error in refused if error is not None), failure)

    def _end_request(self, stop: StopAsked, *, batches: dict[str, BatchId]) -> None:
        detail = f"The run has closed at batches {batches}."
        if stop.failed is not None:
            detail += f" It has no savepoint: {stop.failed.code}: {stop.failed.text}"
        end = self._driver.inbox.end
        saved = stop.savepoint_id
        self._write(lambda: end(stop.request, "done", detail, savepoint_id=saved, batches=batches))

    def _fail(self, failure: Failure) -> int:
        log.error("%s: %s", failure.code, failure.text)
        self._driver.commits.finish()
        error = (failure.code, failure.text)
        transient = failure.transient
        self._write(lambda: self._driver.heartbeat_writer.end("failed", error=error, transient=transient))
        return EXIT_FAILED

    def _write(self, write: Callable[[], T]) -> T:
        """Write, again and again while the store fails; the watchdog ends the process with the lease."""
        while True:
            try:
                return write()
            except StoreError as error:
                if not error.retryable:
                    raise
                log.warning("The end of the run could not be written yet: %s", error)
                time.sleep(_RETRY_S)
