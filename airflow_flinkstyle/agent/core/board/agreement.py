"""A held job's side of a cut of several jobs: say where it is, and obey what is decided for all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.agent.core.board.patience import patiently
from airflow_flinkstyle.agent.core.errors import CutAbandonedError
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.cuts import Cut, CutBoard, Positions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.protocol.cuts import Place
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import NextOffset

_POLL_S = 0.2
T = TypeVar("T")


class Agreement:
    """One cut, seen by one job; a caller that dies holds nobody for longer than ``hold_s``."""

    def __init__(
        self, store: ObjectStore, job: str, cut_id: str, *, hold_s: float, require_wanted: Callable[[], None]
    ) -> None:
        self._cuts, self._job, self._cut_id, self._hold_s = CutBoard(store), job, cut_id, hold_s
        self._require_wanted = require_wanted

    def barrier(self, own: Mapping[Place, NextOffset]) -> dict[Place, NextOffset]:
        """Say where this job is, and return where all of them are to stop.

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
        except CutAbandonedError as error:
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
