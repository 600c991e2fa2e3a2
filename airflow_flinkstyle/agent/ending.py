"""How a run ends: drained at a batch boundary, then one write says so."""

from __future__ import annotations

import logging
import os
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from airflow_flinkstyle.agent import lineages
from airflow_flinkstyle.agent.errors import NoQueryError, ScriptFailedError, SupersededError
from airflow_flinkstyle.agent.process import EXIT_DONE, EXIT_FAILED
from airflow_flinkstyle.agent.stopping import commit_pending, stop_at_boundary
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.login.driver import scrub
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.runtime import Runtime
    from airflow_flinkstyle.protocol.records import Request
    from airflow_flinkstyle.types import BatchId

_RETRY_S = 0.5
_PLAN = "\n=== Streaming Query ==="
"""Behind this, Spark's message holds the plan of the query that failed."""
_SHOWN_LINES = 6
_SHOWN_CHARACTERS = 2000
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A caller asked for it."""

    request: Request


@dataclass(frozen=True, slots=True)
class ScriptEnded:
    """The script came to its end, or stopped its session."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """The process or its JVM was told to terminate."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The script, a query or the agent failed."""

    code: str
    text: str
    transient: bool = False
    """Whether it may pass by itself: the run may be started again as it is."""

    @staticmethod
    def of(error: BaseException) -> Failure:
        """Name the error; the script's own by the last lines of its traceback."""
        if isinstance(error, FlinkstyleError):
            return Failure(error.code, scrub(str(error), os.environ), transient=error.retryable)
        # Scrubbed whole: half a key is a secret too, and would not be found.
        text = scrub("".join(traceback.format_exception(error)), os.environ).partition(_PLAN)[0]
        lines = [line for line in text.splitlines() if line.strip()]
        return Failure(ScriptFailedError.code, "\n".join(lines[-_SHOWN_LINES:])[-_SHOWN_CHARACTERS:])


Ending = StopAsked | ScriptEnded | Signalled | Failure


class RunEnd:
    """Ends one run; afterwards no query of this process runs."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def run(self, why: Ending) -> int:
        """Drain, save if asked, write the last heartbeat; returns the exit code."""
        log.info("The run ends: %s", why)
        try:
            if not self._runtime.admission.taken_over:
                return self._end_waiting(why)
            return self._end_running(why)
        except SupersededError:
            log.exception("Another driver has taken over while this one ended")
            self._runtime.process.halt(EXIT_DONE)
        except Exception:
            # Whether the queries have stopped is not known: they must not outlive this.
            log.exception("The run could not be ended in order")
            self._runtime.process.halt(EXIT_FAILED)
        raise AssertionError("halt returned")

    def _end_waiting(self, why: Ending) -> int:
        """End a process that has run no batch."""
        pulse = self._runtime.pulse
        match why:
            case Failure():
                return self._fail(why)
            case StopAsked(request):
                self._write(lambda: pulse.end("closed", request_id=request.request_id))
                self._end_request(request, batches={})
                return EXIT_DONE
            case ScriptEnded():
                error = NoQueryError(
                    "The script was expected to start a streaming query, but it ended without one.",
                    left="No batch was run.",
                    remedy="Start a query with writeStream...start() in the script.",
                )
                return self._fail(Failure.of(error))
            case Signalled() if self._runtime.admission.relaunched:
                pulse.ended = True  # an earlier incarnation ran batches: the next one goes on from them
                return EXIT_FAILED
            case Signalled():
                self._write(lambda: pulse.end("closed"))
                return EXIT_DONE
            case _:
                assert_never(why)

    def _end_running(self, why: Ending) -> int:
        runtime = self._runtime
        self._write(lambda: runtime.pulse.beat("draining"))
        runtime.inbox.cancel_take()
        failure = why if isinstance(why, Failure) else self._failed_query(why)
        with runtime.start_lock:
            queries, waiting = runtime.queries.started_and_waiting()
        stop_at_boundary(runtime.jvm, queries)
        if failure is not None:
            return self._fail(self._cause(failure))
        request = why.request if isinstance(why, StopAsked) else None
        try:
            batches = {query.name: query.beat.batch_id for query in waiting}
            batches |= {query.name: commit_pending(query) for query in queries}
            committed = {name: batch for name, batch in batches.items() if batch is not None}
            runtime.commits.no_more()  # while the savepoint is taken
            savepoint_id = self._save(request, committed)
        except FlinkstyleError as error:
            failure = Failure.of(error)
            if request is not None:
                detail = f"{failure.code}: {failure.text}"
                self._write(lambda: runtime.inbox.end(request, "failed", detail))
            return self._fail(failure)
        runtime.commits.finish()
        request_id = request.request_id if request else None
        self._write(lambda: runtime.pulse.end("closed", request_id=request_id, savepoint_id=savepoint_id))
        if request is not None:
            self._end_request(request, batches=committed)
        return EXIT_DONE

    def _failed_query(self, why: Ending) -> Failure | None:
        """Return the failure of a query that nobody awaited; a stop still tries to commit its batch."""
        if isinstance(why, StopAsked):
            return None
        failures = [query.failure for query in self._runtime.queries.all()]
        return next((Failure.of(error) for error in failures if error is not None), None)

    def _cause(self, failure: Failure) -> Failure:
        """Return what a sink refused a batch with, where that is what the script failed of."""
        if failure.code != ScriptFailedError.code:
            return failure
        refused = (lineages.refusal(query) for query in self._runtime.queries.all())
        return next((Failure.of(error) for error in refused if error is not None), failure)

    def _save(self, request: Request | None, committed: dict[str, BatchId]) -> str | None:
        if request is None or request.command != "stop_with_savepoint":
            return None
        manifest = self._runtime.serving.capture(request, stopped_at=committed, cancelled=lambda: False)
        return manifest.savepoint_id

    def _end_request(self, request: Request, *, batches: dict[str, BatchId]) -> None:
        detail = f"The run has closed at batches {batches}."
        end = self._runtime.inbox.end
        self._write(lambda: end(request, "done", detail, savepoint_id=request.savepoint_id, batches=batches))

    def _fail(self, failure: Failure) -> int:
        log.error("%s: %s", failure.code, failure.text)
        self._runtime.commits.finish()
        error = (failure.code, failure.text)
        transient = failure.transient
        self._write(lambda: self._runtime.pulse.end("failed", error=error, transient=transient))
        return EXIT_FAILED

    def _write(self, write: Callable[[], None]) -> None:
        """Write through a store that fails for a while; the watchdog ends that with the lease."""
        while True:
            try:
                return write()
            except StoreError as error:
                if not error.retryable:
                    raise
                log.warning("The end of the run could not be written yet: %s", error)
                time.sleep(_RETRY_S)
