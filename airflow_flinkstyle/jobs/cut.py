"""Cut several jobs at the same offsets: hold them all, agree on one barrier, count the cut last.

Every job is held between two batches and reports its positions; the furthest position of all is the barrier;
each runs to it and takes its savepoint. Only then the cut's record is created. If anything goes wrong before,
the same record is created as ``abandoned``, and every job continues uncut; this caller creates it then, or an
agent that failed or was held for longer than ``hold_s``.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.jobs.errors import CUT_FAILED
from airflow_flinkstyle.jobs.request_slot import CutMode, Ended, Lost, PendingRequest
from airflow_flinkstyle.jobs.status import Closed, Running, describe_status
from airflow_flinkstyle.protocol.cuts import Cut, CutBoard, Positions, furthest
from airflow_flinkstyle.storage.errors import ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_flinkstyle.clock import Wait
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.request_slot import Asked
    from airflow_flinkstyle.storage.base import ObjectStore

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsCut:
    """Savepoints of several jobs that belong together."""

    cut_id: str
    savepoints: Mapping[str, str]
    """Job -> savepoint id."""
    not_stopped: Mapping[str, str] = field(default_factory=dict)
    """Job -> its status, for jobs that did not stop; empty if none was to stop."""


def cut_together(
    clients: Sequence[JobClient], key: str, *, stop: bool = False, timeout_s: float, hold_s: float = 60.0
) -> JobsCut:
    """Take savepoints of several running jobs at the same offsets, and let all continue, or stop all.

    Args:
        clients: The jobs, all under one savepoint root.
        key: The caller, without the try number: a retry continues the same cut unless it was abandoned.
        stop: Stop the jobs once the cut is complete.
        timeout_s: How long all of it may take.
        hold_s: How long a job may be held for the others.

    Raises:
        BadInputError: If the jobs do not share a root, or one is named twice.
        JobError: ``CUT_FAILED`` if a job failed or was too slow; all continue uncut.
        JobError: If a job does not run or is busy; all continue uncut.
    """
    _require_one_root(clients)
    cuts = CutBoard(clients[0].view.board.store)
    cut_id = _cut_id(cuts, key)
    wait = clients[0].view.waiting(timeout_s)
    cut = cuts.decision(cut_id)
    if cut is None:
        mode = CutMode(alignment="aligned", cut_id=cut_id, hold_s=hold_s, timeout_s=timeout_s)
        cut = _Attempt(clients, cuts, cut_id, wait).run(key, mode, stop=stop)
    log.info("Cut %s is complete: %s", cut.cut_id, dict(cut.members))
    not_stopped = _await_closed(clients, cut, wait) if stop else {}
    return JobsCut(cut_id=cut.cut_id, savepoints=cut.members, not_stopped=not_stopped)


def find_cut(store: ObjectStore, cut_id: str) -> Cut | None:
    """Return the complete cut of this id; None if it was abandoned or is not decided."""
    cut = CutBoard(store).decision(cut_id)
    return cut if cut is not None and cut.verdict == "complete" else None


def _require_one_root(clients: Sequence[JobClient]) -> None:
    jobs, roots = (
        [client.view.job for client in clients],
        {client.view.board.store.uri for client in clients},
    )
    if not jobs or len(set(jobs)) != len(jobs) or len(roots) != 1:
        raise BadInputError(
            f"Jobs under one savepoint root, each once, were expected, found {jobs} under {sorted(roots)}.",
            state_after="Nothing was asked of any job.",
            remedy="Name each job once, and give all of them the same savepoint root.",
        )


def _cut_id(cuts: CutBoard, key: str) -> str:
    """Return the id of the caller's cut that was not abandoned."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:20]
    ids = (f"cut-{digest}-{attempt}" for attempt in itertools.count(1))
    return next(
        cut_id for cut_id in ids if (cut := cuts.decision(cut_id)) is None or cut.verdict == "complete"
    )


class _Attempt:
    """One cut, from the first request to its decision."""

    def __init__(self, clients: Sequence[JobClient], cuts: CutBoard, cut_id: str, wait: Wait) -> None:
        self._clients, self._cuts, self._cut_id, self._wait = clients, cuts, cut_id, wait
        self._asked: list[tuple[JobClient, PendingRequest]] = []

    def run(self, key: str, mode: CutMode, *, stop: bool) -> Cut:
        """Return the complete cut; if it cannot be, or this caller is interrupted, abandon it first."""
        try:
            cut = self._cut(key, mode, stop=stop)
        except BaseException as error:
            decided = self._abandon(str(error) or type(error).__name__)
            interrupted = not isinstance(error, Exception)  # by Ctrl-C, or the time-out of a task
            if interrupted or decided is None or decided.verdict == "abandoned":
                raise
            return decided  # by another attempt of the same caller
        if cut.verdict == "abandoned":
            raise self._failed(cut.reason)
        return cut

    def _cut(self, key: str, mode: CutMode, *, stop: bool) -> Cut:
        command: Asked = "stop_with_savepoint" if stop else "savepoint"
        for client in self._clients:
            self._asked.append((client, client.requests.request(f"{key}/{self._cut_id}", command, mode=mode)))
        held = self._await(lambda client, _: self._cuts.held(self._cut_id, client.view.job), "is held")
        with contextlib.suppress(ObjectExistsError):  # an earlier attempt created it
            barrier = furthest(positions.places() for positions in held)
            self._cuts.create_barrier(self._cut_id, Positions.of(barrier))
        saved = self._await(lambda client, pending: client.requests.published(pending), "has its savepoint")
        return self._cuts.decide(
            Cut(
                cut_id=self._cut_id,
                verdict="complete",
                members={manifest.job: manifest.savepoint_id for manifest in saved},
                reason="",
                decided_at_ms=now_ms(),
            )
        )

    def _await(self, read: Callable[[JobClient, PendingRequest], T | None], what: str) -> list[T]:
        """Wait until ``read`` returns a value for every job; the first job that fails ends it."""
        while True:
            found = [read(client, pending) for client, pending in self._asked]
            if all(value is not None for value in found):
                return [value for value in found if value is not None]
            for value, (client, pending) in zip(found, self._asked, strict=True):
                if value is None:
                    self._require_in_progress(client, pending)
            if not self._wait.again():
                missing = [
                    c.view.job for value, (c, _) in zip(found, self._asked, strict=True) if value is None
                ]
                raise self._failed(f"time was up before {', '.join(missing)} {what}")

    def _require_in_progress(self, client: JobClient, pending: PendingRequest) -> None:
        match client.requests.poll(pending):
            case Lost(reason):
                raise self._failed(f"job {client.view.job}: {reason}")
            case Ended(outcome=outcome, detail=detail) if outcome != "done":
                raise self._failed(f"job {client.view.job}: {outcome}: {detail}")

    def _abandon(self, reason: str) -> Cut | None:
        cut = Cut(cut_id=self._cut_id, verdict="abandoned", members={}, reason=reason, decided_at_ms=now_ms())
        try:
            decided = self._cuts.decide(cut)
        except FlinkstyleError:
            log.warning("The jobs of cut %s resume once they were held too long", self._cut_id, exc_info=True)
            return None
        if decided.verdict == "abandoned":
            for client, pending in self._asked:
                with contextlib.suppress(FlinkstyleError):  # the decision tells it, too
                    client.requests.cancel(pending)
        return decided

    def _failed(self, reason: str) -> FlinkstyleError:
        jobs = ", ".join(client.view.job for client in self._clients)
        return CUT_FAILED.with_text(
            f"The jobs {jobs} were expected to be cut together as {self._cut_id}, found that "
            f"{reason.removesuffix('.')}.",
            state_after="All jobs resume uncut; savepoints taken for this cut are ordinary ones.",
            remedy="Correct what is named, then cut again.",
        )


def _await_closed(clients: Sequence[JobClient], cut: Cut, wait: Wait) -> dict[str, str]:
    """Wait until every job has closed with its savepoint of the cut; returns the status of the others."""
    not_stopped: dict[str, str] = {}
    for client in clients:
        while True:
            status = client.view.status()
            ended = (
                isinstance(status, Closed) and status.heartbeat.savepoint_id == cut.members[client.view.job]
            )
            if ended:
                break
            if not isinstance(status, Running) or not wait.again():
                not_stopped[client.view.job] = describe_status(status)
                break
    return not_stopped
