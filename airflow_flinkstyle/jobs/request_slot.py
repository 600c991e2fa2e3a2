"""Ask the driver for something through its one request slot, follow it, and take it back."""

from __future__ import annotations

import hashlib
import itertools
import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import RequestBusyError
from airflow_flinkstyle.protocol.records import Request
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.types import Alignment, OnFailedSavepoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.protocol.board import JobBoard, Slot
    from airflow_flinkstyle.protocol.records import End, Heartbeat, Outcome, Progress
    from airflow_flinkstyle.types import Generation, Incarnation


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
    transient: bool = False
    """It failed for a reason that may pass: asking again makes a new request."""
    savepoint_error: str | None = None
    """Why a stop that may do without its savepoint has none."""


CHANGED_NOTHING: Final[frozenset[Outcome]] = frozenset({"failed", "refused"})
"""Outcomes after which the same can be asked again."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The driver process that was asked has gone and will never answer."""

    reason: str


RequestState = InProgress | Ended | Lost


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The request was taken back before it had an effect; a late sender finds its slot closed."""


@dataclass(frozen=True, slots=True)
class TooLate:
    """The driver had already accepted the stop, or ended the request."""


# A request's key: who asks, and what. The same caller who asks for something else makes another request.


def digest_of(*who: str, asked: Mapping[str, Any] | None = None) -> str:
    """Return a short digest of who asks for what; a retry with an equal one finds the same request.

    Args:
        who: The caller without the try number, in parts.
        asked: What a retry must ask for too; not how long to wait, or how to do it.
    """
    parts = list(who)
    if asked:
        parts.append(json.dumps({**asked}, sort_keys=True, default=str))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


Asked = Literal["savepoint", "stop", "stop_with_savepoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutMode:
    """Where the queries of the job are cut; the fields are those of the protocol's ``Request``."""

    alignment: Alignment = "none"
    drain: bool = False
    """Stop where the inputs end once the queries are held; aligned only."""
    cut_id: str | None = None
    """The cut of several jobs that this one takes part in; aligned only."""
    hold_s: float = 60.0
    """How long the job may be held for the others."""
    on_failed_savepoint: OnFailedSavepoint = "keep_running"
    """What a stop does whose savepoint fails."""
    timeout_s: float | None = None
    """How long the caller waits, and so the driver tries; None: as long as the driver likes."""

    def __post_init__(self) -> None:
        """Refuse what the driver would not understand.

        Raises:
            BadInputError: If there is no such alignment, or a drain or a cut of several jobs is asked for
                without.
        """
        if self.alignment not in get_args(Alignment):
            raise BadInputError(
                f"An alignment of {' or '.join(get_args(Alignment))} was expected, found {self.alignment!r}.",
                state_after="Nothing was asked of the job.",
                remedy="Choose one of these.",
            )
        if self.alignment == "none" and (self.drain or self.cut_id is not None):
            raise BadInputError(
                "An aligned cut was expected where inputs are drained or several jobs cut together, "
                "found alignment none.",
                state_after="Nothing was asked of the job.",
                remedy="Pass alignment='aligned'.",
            )
        if self.on_failed_savepoint not in get_args(OnFailedSavepoint) or (
            self.cut_id is not None and self.on_failed_savepoint == "close"
        ):
            raise BadInputError(
                f"An on_failed_savepoint of {' or '.join(get_args(OnFailedSavepoint))} was expected, and "
                "keep_running where several jobs are cut together, found "
                f"{self.on_failed_savepoint!r}{' for such a cut' if self.cut_id is not None else ''}.",
                state_after="Nothing was asked of the job.",
                remedy="Choose one of these.",
            )


AS_IT_IS = CutMode()
"""Each query at its own last batch."""

DRAINED = CutMode(alignment="aligned", drain=True)
"""All queries at the ends of their inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request as a retry finds it again: all of it derives from the key and the incarnation."""

    request_key: str
    request_id: str
    command: Asked
    generation: Generation
    incarnation: Incarnation
    savepoint_id: str | None
    alignment: Alignment = "none"
    drain: bool = False
    cut_id: str | None = None
    hold_s: float = 60.0
    on_failed_savepoint: OnFailedSavepoint = "keep_running"
    timeout_s: float | None = None
    found: bool = field(default=False, compare=False)
    """Whether an earlier try sent it: what made that one fail may be corrected by now."""

    @property
    def mode(self) -> CutMode:
        """Where the queries are cut."""
        return CutMode(
            alignment=self.alignment,
            drain=self.drain,
            cut_id=self.cut_id,
            hold_s=self.hold_s,
            on_failed_savepoint=self.on_failed_savepoint,
            timeout_s=self.timeout_s,
        )


def request_for(
    key: str,
    command: Asked,
    generation: Generation,
    incarnation: Incarnation,
    mode: CutMode = AS_IT_IS,
    *,
    attempt: int = 1,
) -> PendingRequest:
    """Derive the request: the same key, incarnation, mode and attempt always give the same ids.

    The time-out does not count: a retry with another one finds the same request.
    """
    asked = [key, command, str(generation), str(incarnation)]
    if replace(mode, timeout_s=None) != AS_IT_IS:
        asked += [mode.alignment, str(mode.drain), str(mode.cut_id)]
    if mode.on_failed_savepoint != "keep_running":
        asked.append(mode.on_failed_savepoint)
    if attempt > 1:
        asked.append(f"attempt {attempt}")
    digest = hashlib.sha256("\0".join(asked).encode()).hexdigest()[:20]
    return PendingRequest(
        request_key=key,
        request_id=f"rq-{generation}-{incarnation}-{digest}",
        command=command,
        generation=generation,
        incarnation=incarnation,
        savepoint_id=None if command == "stop" else f"sp-{generation}-{incarnation}-{digest}",
        **asdict(mode),
    )


def key_of_kill(claim_key: str) -> str:
    """Return the key of the stop that is asked for when the task of a start is killed."""
    return f"{claim_key}-killed"


def newest_attempt(
    board: JobBoard,
    key: str,
    command: Asked,
    generation: Generation,
    incarnation: Incarnation,
    mode: CutMode = AS_IT_IS,
) -> PendingRequest:
    """Return the first request of this key that has not ended without a change.

    After a failure that may pass a retry makes the next one; after one that lasts, a person who has corrected
    the cause and clears the task.
    """
    for attempt in itertools.count(1):
        pending = request_for(key, command, generation, incarnation, mode, attempt=attempt)
        end = board.end(generation, pending.request_id)
        if end is None or end.outcome not in CHANGED_NOTHING:
            return pending
    raise AssertionError("counting never ends")


def send(board: JobBoard, pending: PendingRequest, *, confirm: Callable[[], None] | None = None) -> bool:
    """Put the request into the slot, or find it there; returns whether it was put there by this call.

    Args:
        board: The job's board.
        pending: The request.
        confirm: Called between reading and writing the slot; raises if the caller may not ask any more. As
            the write is conditional, an attempt that slept in between cannot ask for what was settled
            meanwhile.

    Raises:
        RequestBusyError: If another request has not ended yet, or the slot has changed meanwhile.
    """
    slot = board.request(pending.generation)
    if confirm is not None:
        confirm()
    if slot is not None and slot.value.request_id == pending.request_id:
        return False
    if board.end(pending.generation, pending.request_id) is not None:
        return False
    if slot is not None and _is_busy(board, pending, slot):
        raise _busy(slot.value.request_id)
    request = Request(
        request_id=pending.request_id,
        incarnation=pending.incarnation,
        command=pending.command,
        state="sent",
        savepoint_id=pending.savepoint_id,
        sent_at_ms=now_ms(),
        **asdict(pending.mode),
    )
    try:
        board.put_request(pending.generation, request, seen=slot)
    except (ObjectChangedError, ObjectExistsError) as error:
        raise _busy("another caller's or the driver's") from error
    return True


def ask_to_attend(board: JobBoard, heartbeat: Heartbeat, generation: Generation, seconds: float) -> None:
    """Tell a running driver that a stop will follow, if its slot is free: it then reads it more often.

    Args:
        board: The job's board.
        heartbeat: The driver's newest.
        generation: Its generation.
        seconds: For how long it reads more often.
    """
    slot = board.request(generation)
    notice = Request(
        request_id=f"rq-{generation}-{heartbeat.incarnation}-attend-{now_ms()}",
        incarnation=heartbeat.incarnation,
        command="none",
        state="cancelled",
        savepoint_id=None,
        sent_at_ms=now_ms(),
        attend_s=seconds,
    )
    in_use = slot is not None and slot.value.state != "cancelled"
    if slot is not None and in_use and board.end(generation, slot.value.request_id) is None:
        return
    with suppress(ObjectChangedError, ObjectExistsError):  # another request was sent meanwhile
        board.put_request(generation, notice, seen=slot)


def _is_busy(board: JobBoard, pending: PendingRequest, slot: Slot[Request]) -> bool:
    other = slot.value
    if other.incarnation != pending.incarnation or other.state == "cancelled":
        return False
    if pending.command != "savepoint" and other.command == "savepoint":
        return False  # a stop supersedes a savepoint under way
    return board.end(pending.generation, other.request_id) is None


def _busy(other: str) -> RequestBusyError:
    return RequestBusyError(
        f"The request slot was expected to be free, found request {other} that has not ended.",
        state_after="Nothing was asked; the other request continues.",
        remedy="Wait until it has ended, or cancel it, then ask again.",
    )


def poll(board: JobBoard, pending: PendingRequest) -> RequestState:
    """Return how far the request is, from the records alone."""
    slot = board.heartbeat(pending.generation)
    heartbeat = slot.value if slot else None
    end = board.end(pending.generation, pending.request_id)
    if (
        pending.command != "savepoint"
        and heartbeat is not None
        and heartbeat.state == "closed"
        and not heartbeat.told_to_end  # the job is started again, and the next driver must be asked
    ):
        return _from_closed(pending, heartbeat, end)
    if end is not None and end.outcome == "lost":
        return Lost(end.detail)
    if end is not None and (pending.command == "savepoint" or end.outcome != "done"):
        return Ended(
            outcome=end.outcome,
            savepoint_id=end.savepoint_id,
            detail=end.detail,
            batches=end.batches,
            transient=end.transient,
        )
    if _is_withdrawn(board, pending):
        return Ended(outcome="cancelled", savepoint_id=None, detail="It was cancelled.", batches={})
    if heartbeat is None or heartbeat.incarnation > pending.incarnation:
        return Lost(f"A later driver process than incarnation {pending.incarnation} has begun.")
    if heartbeat.state == "failed":
        code, text = heartbeat.error or ("UNKNOWN", "no reason given")
        if heartbeat.transient:
            return Lost(f"The run has failed for a reason that may pass: {code}: {text}")
        return Ended(outcome="failed", savepoint_id=None, detail=f"{code}: {text}", batches={})
    if heartbeat.state == "closed":
        return Lost("The run has closed before it acted on the request.")
    return InProgress(board.progress(pending.generation, pending.request_id))


def _from_closed(pending: PendingRequest, heartbeat: Heartbeat, end: End | None) -> Ended:
    """Return the end of a stop: only a ``closed`` heartbeat proves it, and names the request that closed.

    A stop that was to make a savepoint and did not reports why, also if another request closed the run.
    """
    mine = heartbeat.request_id == pending.request_id
    by = "this request" if mine else heartbeat.request_id or "the script"
    failure = ": ".join(heartbeat.error) if mine and heartbeat.error is not None else None
    if pending.savepoint_id is not None and not (mine and heartbeat.savepoint_id):
        failure = failure or (end.detail if end is not None else "") or f"The run was closed by {by}."
    return Ended(
        outcome="done",
        savepoint_id=heartbeat.savepoint_id if mine else None,
        detail=f"Closed by {by}.",
        batches=heartbeat.batches(),
        savepoint_error=failure,
    )


def _is_withdrawn(board: JobBoard, pending: PendingRequest) -> bool:
    slot = board.request(pending.generation)
    if slot is None or slot.value.request_id != pending.request_id:
        return False
    return slot.value.command == "none" and slot.value.state == "cancelled"


def withdraw(board: JobBoard, pending: PendingRequest) -> Withdrawn | TooLate:
    """Cancel a request by a conditional write, as the driver accepts it by one: exactly one of them wins.

    An empty slot, or one with an older request, is closed too, so that a sender that slept cannot fill it.
    """
    while True:
        slot = board.request(pending.generation)
        mine = slot is not None and slot.value.request_id == pending.request_id
        if slot is not None and mine and slot.value.state == "cancelled":
            return Withdrawn()
        if board.end(pending.generation, pending.request_id) is not None:
            return TooLate()
        if slot is not None and mine and not slot.value.may_be_cancelled:
            return TooLate()
        if slot is not None and not mine and _is_busy(board, pending, slot):
            return Withdrawn()  # a late sender's write fails: the slot has changed since it read it
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
