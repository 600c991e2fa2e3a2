"""How a driver process comes to run a job: incarnation, wait for the predecessor, ``current.json``."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.agent.core.board.patience import patiently
from airflow_flinkstyle.agent.core.errors import NOT_CLAIMED, NOT_STARTED
from airflow_flinkstyle.clock import LEASE_CLOCK
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol import signatures
from airflow_flinkstyle.protocol.errors import PREDECESSOR
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.records import AsRecorded, Claim, Current, DriverEnd, TakeoverOrder
from airflow_flinkstyle.protocol.table_records import TablesToRestore
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.types import Incarnation
from airflow_flinkstyle.wording import batch_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.agent.core.board.patience import Patience
    from airflow_flinkstyle.agent.core.process import Process
    from airflow_flinkstyle.clock import Clock
    from airflow_flinkstyle.protocol.board import JobBoard, Slot
    from airflow_flinkstyle.protocol.records import Heartbeat, IncarnationRecord
    from airflow_flinkstyle.types import Generation

GO_POLL_S, LATER_POLL_S = 0.05, 0.25
PROMPT_S = 600.0
"""How long a driver polls for its order every ``GO_POLL_S``: the job may be down meanwhile."""
_CLAIM_PATIENCE_S: Final = 30.0
"""How long to wait for the store until the claim is read, which holds the lease."""
log = logging.getLogger(__name__)


class NotOursError(Exception):
    """The job is not this process's to run: it exits 0, having changed nothing. No failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRun:
    """One driver process that has begun."""

    generation: Generation
    incarnation: Incarnation
    claim: Claim
    prior: Slot[Heartbeat] | None
    """The heartbeat of an earlier incarnation of this generation."""
    seen: Slot[Current] | None
    """``current.json`` before any lease was waited for."""
    order_keys: tuple[str, ...] = ()
    """Keys, one of which must have signed the takeover order; empty if the caller gave the driver none."""
    clock: Clock = LEASE_CLOCK
    """By which it waits."""

    @property
    def last_heartbeat(self) -> Heartbeat | None:
        """The last heartbeat of an earlier incarnation of this generation."""
        return self.prior.value if self.prior else None


def begin(
    board: JobBoard,
    generation: Generation,
    process: Process,
    *,
    submit: int = 0,
    claim: Claim | None = None,
    order_keys: tuple[str, ...] = (),
    clock: Clock = LEASE_CLOCK,
) -> DriverRun:
    """Begin an incarnation, after the earlier ones of this generation have ended.

    Args:
        board: The job's records.
        generation: Which to run.
        process: This one.
        submit: The submit that this process was started by; 0 if there is none.
        claim: What ``submitted_claim`` found; None to read it.
        order_keys: What its takeover order is signed with.
        clock: By which it waits, now and later.

    Raises:
        NotOursError: If the generation has closed, another one runs the job, or this one has a driver.
        FlinkstyleError: ``NOT_CLAIMED`` if no caller claimed the generation.
    """
    claim = claim or patiently(lambda: board.claim(generation), for_s=_CLAIM_PATIENCE_S, clock=clock)
    if claim is None:
        raise _not_claimed(board, generation)
    lease_s = claim.lease_s
    read: Patience = partial(patiently, for_s=lease_s, clock=clock)
    require_not_closed(read(lambda: board.heartbeat(generation)))
    seen = read(board.current)
    require_may_take_over(seen, generation, claim)
    read(lambda: require_newest(board, generation, submit))
    record = replace(process.record(), submit=submit)
    incarnation = _next_incarnation(board, generation, record, read)
    prior = read(lambda: board.heartbeat(generation))
    if prior is not None or (seen is not None and seen.value.generation == generation):
        prior = _await_earlier(board, generation, lease_s, order_keys, clock)
        require_not_closed(prior)
    read(lambda: require_newest(board, generation, submit))  # a newer submit may have come
    return DriverRun(
        generation=generation,
        incarnation=incarnation,
        claim=claim,
        prior=prior,
        seen=seen,
        order_keys=order_keys,
        clock=clock,
    )


def submitted_claim(board: JobBoard, generation: Generation, claim_id: str, *, digest: str = "") -> Claim:
    """Return the claim that this process was submitted for.

    Args:
        board: The job's records.
        generation: Which to run.
        claim_id: The claim's id.
        digest: SHA-256 of the claim as the caller verified it; empty if it was not verified.

    Raises:
        FlinkstyleError: ``NOT_CLAIMED`` if the store holds none, or another one: the environment leads to
            another store of the same name, or the claim was overwritten since it was verified.
    """
    data = patiently(lambda: board.claim_data(generation), for_s=_CLAIM_PATIENCE_S)
    if data is None:
        raise _not_claimed(board, generation)
    claim = Claim.from_bytes(data)
    if claim.claim_id != claim_id:
        raise NOT_CLAIMED.with_text(
            f"Claim {claim_id} of generation {generation} of job {board.job} was expected in "
            f"{board.store.uri}, found {claim.claim_id}.",
            remedy="Give the driver the S3 endpoint and keys of the savepoint root it was submitted for.",
        )
    found = hashlib.sha256(data).hexdigest()
    if digest and found != digest:
        raise NOT_CLAIMED.with_text(
            f"The claim of generation {generation} of job {board.job} was expected as it was when its "
            f"signature was verified ({digest[:12]}), found it changed ({found[:12]}).",
            remedy="Find out who writes to the savepoint root; then start the job again.",
        )
    return claim


def signed_order(board: JobBoard, driver_run: DriverRun) -> TakeoverOrder | None:
    """Return this driver's takeover order, None while there is none; only a signed one counts.

    Raises:
        SignatureError: If the order was not signed with the key of the caller who started this driver.
    """
    data = board.takeover_order_data(driver_run.generation)
    if data is None:
        return None
    _require_signed(driver_run, data, board.takeover_order_place(driver_run.generation))
    return TakeoverOrder.from_bytes(data)


def signed_tables(board: JobBoard, driver_run: DriverRun) -> TablesToRestore | None:
    """Return which tables this driver puts back; None for none.

    Raises:
        SignatureError: As ``signed_order``.
    """
    generation = driver_run.generation
    data = patiently(
        lambda: board.tables_to_restore_data(generation),
        for_s=driver_run.claim.lease_s,
        clock=driver_run.clock,
    )
    if data is None:
        return None
    _require_signed(driver_run, data, board.tables_to_restore_place(generation))
    return TablesToRestore.from_bytes(data)


def _require_signed(driver_run: DriverRun, data: bytes, place: str) -> None:
    if driver_run.order_keys:
        signatures.require(
            driver_run.order_keys,
            data,
            place,
            state_after=NOT_STARTED,
            remedy="Find out who writes to the savepoint root; then start the job again.",
        )


def _not_claimed(board: JobBoard, generation: Generation) -> FlinkstyleError:
    return NOT_CLAIMED.with_text(
        f"A claim of generation {generation} of job {board.job} was expected, found none.",
        remedy="Start the job with StartStreamingJobOperator; only callers make generations.",
    )


def require_not_closed(heartbeat: Slot[Heartbeat] | None) -> None:
    """Leave if the generation has closed: it is never run again."""
    if heartbeat is not None and heartbeat.value.state == "closed":
        raise NotOursError("this generation has closed")


def require_may_take_over(current: Slot[Current] | None, generation: Generation, claim: Claim) -> None:
    """Leave if ``current.json`` names a generation other than this one or the one it follows."""
    if current is not None and current.value.generation not in (generation, claim.follows):
        raise NotOursError(f"current.json names generation {current.value.generation}")


def require_newest(board: JobBoard, generation: Generation, submit: int) -> None:
    """Leave if another driver of this generation was asked for after this one."""
    newest = board.newest_submit(generation)
    if newest > submit:
        raise NotOursError(f"submit {newest} of generation {generation} has taken the place of {submit}")


def _await_earlier(
    board: JobBoard, generation: Generation, lease_s: float, order_keys: tuple[str, ...], clock: Clock
) -> Slot[Heartbeat] | None:
    """Wait until an earlier incarnation has ended, or its end is recorded; leave if it does not end.

    A killed process may still write a few heartbeats. An incarnation that writes them after two leases runs
    the job: this process is not needed, and while it waited callers could take it for the newest driver.
    """
    begun_s = clock.now_s

    def changed() -> None:
        if clock.now_s - begun_s > 2 * lease_s:
            raise NotOursError(f"an earlier driver of generation {generation} lives")

    ended = _recorded_end(board, generation, generation, lease_s, order_keys, clock)
    if ended is not None:
        return ended
    log.info("Waiting for an earlier incarnation of generation %d", generation)
    return wait_until_silent(board, generation, lease_s, check=lambda: None, clock=clock, changed=changed)


def _recorded_end(
    board: JobBoard,
    generation: Generation,
    of: Generation,
    lease_s: float,
    order_keys: tuple[str, ...],
    clock: Clock,
) -> Slot[Heartbeat] | None:
    """Return the last heartbeat of a run if a caller recorded that the driver which wrote it has ended.

    The caller saw that its process is gone, or that the heartbeat did not change for the lease; in the second
    case it must be unchanged now. The record holds for that driver only: of a later one that has not written
    yet, and this one, only one succeeds. The other's first heartbeat or ``current.json`` is refused.

    Args:
        board: The job's records.
        generation: This driver's.
        of: The generation whose last heartbeat is read.
        lease_s: How long to try the store.
        order_keys: Keys that the caller may have signed with; without one no record is trusted.
        clock: By which to try.
    """
    last = patiently(lambda: board.heartbeat(of), for_s=lease_s, clock=clock)
    if last is None or not order_keys:
        return None
    incarnation = last.value.incarnation
    data = patiently(lambda: board.driver_end_data(generation, of, incarnation), for_s=lease_s, clock=clock)
    if data is None:
        return None
    place = board.driver_end_place(generation, of, incarnation)
    try:
        signatures.require(order_keys, data, place, state_after=NOT_STARTED, remedy="")
        end = DriverEnd.from_bytes(data)
    except FlinkstyleError as error:  # its lease decides instead
        log.warning(
            "The end record of driver %d of generation %d is invalid: %s", incarnation, of, error.problem
        )
        return None
    if (end.generation, end.incarnation) != (of, incarnation):
        return None
    if end.last_beat is not None and (end.last_beat != last.value.beat or end.silent_s < lease_s):
        return None
    log.info("Driver %d of generation %d has ended: %s", incarnation, of, end.seen)
    return last


def _next_incarnation(
    board: JobBoard, generation: Generation, record: IncarnationRecord, patience: Patience
) -> Incarnation:
    number = max(patience(lambda: board.incarnations(generation)), default=Incarnation(0))
    while True:
        number = Incarnation(number + 1)
        try:
            patience(partial(board.create_incarnation, generation, number, record))
        except ObjectExistsError:
            if patience(partial(board.incarnation, generation, number)) != record:
                continue
        log.info("Incarnation %d of generation %d of job %s", number, generation, board.job)
        return number


def wait_until_silent(
    board: JobBoard,
    generation: Generation,
    lease_s: float,
    *,
    check: Callable[[], None],
    clock: Clock,
    changed: Callable[[], None] = lambda: None,
) -> Slot[Heartbeat] | None:
    """Wait until a generation's driver has ended, or has written no heartbeat for ``lease_s``.

    Args:
        board: The job's records.
        generation: Whose heartbeat to watch.
        lease_s: For how long it must not change.
        check: Called in every round; raises to end the wait.
        clock: By which to wait.
        changed: Called when the heartbeat has changed; raises to end the wait.
    """

    def read() -> Slot[Heartbeat] | None:
        return patiently(lambda: board.heartbeat(generation), for_s=lease_s, clock=clock)

    # From the end of the first read to the begin of the last one: an answer may come late, and the driver may
    # have written after the read began, or before its answer came.
    seen, since_s = read(), clock.now_s
    while not (seen is not None and seen.value.state in ("closed", "failed")):
        clock.sleep(min(0.5, lease_s / 10))
        check()
        asked_s, found = clock.now_s, read()
        if (found.version if found else None) != (seen.version if seen else None):
            seen, since_s = found, clock.now_s
            changed()
        elif asked_s - since_s >= lease_s:
            log.info("The heartbeat of generation %d has not changed for %.1f s", generation, lease_s)
            break
    return seen


def require_predecessor(
    board: JobBoard, driver_run: DriverRun, order: TakeoverOrder, check: Callable[[], None]
) -> None:
    """Wait for the generation that is followed, and check how it ended.

    Raises:
        FlinkstyleError: ``PREDECESSOR`` if it did not close at exactly the batches that its takeover order
            names, was started again since its end was found, or left a checkpoint that this generation
            would adopt without having closed.
    """
    claim = driver_run.claim
    if claim.follows is None:
        return
    if order.closed_at is None:
        require_ended = partial(_require_ended, board, driver_run, order)
        require_ended()
        clock = driver_run.clock
        ended = _recorded_end(
            board, driver_run.generation, claim.follows, claim.lease_s, driver_run.order_keys, clock
        ) or wait_until_silent(
            board, claim.follows, claim.lease_s, check=check, clock=clock, changed=require_ended
        )
    else:
        ended = board.heartbeat(claim.follows)
    state = ended.value.state if ended else "silent"
    batches = ended.value.batches() if ended else {}
    if order.closed_at is not None and (state != "closed" or batches != dict(order.closed_at)):
        raise PREDECESSOR.with_text(
            f"Generation {claim.follows} of job {board.job} was expected to have closed at "
            f"{batch_words(order.closed_at)}, found it {state} at {batch_words(batches)}.",
            state_after=NOT_STARTED,
            remedy="Stop it with a savepoint and start again from that one.",
        )
    _require_own_checkpoint(board, claim, state)


def require_not_left(board: JobBoard, driver_run: DriverRun, order: TakeoverOrder) -> None:
    """Require that the job was not given back to plain Spark since its start was planned.

    Who gives it back records that, then looks for an order; this driver has its order, then looks for the
    record. So one of both sees the other, however long either takes.

    Raises:
        FlinkstyleError: ``PREDECESSOR`` if it was, and the order continues it.
    """
    if order.rewind != "continue" or order.parent == BEGINNING:
        return  # a person has named what the job goes back to, or gives up
    home = patiently(board.binding_home, for_s=driver_run.claim.lease_s, clock=driver_run.clock)
    if home is None or home.state != "left":
        return
    raise PREDECESSOR.with_text(
        f"Job {board.job} was expected to be run from here, as when this start was planned, found that it "
        f"was left to plain Spark since, with savepoint {home.savepoint_id}.",
        state_after=NOT_STARTED,
        remedy="If it is to run here, adopt it again (flinkstyle job adopt), then start it.",
    )


def _require_ended(board: JobBoard, driver_run: DriverRun, order: TakeoverOrder) -> None:
    """Require that the predecessor was not relaunched since: this driver would wait for its whole run."""
    current = patiently(board.current, for_s=driver_run.claim.lease_s, clock=driver_run.clock)
    follows = driver_run.claim.follows
    if current is None or current.value.generation != follows or order.fits(current.value):
        return
    raise PREDECESSOR.with_text(
        f"Driver {order.ended} of generation {follows} of job {board.job} was expected to be "
        f"its last one, as when this start was planned, found that driver {current.value.incarnation} has "
        "continued the job since.",
        state_after=f"{NOT_STARTED} That run continues.",
        remedy="Look at what it does (flinkstyle job status). To start the job as was asked, stop it first, "
        "then clear the start's task.",
    )


def _require_own_checkpoint(board: JobBoard, claim: Claim, state: str) -> None:
    followed = board.claim(claim.follows) if claim.follows is not None else None
    if state == "closed" or followed is None or followed.checkpoint_location != claim.checkpoint_location:
        return
    raise PREDECESSOR.with_text(
        f"Generation {claim.follows} of job {board.job} was expected to have closed before its checkpoint "
        f"{claim.checkpoint_location} is adopted, found it {state}.",
        state_after=NOT_STARTED,
        remedy="Stop it, or restore its newest savepoint to a location of its own.",
    )


def take_current(
    board: JobBoard, driver_run: DriverRun, seen: Slot[Current] | None, place_id: str = ""
) -> None:
    """Take the job over, if no other driver did since ``seen`` was read.

    Raises:
        NotOursError: If another driver was faster.
    """
    generation, submit = driver_run.generation, board.submit(driver_run.generation)
    recorded = AsRecorded(
        claim=driver_run.claim,
        order=board.takeover_order(generation),
        process=board.incarnation(generation, driver_run.incarnation),
        submit=submit.value if submit is not None else None,
        submit_version=submit.version if submit is not None else "",
    )
    mine = Current(
        generation=generation, incarnation=driver_run.incarnation, recorded=recorded, place_id=place_id
    )
    try:
        board.take_current(mine, seen=seen)
    except (ObjectChangedError, ObjectExistsError) as error:
        found = board.current()
        if found is None or found.value != mine:  # else an answer was lost: the write was ours
            raise NotOursError("another driver took the job over") from error
    log.info(
        "Generation %d, incarnation %d runs job %s now",
        driver_run.generation,
        driver_run.incarnation,
        board.job,
    )


class HeldWatch:
    """Until when a driver may take over by its order: while a migration surely holds the producers.

    If a migration dies after its order, the hold expires, and producers write to the old cluster again. So
    the order alone is not enough: the migration records again and again for how long they are held. A driver
    counts that, by its own clock, from a moment that it knows to be earlier than the record.
    """

    def __init__(
        self, board: JobBoard, migration_id: str, *, before_order_s: float | None, clock: Clock
    ) -> None:
        """Begin to watch.

        Args:
            board: The job's records.
            migration_id: Whose hold it is.
            before_order_s: When this process began its last read that found no order, by ``clock``: the
                migration's records of the takeover are later. None if its first read found the order.
            clock: By which it counts.
        """
        self._board, self._migration_id, self._clock = board, migration_id, clock
        self._before_order_s = self._since_s = before_order_s
        """Earlier than the begin of the next record that is new; None: not known."""
        self._last_read_s: float | None = None
        self._newest, self._until_s = (0, 0), clock.now_s

    def is_held(self) -> bool:
        """Read the migration's newest record; return whether producers are certain to be held now.

        A record that comes late, of an attempt or a request that another one has followed, does not count.
        """
        asked_s, slot = self._clock.now_s, self._board.work(self._migration_id)
        number = (slot.value.attempt, slot.value.beat) if slot is not None else (0, 0)
        if slot is not None and number > self._newest:
            if number[0] != self._newest[0]:  # it may have begun before the other attempt's last record
                self._since_s = self._before_order_s
            if self._since_s is not None:
                self._until_s = max(self._until_s, self._since_s + slot.value.held_s)
            self._newest = number
            if self._last_read_s is not None:  # the last read did not find this record: the next is later
                self._since_s = self._last_read_s
        self._last_read_s = asked_s
        return self._clock.now_s < self._until_s
