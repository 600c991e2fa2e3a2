"""What callers ask of a driver: savepoints and stops, each served in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.causes import passes
from airflow_flinkstyle.agent.core.errors import QUERY_ENDED, QUERY_NOT_STARTED, QUERY_UNREGISTERED
from airflow_flinkstyle.agent.core.run.held_cut import HeldCut
from airflow_flinkstyle.agent.core.run.reasons import StopAsked
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.agent.core.board.inbox import Take
    from airflow_flinkstyle.agent.core.guards.waiting import WaitingQuery
    from airflow_flinkstyle.agent.core.run.admission import Admission
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.run.taking import Taking
    from airflow_flinkstyle.protocol.records import Outcome, Request
    from airflow_flinkstyle.savepoint.manifest import Manifest

log = logging.getLogger(__name__)


class Serving:
    """Judges requests and serves them; fulfils the inbox's ``Worker``."""

    def __init__(self, driver: Driver, admission: Admission, taking: Taking) -> None:
        self._driver, self._admission, self._taking = driver, admission, taking
        self._asked_s: dict[str, float] = {}
        """Request id -> when it was first seen to wait for queries, by the monotonic clock."""

    def is_ready(self, request: Request) -> bool:
        """Return whether a request can be judged now.

        A request that needs committed batches waits for a query's first one if that runs, or may be planned
        soon; some requests wait until the script has started its queries.
        """
        if not self._admission.is_settled():
            return False
        started, waiting = self._driver.queries.started_and_waiting()
        if _needs_batches(request) and any(query.nears_first_batch for query in started):
            return False
        if not _starts_awaited(request, waiting):
            return True
        asked_s = self._asked_s.setdefault(request.request_id, time.monotonic())
        return time.monotonic() - asked_s >= request.hold_s

    def refusal(self, request: Request) -> str | None:
        """Return why the request cannot be served; None if it can."""
        if not _needs_batches(request):
            return None
        if not self._admission.taken_over:
            return "The driver waits for its turn and has run no batch yet: there is nothing to save."
        if beside := self._driver.queries.unregistered():
            return str(QUERY_UNREGISTERED.error(names=", ".join(beside)))
        started, waiting = self._driver.queries.started_and_waiting()
        fresh = [query.name for query in started if query.read_committed() is None]
        fresh += [query.name for query in waiting if query.status.batch_id is None]
        if fresh or not started:
            return (
                f"Expected at least one committed batch, found none of {', '.join(fresh) or 'any query'}. "
                "The job keeps running. Ask again once it has committed a batch."
            )
        ended = [query.name for query in started if not query.is_active]
        if request.alignment == "aligned" and ended:
            return str(QUERY_ENDED.error(names=", ".join(ended)))
        if request.alignment == "aligned" and waiting:
            names = ", ".join(query.name for query in waiting)
            return str(QUERY_NOT_STARTED.error(names=names, waited_s=request.hold_s))
        return None

    def begin_take(self, take: Take) -> None:
        """Serve in a thread what the job may run on after: a savepoint, an aligned cut, a saved stop."""
        threading.Thread(target=self._take, args=(take,), name="flinkstyle-take", daemon=True).start()

    def _take(self, take: Take) -> None:
        request = take.request
        try:
            if request.alignment == "aligned" or request.command == "stop_with_savepoint":
                manifest = HeldCut(self._driver, take, self._taking).run()
            else:
                manifest = self._taking.take(take, stopped_at=None)
        except FlinkstyleError as error:
            withdrawn = take.cancelled.is_set()  # then no other failure matters
            outcome: Outcome = "cancelled" if withdrawn else "failed"
            transient = error.retryable and not withdrawn
            self._answer(request, outcome, f"{error.code}: {error}", transient=transient)
        except Exception as error:  # the job runs on, whatever went wrong with a savepoint
            log.exception("The savepoint failed")
            self._answer(request, "failed", f"{type(error).__name__}: {error}", transient=passes(error))
        else:
            if manifest is not None:  # else the end of the run ends the request
                self._end_take(request, manifest)
        finally:
            take.done.set()

    def _end_take(self, request: Request, manifest: Manifest) -> None:
        batches = {query.name: query.batch_id for query in manifest.queries}
        detail = f"Savepoint {manifest.savepoint_id} at batches {batches}."
        self._answer(request, "done", detail, savepoint_id=manifest.savepoint_id, batches=batches)

    def _answer(self, request: Request, outcome: Outcome, detail: str, **more: Any) -> None:
        try:
            self._driver.inbox.end(request, outcome, detail, **more)
        except StoreError as error:
            log.warning(
                "Request %s has ended; the inbox has yet to write its end: %s", request.request_id, error
            )

    def begin_stop(self, request: Request) -> None:
        """Stop in a thread of its own."""
        self._driver.begin_end(StopAsked(request))


def _starts_awaited(request: Request, waiting: Sequence[WaitingQuery]) -> list[WaitingQuery]:
    """Return the queries that must run before the request is served.

    A stop that saves waits for those whose last run died in a batch: only a running query can complete that,
    and what the sink has of it could not move to another cluster.
    """
    if request.alignment == "aligned":
        return list(waiting)
    return [one for one in waiting if one.is_half_done and request.command == "stop_with_savepoint"]


def _needs_batches(request: Request) -> bool:
    return request.command != "stop" or request.alignment != "none"
