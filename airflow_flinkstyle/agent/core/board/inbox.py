"""The request slot: accepted before it is acted on, ended exactly once."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from airflow_flinkstyle.agent.core.board.patience import patiently
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.records import End
from airflow_flinkstyle.savepoint.errors import TAKE_TIMED_OUT, TakeCancelledError
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.protocol.board import JobBoard, Slot
    from airflow_flinkstyle.protocol.records import Outcome, Request
    from airflow_flinkstyle.types import Generation, Incarnation

POLL_S, ATTENTIVE_POLL_S = 0.3, 0.05
MOST_ATTENTION_S = 3600.0
END_PATIENCE_S = 60.0
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Take:
    """A request under way that does not always end the job: if it fails or is cancelled, the job runs on."""

    request: Request
    since_s: float = field(default_factory=time.monotonic)
    """When the agent first saw the request, by the monotonic clock."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def remaining_s(self) -> float | None:
        """Return for how long the caller still waits, at least zero; None without a time-out."""
        timeout_s = self.request.timeout_s
        return None if timeout_s is None else max(timeout_s - (time.monotonic() - self.since_s), 0.0)

    def require_wanted(self, what: str) -> None:
        """Raise if the request was cancelled, or if its caller waits no more."""
        if self.cancelled.is_set():
            raise TakeCancelledError.of(what)
        if self.remaining_s() == 0:
            raise TAKE_TIMED_OUT.error(what=what, timeout_s=self.request.timeout_s or 0)


class Worker(Protocol):
    """Judges and serves the requests that the inbox finds."""

    def refusal(self, request: Request) -> str | None:
        """Return why the request cannot be served in this state; None if it can."""

    def is_ready(self, request: Request) -> bool:
        """Return whether a request can be judged now; False for the moment of a takeover, for example."""

    def begin_take(self, take: Take) -> None:
        """Take a savepoint, or hold, save and stop, in a thread; ends the request and sets ``take.done``."""

    def begin_stop(self, request: Request) -> None:
        """Stop in a thread; ends the request."""


class Inbox(threading.Thread):
    """Polls the slot; most polls are answered with "unchanged"."""

    def __init__(
        self, board: JobBoard, generation: Generation, incarnation: Incarnation, worker: Worker
    ) -> None:
        super().__init__(name="flinkstyle-inbox", daemon=True)
        self.take: Take | None = None
        self.stopping = threading.Event()
        self._board, self._generation, self._incarnation = board, generation, incarnation
        self._worker = worker
        self._read: str | None = None
        self._acted_on: set[str] = set()
        self._owed: dict[str, End] = {}
        """Request id -> its end, which the store has not taken yet."""
        self._seen: tuple[str, float] = ("", 0.0)
        """The id of the newest request, and when it was first seen."""
        self._attends_until_s = 0.0
        """By the monotonic clock."""

    def run(self) -> None:
        """Poll until a stop was accepted."""
        pause = threading.Event()
        while not self.stopping.is_set():
            pause.wait(self.poll_s())
            try:
                self.poll()
            except Exception:  # a driver that reads no more requests could not be stopped
                log.warning("The request slot could not be served; it is read again", exc_info=True)

    def poll_s(self) -> float:
        """Return how long to wait until the next poll: less if a caller has announced a stop."""
        return ATTENTIVE_POLL_S if time.monotonic() < self._attends_until_s else POLL_S

    def poll(self) -> None:
        """Read the slot once, and act on a new request."""
        slot = self._board.request(self._generation, unless=self._read)
        if slot is not None and self._seen[0] != slot.value.request_id:
            self._seen = (slot.value.request_id, time.monotonic())
            if slot.value.incarnation == self._incarnation:
                self._attends_until_s = time.monotonic() + min(slot.value.attend_s, MOST_ATTENTION_S)
        if slot is not None and self._is_dealt_with(slot):
            self._read = slot.version
        for end in list(self._owed.values()):
            self._write_end(end)

    def make_final(self, slot: Slot[Request]) -> bool:
        """Make a stop one that can no longer be cancelled, by the replace that a cancel would use.

        Returns:
            False if the slot has changed since: by a cancel, or by this inbox, which has accepted the stop.
        """
        try:
            self._board.put_request(self._generation, replace(slot.value, state="closing"), seen=slot)
        except ObjectChangedError:
            log.info("Request %s was cancelled or accepted at the last moment", slot.value.request_id)
            return False
        return True

    def cancel_take(self) -> None:
        """Cancel a running take and wait until it has ended."""
        take = self.take
        if take is not None:
            take.cancelled.set()
            take.done.wait()

    def end(
        self,
        request: Request,
        outcome: Outcome,
        detail: str,
        *,
        savepoint_id: str | None = None,
        batches: Mapping[str, int] | None = None,
        transient: bool = False,
    ) -> None:
        """End a request; a repeated end changes nothing.

        Raises:
            StoreError: If the store does not take the end for a minute. While the driver lives it is written
                later: only this driver can write it, and without it the caller could make no other request.
        """
        end = self._owed[request.request_id] = End(
            request_id=request.request_id,
            outcome=outcome,
            savepoint_id=savepoint_id,
            detail=detail,
            ended_at_ms=now_ms(),
            batches=batches or {},
            transient=transient,
        )
        patiently(lambda: self._write_end(end), for_s=END_PATIENCE_S)

    def _write_end(self, end: End) -> None:
        try:
            self._board.create_end(self._generation, end)
        except ObjectExistsError:
            log.info("Request %s had ended before", end.request_id)
        else:
            log.info("Request %s: %s. %s", end.request_id, end.outcome, end.detail)
        self._owed.pop(end.request_id, None)

    def _is_dealt_with(self, slot: Slot[Request]) -> bool:
        """Act on the slot; False to read the same version again."""
        request = slot.value
        running = self.take if self.take is not None and not self.take.done.is_set() else None
        if request.command == "none" or request.incarnation > self._incarnation:
            return True
        if running is not None and running.request.request_id == request.request_id:
            if request.state == "cancelled":
                log.info("Request %s was cancelled", request.request_id)
                running.cancelled.set()
            return True
        if request.request_id in self._acted_on:
            return True  # its end is on the way, also a stop's whose take is over
        if self._board.end(self._generation, request.request_id) is not None:
            return True
        if request.incarnation < self._incarnation:
            self.end(request, "lost", f"Incarnation {request.incarnation} ended before it could act on it.")
            return True
        if request.state == "cancelled":
            self.end(request, "cancelled", "It was cancelled before the driver accepted it.")
            return True
        if request.state == "accepted":
            self._act(request)  # the store's answer to the accept was lost
            return True
        if not self._worker.is_ready(request) or self._waits_for(running, request):
            return False
        return self._accept(slot)

    def _waits_for(self, running: Take | None, request: Request) -> bool:
        """Return whether a take must end first; a stop that may be undone cancels it."""
        if running is None or not request.may_be_undone:
            return False
        if request.command != "savepoint":
            running.cancelled.set()
        return True

    def _accept(self, slot: Slot[Request]) -> bool:
        request = replace(slot.value, state="accepted")
        refusal = self._worker.refusal(request)
        if refusal is not None:
            self.end(request, "refused", refusal)
            return True
        try:
            self._board.put_request(self._generation, request, seen=slot)
        except ObjectChangedError:
            return False  # cancelled or replaced meanwhile, or accepted by a write that seemed to fail
        self._act(request)
        return True

    def _act(self, request: Request) -> None:
        self._acted_on.add(request.request_id)
        if request.may_be_undone:
            self.take = Take(request, self._seen[1])
            self._worker.begin_take(self.take)
        else:
            self.stopping.set()
            self._worker.begin_stop(request)
