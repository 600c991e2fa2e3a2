"""Ask the driver for something through its one request slot, follow it, and take it back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.jobs.errors import RequestBusyError
from airflow_flinkstyle.jobs.status import now_ms
from airflow_flinkstyle.protocol.records import Request
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.protocol.board import JobBoard, Slot
    from airflow_flinkstyle.protocol.records import Heartbeat, Outcome, Progress
    from airflow_flinkstyle.types import Generation, Incarnation

Asked = Literal["savepoint", "stop", "stop_with_savepoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request as a retry finds it again: all of it derives from the key and the incarnation."""

    request_key: str
    request_id: str
    command: Asked
    generation: Generation
    incarnation: Incarnation
    savepoint_id: str | None


@dataclass(frozen=True, slots=True)
class InProgress:
    """The request has not ended; ``progress`` is None until the driver has shown some."""

    progress: Progress | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The request has ended; a stop's ``done`` was read from the heartbeat's ``closed``."""

    outcome: Outcome
    savepoint_id: str | None
    detail: str
    batches: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Lost:
    """The driver process that was asked is not there any more and never will answer."""

    reason: str


RequestState = InProgress | Ended | Lost


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The request was taken back before it had an effect; a late sender finds its slot closed."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """The driver had accepted the stop, or had ended the request, before."""


def request_for(key: str, command: Asked, generation: Generation, incarnation: Incarnation) -> PendingRequest:
    """Derive the request: the same key and incarnation always give the same ids."""
    digest = hashlib.sha256(f"{key}\0{command}\0{generation}\0{incarnation}".encode()).hexdigest()[:20]
    return PendingRequest(
        request_key=key,
        request_id=f"rq-{generation}-{incarnation}-{digest}",
        command=command,
        generation=generation,
        incarnation=incarnation,
        savepoint_id=None if command == "stop" else f"sp-{generation}-{incarnation}-{digest}",
    )


def send(board: JobBoard, pending: PendingRequest, *, confirm: Callable[[], None] | None = None) -> None:
    """Put the request into the slot, or find it there.

    Args:
        board: The job's board.
        pending: What to ask.
        confirm: Called after the slot was read and before it is written; raises if the caller may
            not ask any more. With the conditional write behind it, an attempt that slept in between
            cannot ask for what was settled meanwhile.

    Raises:
        RequestBusyError: If another request has not ended yet, or somebody changed the slot meanwhile.
    """
    slot = board.request(pending.generation)
    if confirm is not None:
        confirm()
    if slot is not None and slot.value.request_id == pending.request_id:
        return
    if board.end(pending.generation, pending.request_id) is not None:
        return
    if slot is not None and _is_busy(board, pending, slot):
        raise _busy(slot.value.request_id)
    request = Request(
        request_id=pending.request_id,
        incarnation=pending.incarnation,
        command=pending.command,
        state="sent",
        savepoint_id=pending.savepoint_id,
        sent_at_ms=now_ms(),
    )
    try:
        board.put_request(pending.generation, request, seen=slot)
    except (ObjectChangedError, ObjectExistsError) as error:
        raise _busy("another caller's or the driver's") from error


def _is_busy(board: JobBoard, pending: PendingRequest, slot: Slot[Request]) -> bool:
    other = slot.value
    if other.incarnation != pending.incarnation or other.state == "cancelled":
        return False
    if pending.command != "savepoint" and other.command == "savepoint":
        return False  # a stop supersedes a running take
    return board.end(pending.generation, other.request_id) is None


def _busy(other: str) -> RequestBusyError:
    return RequestBusyError(
        f"The request slot was expected to be free, found request {other} that has not ended.",
        left="Nothing was asked; the other request goes on.",
        remedy="Wait until it has ended, or cancel it, then ask again.",
    )


def poll(board: JobBoard, pending: PendingRequest) -> RequestState:
    """Return how far the request is, by the records alone."""
    slot = board.heartbeat(pending.generation)
    heartbeat = slot.value if slot else None
    end = board.end(pending.generation, pending.request_id)
    if pending.command != "savepoint" and heartbeat is not None and heartbeat.state == "closed":
        return _from_closed(pending, heartbeat)
    if end is not None and end.outcome == "lost":
        return Lost(end.detail)
    if end is not None and (pending.command == "savepoint" or end.outcome != "done"):
        return Ended(
            outcome=end.outcome, savepoint_id=end.savepoint_id, detail=end.detail, batches=end.batches
        )
    if _is_withdrawn(board, pending):
        return Ended(outcome="cancelled", savepoint_id=None, detail="It was cancelled.", batches={})
    if heartbeat is None or heartbeat.incarnation > pending.incarnation:
        return Lost(f"A later driver process than incarnation {pending.incarnation} has begun.")
    if heartbeat.state == "failed":
        code, text = heartbeat.error or ("UNKNOWN", "no reason given")
        return Ended(outcome="failed", savepoint_id=None, detail=f"{code}: {text}", batches={})
    if heartbeat.state == "closed":
        return Lost("The run has closed before it acted on the request.")
    return InProgress(board.progress(pending.generation, pending.request_id))


def _from_closed(pending: PendingRequest, heartbeat: Heartbeat) -> Ended:
    """A stop is believed from ``closed`` only; which request closed it tells whose savepoint it is."""
    mine = heartbeat.request_id == pending.request_id
    return Ended(
        outcome="done",
        savepoint_id=heartbeat.savepoint_id if mine else None,
        detail="Closed by this request." if mine else f"Closed by {heartbeat.request_id or 'the script'}.",
        batches=heartbeat.batches(),
    )


def _is_withdrawn(board: JobBoard, pending: PendingRequest) -> bool:
    slot = board.request(pending.generation)
    if slot is None or slot.value.request_id != pending.request_id:
        return False
    return slot.value.command == "none" and slot.value.state == "cancelled"


def withdraw(board: JobBoard, pending: PendingRequest) -> Withdrawn | TooLate:
    """Cancel by the same replace that the driver accepts by, so that exactly one of them wins.

    An empty slot, or one that holds something older, is closed too: a sender that slept cannot fill it.
    """
    while True:
        slot = board.request(pending.generation)
        mine = slot is not None and slot.value.request_id == pending.request_id
        if slot is not None and mine and slot.value.state == "cancelled":
            return Withdrawn()
        if board.end(pending.generation, pending.request_id) is not None:
            return TooLate()
        if slot is not None and mine and slot.value.state == "accepted" and pending.command != "savepoint":
            return TooLate()
        if slot is not None and not mine and _is_busy(board, pending, slot):
            return Withdrawn()  # a late sender's replace fails: the slot has changed since it looked
        cancelled = Request(
            request_id=pending.request_id,
            incarnation=pending.incarnation,
            command=pending.command if mine else "none",
            state="cancelled",
            savepoint_id=pending.savepoint_id,
            sent_at_ms=now_ms(),
        )
        try:
            board.put_request(pending.generation, cancelled, seen=slot)
        except (ObjectChangedError, ObjectExistsError):
            continue
        return Withdrawn()
