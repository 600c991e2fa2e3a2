"""One request that holds the queries between two batches: to cut them at the same offsets, or to stop.

What can fail is done while they are held, before anything is final: if it fails, they resume.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.agent.core.board.patience import patiently
from airflow_flinkstyle.agent.core.errors import CutAbandonedError, leaving
from airflow_flinkstyle.agent.core.guards.checks import guard
from airflow_flinkstyle.agent.core.queries.stopping import commit_planned
from airflow_flinkstyle.agent.core.run import barrier
from airflow_flinkstyle.agent.core.run.reasons import Failure, StopAsked
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.errors import PartitionSetError
from airflow_flinkstyle.protocol.cuts import Cut, CutBoard, Positions, furthest
from airflow_flinkstyle.savepoint.errors import TakeCancelledError
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_flinkstyle.agent.core.board.inbox import Take
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.run.driver import Driver
    from airflow_flinkstyle.agent.core.run.taking import Taking
    from airflow_flinkstyle.agent.core.spark import Describe
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.protocol.cuts import Place
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import BatchId, NextOffset

_POLL_S = 0.2
T = TypeVar("T")


class Agreement:
    """A held job's side of a cut: it reports its positions, and follows the decision for all jobs.

    If the caller dies, no job is held for longer than ``hold_s``.
    """

    def __init__(
        self, store: ObjectStore, job: str, cut_id: str, *, hold_s: float, require_wanted: Callable[[], None]
    ) -> None:
        self._cuts, self._job, self._cut_id, self._hold_s = CutBoard(store), job, cut_id, hold_s
        self._require_wanted = require_wanted

    def barrier(self, own: Mapping[Place, NextOffset]) -> dict[Place, NextOffset]:
        """Report this job's positions, and return those at which all jobs stop.

        Raises:
            CutAbandonedError: If the cut was given up, or no barrier came in time.
        """
        patiently(
            lambda: self._cuts.write_held(self._cut_id, self._job, Positions.of(own)), for_s=self._hold_s
        )
        return self._await("barrier", lambda: self._cuts.barrier(self._cut_id)).places()

    def require_complete(self) -> None:
        """Wait until every other job has its savepoint too.

        Raises:
            CutAbandonedError: If the cut was given up, or was not complete in time.
        """
        try:
            self._await("end of the cut", self._complete)
        except FlinkstyleError as error:  # whatever the reason: the others stop by a cut that is complete
            if self.abandon(error.problem).verdict == "abandoned":
                raise

    def abandon(self, reason: str) -> Cut:
        """Give the cut up for all jobs, unless it was decided before; returns what was decided."""
        cut = Cut(cut_id=self._cut_id, verdict="abandoned", members={}, reason=reason, decided_at_ms=now_ms())
        return patiently(lambda: self._cuts.decide(cut), for_s=self._hold_s)

    def _complete(self) -> Cut | None:
        decision = self._cuts.decision(self._cut_id)
        return decision if decision is not None and decision.verdict == "complete" else None

    def _await(self, what: str, read: Callable[[], T | None]) -> T:
        until_s = time.monotonic() + self._hold_s
        while time.monotonic() < until_s:
            self._require_wanted()
            found = patiently(read, for_s=self._hold_s)
            if found is not None:
                return found
            decision = patiently(lambda: self._cuts.decision(self._cut_id), for_s=self._hold_s)
            if decision is not None and decision.verdict == "abandoned":
                raise self._abandoned(decision.reason)
            time.sleep(_POLL_S)
        raise self._abandoned(f"no {what} within the {self._hold_s:g} s that job {self._job} may be held")

    def _abandoned(self, reason: str) -> CutAbandonedError:
        return CutAbandonedError(
            f"Cut {self._cut_id} was expected to be completed by all its jobs, found it abandoned: {reason}",
            state_after="The queries of every job of the cut resume uncut.",
            remedy="Cut the jobs again once all of them run.",
        )


_STATE_AFTER = "The query did not resume after it was held, and the run ends; its checkpoint is as it was."
log = logging.getLogger(__name__)


class HeldCut:
    """Serves one request; if it fails or is cancelled before its end, the queries continue.

    Only a failed savepoint may still end in a stop, if the request chooses so.
    """

    def __init__(self, driver: Driver, take: Take, taking: Taking) -> None:
        self._driver, self._take, self._taking = driver, take, taking
        self._request = take.request
        self._agreement: Agreement | None = None
        if self._request.cut_id is not None:
            self._agreement = Agreement(
                driver.board.store,
                driver.board.job,
                self._request.cut_id,
                hold_s=self._request.hold_s,
                require_wanted=self._require_wanted,
            )

    def run(self) -> Manifest | None:
        """Return the savepoint the job runs on from; None if the end of the run has begun."""
        try:
            if self._request.command == "savepoint":
                return self._savepoint()
            self._stop()
        except Exception as error:
            if self._agreement is not None:
                self._give_up(self._agreement, str(error))
            raise
        return None

    def _savepoint(self) -> Manifest:
        with self._held() as queries:
            batches = self._run_to_barrier(queries)
        return self._capture(batches, runs_on=True)

    def _stop(self) -> None:
        with self._held() as queries:
            aligned = self._request.alignment == "aligned"
            batches = self._run_to_barrier(queries) if aligned else self._commit_planned(queries)
            failed = self._save(batches)
            self._make_final()
            if self._agreement is not None:
                self._agreement.require_complete()
            self._driver.inbox.stopping.set()
            # It returns once the end has begun: before a query continues, or the script starts one.
            self._driver.begin_end(StopAsked(self._request, failed))

    @contextmanager
    def _held(self) -> Iterator[list[JobQuery]]:
        driver = self._driver
        with (
            driver.start_lock,
            driver.held.begin(
                check=self._require_wanted,
                before_start=lambda query: guard_again(
                    driver.describe,
                    query,
                    lease_s=driver.driver_run.claim.lease_s,
                    clock=driver.driver_run.clock,
                ),
                ends=driver.ending.is_set,
                failed=lambda error: driver.begin_end(Failure.of(error)),
            ) as queries,
        ):
            if self._request.alignment == "aligned":
                driver.held.require_all()
            yield queries

    def _run_to_barrier(self, queries: list[JobQuery]) -> dict[str, BatchId]:
        """Let every query commit one batch that ends at the barrier, unless it is there."""
        describe = self._driver.describe
        all_held = [barrier.read_held(describe, query) for query in queries]
        end = furthest(held.places() for held in all_held)
        if self._request.drain:
            end = furthest([end, *(held.ends() for held in all_held)])
        if self._agreement is not None:
            end = self._agreement.barrier(end)
        if self._request.drain or self._agreement is not None:
            # The logs have grown meanwhile.
            all_held = [barrier.read_held(describe, query) for query in queries]
        plans = [barrier.plan_batch(held, end) for held in all_held]
        for query, held, planned in zip(queries, all_held, plans, strict=True):
            barrier.check_batch(query, held, planned)
        self._require_wanted()
        self._driver.held.require_all()
        for query, held, planned in zip(queries, all_held, plans, strict=True):
            if planned is not None:
                query.checkpoint.create(f"offsets/{held.batch_id + 1}", planned.render().encode())
        batches = self._commit_planned(queries)
        log.info("All queries are at the barrier, at batches %s", batches)
        return batches

    def _commit_planned(self, queries: list[JobQuery]) -> dict[str, BatchId]:
        """Let every query commit its planned batch, if it has one; returns the last batch of each."""
        with ThreadPoolExecutor(max_workers=len(queries) or 1, thread_name_prefix="barrier") as pool:
            committed = pool.map(lambda query: commit_planned(query, check=self._require_wanted), queries)
            found = dict(zip((query.name for query in queries), committed, strict=True))
        return {name: batch for name, batch in found.items() if batch is not None}

    def _save(self, batches: Mapping[str, BatchId]) -> Failure | None:
        """Take the savepoint that a stop asks for; returns the failure if the job stops without it."""
        if self._request.savepoint_id is None:
            return None
        try:
            self._capture(batches, runs_on=False)
        except TakeCancelledError:
            raise
        except FlinkstyleError as error:
            if self._request.on_failed_savepoint == "keep_running":
                raise
            log.warning("The job stops without its savepoint: %s", error)
            return Failure.of(error)
        return None

    def _capture(self, batches: Mapping[str, BatchId], *, runs_on: bool) -> Manifest:
        return self._taking.take(self._take, stopped_at=batches, runs_on=runs_on)

    def _require_wanted(self) -> None:
        self._take.require_wanted(f"job {self._driver.board.job}")

    def _make_final(self) -> None:
        """Make the stop one that can no longer be cancelled.

        Raises:
            TakeCancelledError: If a cancel was faster.
        """
        board, generation = self._driver.board, self._driver.driver_run.generation
        slot = patiently(lambda: board.request(generation), for_s=self._request.hold_s)
        if slot is None or slot.value != self._request or not self._driver.inbox.make_final(slot):
            raise TakeCancelledError.of(f"job {self._driver.board.job}")

    def _give_up(self, agreement: Agreement, reason: str) -> None:
        try:
            agreement.abandon(reason)
        except StoreError:
            log.warning("The cut could not be given up in the store; its other jobs wait on", exc_info=True)


def guard_again(describe: Describe, query: JobQuery, *, lease_s: float, clock: Clock) -> None:
    """Guard a query that continues: on the same log, as at every start.

    Had it not been held, brokers that are out of reach for a moment would not have ended it. Nor would
    partitions that are new since its last batch: Spark would have begun to read them by now.
    """
    try:
        with leaving(_STATE_AFTER):
            patiently(lambda: guard(describe, query, {}), for_s=lease_s, clock=clock)
    except PartitionSetError as error:
        log.warning("Query %s resumes, and Spark reads its new partitions: %s", query.name, error.problem)
