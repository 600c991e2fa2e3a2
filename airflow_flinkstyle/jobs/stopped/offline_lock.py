"""A job that no driver runs, held by a caller: a generation of its own that runs no batch.

The caller claims one, takes ``current.json`` over so that no old driver can wake up, and writes ``closed`` in
the driver's place. Until then it writes heartbeats like a driver, which show others that it lives. If it ends
otherwise, the job is given back to the run that it was taken from: by the caller itself, or, once it has
written no heartbeat for the lease, by the next caller that wants the job.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.errors import HELD_NO_MORE, JobNotRunningError, JobRunningError
from airflow_flinkstyle.jobs.stopped import last_run
from airflow_flinkstyle.protocol.query_records import left_by
from airflow_flinkstyle.protocol.records import AsRecorded, Claim, Current, Heartbeat
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError, StoreError
from airflow_flinkstyle.types import Generation, Incarnation

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.jobs.view import JobView
    from airflow_flinkstyle.protocol.board import JobBoard, Slot
    from airflow_flinkstyle.protocol.query_records import QueryStatus
    from airflow_flinkstyle.protocol.records import AgentState
    from airflow_flinkstyle.types import BatchId

_LOCK = "lock:"
"""Prefix of the claim keys of callers that save a stopped job."""
CALLER = Incarnation(0)
"""Written to ``current.json`` and the heartbeat while a caller, not a driver, holds the job."""
_HEARTBEATS_PER_LEASE = 4
_ENDED = ("OFFLINE_LOCK", "The caller that held the job has ended before it was done; the job is as it was.")
log = logging.getLogger(__name__)


class _HeartbeatThread:
    """The thread that writes the heartbeats of a lock until the caller ends it."""

    def __init__(self, board: JobBoard, generation: Generation, first: Heartbeat, lease_s: float) -> None:
        self._board, self._generation, self._last = board, generation, first
        self._unanswered: list[Heartbeat] = []  # written since the last answer: any may have taken effect
        self._lock, self._ended = threading.Lock(), threading.Event()
        seen = board.heartbeat(generation)  # an earlier attempt's, which is replaced
        self._version = board.beat(generation, first, seen=seen.version if seen else None)
        self._pause_s = lease_s / _HEARTBEATS_PER_LEASE
        threading.Thread(target=self._keep, name=f"hold {board.job}", daemon=True).start()

    def stop(self) -> None:
        """Write no more."""
        self._ended.set()

    def end(self, last: Heartbeat) -> None:
        """Write the last heartbeat; raises ``HELD_NO_MORE`` if another caller has given the job back."""
        self.stop()
        with self._lock:
            try:
                self._write(last)
            except (ObjectChangedError, ObjectExistsError) as error:
                raise HELD_NO_MORE.with_text(
                    f"Generation {self._generation} of job {self._board.job} was expected to be held by this "
                    "caller, found that another one has ended it: it wrote no heartbeat for its lease.",
                    state_after="The job was given back, and may run again.",
                    remedy="Ask again, as a retry of the task does: it checks again whether the job runs. "
                    "If it happens again, find out what keeps this host from the store for so long.",
                ) from error

    def _keep(self) -> None:
        while not self._ended.wait(self._pause_s):
            try:
                with self._lock:
                    if not self._ended.is_set():
                        self._write(replace(self._last, beat=self._last.beat + 1, written_at_ms=now_ms()))
            except (ObjectChangedError, ObjectExistsError):
                log.warning("Generation %d was ended by another caller", self._generation)
                return
            except StoreError as error:
                log.warning("Generation %d could not be renewed: %s", self._generation, error)

    def _write(self, heartbeat: Heartbeat) -> None:
        self._unanswered.append(heartbeat)
        try:
            self._version = self._board.beat(self._generation, heartbeat, seen=self._version)
        except (ObjectChangedError, ObjectExistsError):
            found = self._board.heartbeat(self._generation)
            if found is None or found.value not in (self._last, *self._unanswered):
                raise
            # An answer was lost: this write, or one after the last answered one, has taken effect.
            self._version = self._board.beat(self._generation, heartbeat, seen=found.version)
        self._last = heartbeat
        self._unanswered.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLock:
    """A generation that a caller holds while no driver runs; until it has ended, none may take over."""

    generation: Generation
    last: Run
    """The run whose checkpoint the caller reads."""
    driver: Generation
    """The generation whose driver ran there last: ``last``, or the one whose place a caller took."""
    last_heartbeat: Heartbeat
    heartbeats: _HeartbeatThread | None
    """None if an attempt before this one has closed it."""

    def close(
        self, batches: Mapping[str, BatchId], *, ids: Mapping[str, str], under_way: Collection[str]
    ) -> None:
        """Write ``closed`` in the driver's place, so that the next start may continue from here.

        Args:
            batches: Query name -> last committed batch.
            ids: Query name -> Spark's id of it: a driver may have died before it reported one.
            under_way: The queries with a batch that was planned after that one.

        Raises:
            JobRunningError: ``HELD_NO_MORE`` if this caller was taken for dead, and the job was given back.
        """
        queries = {
            name: replace(
                status,
                query_id=ids.get(name, status.query_id),
                batch_id=batches.get(name, status.batch_id),
                sinks=left_by(status.sinks, planned=name in under_way),
            )
            for name, status in self.last_heartbeat.queries.items()
        }
        if self.heartbeats is not None:
            self.heartbeats.end(_heartbeat_of_caller(self.last_heartbeat, "closed", queries=queries))


@contextmanager
def hold_offline(
    runs: JobView, key: str, *, driver_has_ended: bool = False, needed: Collection[str] | None = None
) -> Iterator[OfflineLock]:
    """Hold the job against every driver, once the last one has ended; a retry continues where it was.

    A block that ends without ``close`` gives the job back as it was found.

    Args:
        runs: The job.
        key: The caller, without the try number.
        driver_has_ended: The caller killed the driver and saw that it is gone: no need to wait for its lease.
        needed: The queries whose checkpoints must be there; None: all. One that is new in the last run may
            have none yet.

    Raises:
        JobRunningError: If a driver, or another caller, has the job.
        JobNotRunningError: If no run of the job has written a heartbeat.
        CheckpointMismatchError: If this machine sees other checkpoints than the last run wrote.
    """
    own = _own(runs, key) or _claim(runs, key)
    last = last_run.newest_reported_run(runs, own.claim.follows)
    if last is None or last.heartbeat is None:
        raise JobNotRunningError(
            f"The last run of {runs.board.job} was expected to have recorded its queries, found no "
            "heartbeat.",
            state_after="Nothing was taken.",
            remedy="Start the job; it has committed nothing yet.",
        )
    lock = OfflineLock(
        generation=own.generation,
        last=last,
        driver=last_run.driver_of(runs, last),
        last_heartbeat=last.heartbeat,
        heartbeats=None,
    )
    if own.is_over:
        yield lock
        return
    held = runs.board.current()
    if held is None or held.value.generation != own.generation:
        try:
            _require_recorded(runs, lock, needed)
            if not driver_has_ended:
                await_end(runs, last)
        except BaseException:  # nothing is held yet: the claim must not block other callers
            with suppress(FlinkstyleError):
                runs.board.beat(
                    own.generation, _heartbeat_of_caller(lock.last_heartbeat, "failed", queries={}), seen=None
                )
            raise
    lock = replace(lock, heartbeats=_taken(runs, own, lock, held))
    try:
        yield lock
    finally:
        _let_go(runs, lock)


def _taken(runs: JobView, own: Run, lock: OfflineLock, held: Slot[Current] | None) -> _HeartbeatThread:
    """Take ``current.json`` over, after a first heartbeat: a lock without one would show no owner.

    Only if it is still as it was before the wait for the driver's end (``held``): since then another caller
    may have started that driver again, under the same generation.
    """
    last_heartbeat = lock.last_heartbeat
    heartbeats = _HeartbeatThread(
        runs.board,
        own.generation,
        _heartbeat_of_caller(last_heartbeat, "standby", queries={}),
        own.claim.lease_s,
    )
    try:
        if held is None or held.value.generation != own.generation:
            recorded = AsRecorded(claim=own.claim, order=None, process=None, submit=None, submit_version="")
            mine = Current(
                generation=own.generation,
                incarnation=CALLER,
                recorded=recorded,
                place_id=held.value.place_id if held is not None else "",
                stands_for=lock.driver,
            )
            _take(runs, own, mine, held)
    except BaseException:
        with suppress(FlinkstyleError):
            heartbeats.end(_heartbeat_of_caller(last_heartbeat, "failed", queries={}))
        raise
    return heartbeats


def _take(runs: JobView, own: Run, mine: Current, held: Slot[Current] | None) -> None:
    if held is not None and held.value.generation == own.claim.follows:
        with suppress(ObjectChangedError):
            runs.board.take_current(mine, seen=held)
            return
        found = runs.board.current()
        if found is not None and found.value == mine:  # an answer was lost: the write was ours
            return
    raise JobRunningError(
        f"Job {runs.board.job} was expected to be left alone, found that another run has taken it over.",
        state_after="Nothing was taken.",
        remedy="Look at what it does (flinkstyle job status), then try again.",
    )


def _let_go(runs: JobView, lock: OfflineLock) -> None:
    """Give the job back unless it was closed; if that fails, the next caller does."""
    if lock.heartbeats is None:
        return
    try:
        found = runs.board.heartbeat(lock.generation)
        if found is None or found.value.state not in ("closed", "failed"):
            lock.heartbeats.end(_heartbeat_of_caller(lock.last_heartbeat, "failed", queries={}))
            _give_back(runs, lock.generation)
    except FlinkstyleError as error:
        log.warning(
            "Generation %d ends once it has written no heartbeat for its lease: %s", lock.generation, error
        )
    finally:
        lock.heartbeats.stop()  # a process that lives on would hold the job for ever


def _give_back(runs: JobView, generation: Generation) -> None:
    """Make ``current.json`` name the run again from which a lock took the job, if it names the lock."""
    slot, follows = runs.board.current(), runs.claim(generation).follows
    if slot is None or slot.value.generation != generation or follows is None:
        return
    heartbeat, submit = runs.board.heartbeat(follows), runs.board.submit(follows)
    incarnation = heartbeat.value.incarnation if heartbeat is not None else CALLER
    recorded = AsRecorded(
        claim=runs.claim(follows),
        order=runs.board.takeover_order(follows),
        process=runs.board.incarnation(follows, incarnation),
        submit=submit.value if submit is not None else None,
        submit_version=submit.version if submit is not None else "",
    )
    driver = last_run.driver_of(runs, runs.run(follows))
    before = Current(
        generation=follows,
        incarnation=incarnation,
        recorded=recorded,
        place_id=slot.value.place_id,
        stands_for=driver if driver != follows else None,
    )
    with suppress(ObjectChangedError):  # another caller did it
        runs.board.take_current(before, seen=slot)


def is_open_lock(run: Run) -> bool:
    """Return whether a run is a caller's lock that was not closed."""
    return not run.claim.launch and (run.heartbeat is None or run.heartbeat.state != "closed")


def give_back_abandoned(runs: JobView, run: Run) -> None:
    """Give the job back from a caller that ended without doing so: it wrote no heartbeat for its lease.

    Raises:
        JobRunningError: If it writes a heartbeat meanwhile.
    """
    if run.heartbeat is not None and run.heartbeat.state != "failed":
        log.warning(
            "Generation %d (%s) has ended without giving the job back", run.generation, run.claim.claim_key
        )
        slot = runs.board.heartbeat(run.generation)
        ended = replace(run.heartbeat, state="failed", error=_ENDED, beat=run.heartbeat.beat + 1)
        if slot is None or slot.value != run.heartbeat:
            raise _held(runs, run)
        try:
            runs.board.beat(run.generation, ended, seen=slot.version)
        except ObjectChangedError as error:
            raise _held(runs, run) from error
    _give_back(runs, run.generation)


def _held(runs: JobView, run: Run) -> JobRunningError:
    return JobRunningError(
        f"Job {runs.board.job} was expected to be left alone, found that {run.claim.claim_key} holds it as "
        f"generation {run.generation}.",
        state_after="Nothing was started or taken.",
        remedy="Wait until it is done, then try again.",
    )


def await_end(runs: JobView, run: Run) -> None:
    """Wait until a run has certainly ended: it closed, its process is gone, or its lease passed in silence.

    Raises:
        JobRunningError: If its driver still writes.
    """
    seen = runs.board.heartbeat(run.generation)
    if seen is not None and seen.value.state == "closed":
        return
    is_gone = isinstance(run.writer_state, Gone) and not run.holds_the_job
    if is_gone and run.heartbeat is not None and isinstance(runs.end(run), Gone):
        return
    wait = runs.waiting(run.claim.lease_s)
    while wait.again():
        now = runs.board.heartbeat(run.generation)
        if now is not None and now.value.state == "closed":
            return
        if (now and now.version) != (seen and seen.version):
            raise JobRunningError(
                f"The driver of generation {run.generation} of job {runs.board.job} was expected to have "
                "ended, found that it still writes heartbeats.",
                state_after="The job keeps running.",
                remedy="Stop it, or ask it for a savepoint while it runs.",
            )


def is_own(run: Run, key: str) -> bool:
    """Return whether a run is the lock of this caller."""
    return run.claim.claim_key == lock_key(key)


def lock_key(key: str) -> str:
    """Return the claim key of an offline lock."""
    return f"{_LOCK}{key}"


def is_lock(claim_key: str) -> bool:
    """Return whether a claim is a caller's that saves a stopped job, and no driver's."""
    return claim_key.startswith(_LOCK)


def _own(runs: JobView, key: str) -> Run | None:
    """Return the lock that an earlier try claimed, if it has closed, or can still be used."""
    current = runs.board.current()
    held = current.value.generation if current is not None else None
    for run in map(runs.run, reversed(runs.board.generations())):
        if is_own(run, key):
            if run.heartbeat is not None and run.is_over:
                return run if run.heartbeat.state == "closed" else None
            return run if held in (run.generation, run.claim.follows) else None
    return None


def _claim(runs: JobView, key: str) -> Run:
    current = runs.board.current()
    if current is None:
        raise JobNotRunningError(
            f"Job {runs.board.job} was expected to have run, found that no driver ever took it over.",
            state_after="Nothing was taken.",
            remedy="Check the job's name and the savepoint root, or start the job.",
        )
    last = runs.run(current.value.generation)
    if is_open_lock(last):
        await_end(runs, last)
        give_back_abandoned(runs, runs.run(last.generation))
        last = runs.run(last.claim.follows or last.generation)
    generation = Generation(runs.board.generations()[-1] + 1)
    claim = Claim(
        claim_key=lock_key(key),
        follows=last.generation,
        checkpoint_location=last.claim.checkpoint_location,
        prepare_savepoint_id=None,
        overrides=last.claim.overrides,
        lease_s=last.claim.lease_s,
        launch={},
        claimed_at_ms=now_ms(),
    )
    try:
        runs.board.create_claim(generation, claim)
    except ObjectExistsError as error:
        raise JobRunningError(
            f"Job {runs.board.job} was expected to be left alone, found that another caller has just "
            f"claimed generation {generation}.",
            state_after="Nothing was taken.",
            remedy="Wait until that start or savepoint is done, then try again.",
        ) from error
    return runs.run(generation)


def _require_recorded(runs: JobView, lock: OfflineLock, needed: Collection[str] | None) -> None:
    """Require that this machine sees the checkpoints that the last run wrote, before anything is held."""
    last_run.require_place(runs, lock.last)
    for name in lock.last_heartbeat.queries:
        if name in needed if needed is not None else last_run.has_begun(runs, lock.last, name):
            last_run.require_committed(runs, lock.last, name)
    if needed is None and not last_run.names_all(lock.last, lock.last_heartbeat):
        last_run.require_all_named(runs, lock.last)


def _heartbeat_of_caller(
    last: Heartbeat, state: AgentState, *, queries: Mapping[str, QueryStatus]
) -> Heartbeat:
    """Return the heartbeat that a caller writes in a driver's place."""
    return replace(
        last,
        incarnation=CALLER,
        state=state,
        beat=1,
        written_at_ms=now_ms(),
        queries=queries,
        request_id=None,
        savepoint_id=None,
        error=_ENDED if state == "failed" else None,
        transient=False,
    )
