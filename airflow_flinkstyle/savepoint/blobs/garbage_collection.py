"""The right to free blobs: one process at a time, and none while another process relies on them."""

from __future__ import annotations

import logging
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK, Clock
from airflow_flinkstyle.savepoint.blobs.intents import give_up, read_intents
from airflow_flinkstyle.savepoint.blobs.leases import LEASE_S, LeaseWatch, Renewed
from airflow_flinkstyle.savepoint.blobs.notes import delete_notes
from airflow_flinkstyle.savepoint.blobs.prune_slot import (
    Condemned,
    condemned_key,
    free_slot,
    read_slot,
    slot_key,
    take_slot,
)
from airflow_flinkstyle.savepoint.blobs.references import keys_of
from airflow_flinkstyle.savepoint.errors import IntentBrokenError, RepositoryBusyError
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from airflow_flinkstyle.savepoint.blobs.leases import LeasedRecord
    from airflow_flinkstyle.savepoint.blobs.prune_slot import PruneSlot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

_BATCH = 1000
"""Blobs condemned at a time: a prune that was given up leaves a list of at most so many keys to avoid."""
_THREADS = 16
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPrune:
    """The prune slot, taken at a moment when no process relied on blobs."""

    repository: SavepointRepository
    renewed: Renewed[PruneSlot]

    def delete(self, *, savepoints: Sequence[str], blobs: Collection[str]) -> None:
        """Delete manifests, the notes on them, then blobs that no other savepoint needs.

        Raises:
            IntentBrokenError: If another process has given this prune up; it deletes nothing more then.
            StoreError: If a delete fails; it names what stays.
        """
        ordered = sorted(blobs)
        if savepoints or ordered:
            self._condemn_and_delete(savepoints, ordered[:_BATCH])
        for start in range(_BATCH, len(ordered), _BATCH):
            self._condemn_and_delete((), ordered[start : start + _BATCH])

    def _condemn_and_delete(self, savepoints: Sequence[str], blobs: Sequence[str]) -> None:
        store, slot = self.repository.store, self.renewed.record
        key = condemned_key(self.repository, slot.prune_id)
        condemned = Condemned(holder=slot.holder, savepoints=tuple(savepoints), blobs=tuple(blobs))
        self.renewed.require_alive()  # if given up before, its list would stay for no reason
        store.write(key, condemned.to_bytes())
        try:
            self.renewed.require_alive()  # a process that gives this prune up later finds the list
        except IntentBrokenError:
            store.delete(key)
            raise
        self._dispose(savepoints, key)
        self._forget(savepoints, key)  # before the blobs: later there may be notes of a new pin
        self._free(blobs, key)

    def _dispose(self, savepoints: Sequence[str], key: str) -> None:
        """Delete manifests; a savepoint stays only if its delete was refused for certain."""
        self.renewed.outlives_its_holder = True  # until every delete was answered
        failed = _each(self.repository.delete_manifest, savepoints)
        in_doubt = [name for name, error in failed.items() if not isinstance(error, StoreDeniedError)]
        if in_doubt:
            _raise_first(
                failed,
                f"A delete may still take effect, so {', '.join(in_doubt)} counts as disposed of: the "
                f"next take, restore or prune completes that, {self.renewed.record.lease_s:g} s from now. No "
                f"file was deleted; new savepoints do not rely on those that {key} names.",
            )
        self.renewed.outlives_its_holder = False
        if failed:
            _withdraw(self.repository, key)
            _raise_first(
                failed,
                "Savepoints whose manifest was not deleted before that stay whole, and the next prune "
                "decides on them again; no file was deleted.",
            )

    def _forget(self, savepoints: Sequence[str], key: str) -> None:
        held = keys_of(self.repository, savepoints) if savepoints else []
        failed = _each(partial(delete_notes, self.repository), savepoints)
        failed = failed or _each(self.repository.store.delete, held)
        if failed:
            _withdraw(self.repository, key)
            _raise_first(failed, "The savepoints are gone; their files and notes stay for the next prune.")

    def _free(self, blobs: Sequence[str], key: str) -> None:
        """Delete blobs, then their list; it stays if one of the deletes may still be under way."""
        failed = _each(self.repository.delete_blob, blobs)
        state_after = "The savepoints are gone; files that only they needed stay for the next prune."
        if all(isinstance(error, StoreDeniedError) for error in failed.values()):
            _withdraw(self.repository, key)
        else:
            state_after += f" {key} stays, as a delete may still take effect: new savepoints avoid its blobs."
        _raise_first(failed, state_after)


def _each(delete: Callable[[str], None], names: Sequence[str]) -> dict[str, StoreError]:
    """Delete several at a time; after a failure, begin no more. Returns the failures, by name."""
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="free") as pool:
        begun = {name: pool.submit(delete, name) for name in names}
        try:
            wait(begun.values(), return_when=FIRST_EXCEPTION)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    failed = {name: done.exception() for name, done in begun.items() if not done.cancelled()}
    for error in failed.values():
        if error is not None and not isinstance(error, StoreError):
            raise error
    return {name: error for name, error in failed.items() if isinstance(error, StoreError)}


def _raise_first(failed: Mapping[str, StoreError], state_after: str) -> None:
    """Raise the first failure, with the state after all calls: the error knows only its own."""
    for error in failed.values():
        raise error.rephrased(state_after=state_after) from error


def _withdraw(repository: SavepointRepository, key: str) -> None:
    try:
        repository.store.delete(key)
    except StoreError as error:
        log.warning("%s stays, and new savepoints rely on no blob in it: %s", key, error)


@contextmanager
def hold_prune(
    repository: SavepointRepository,
    *,
    holder: str,
    lease_s: float = LEASE_S,
    wait_s: float = 300.0,
    poll_s: float = 0.5,
    clock: Clock = CLOCK,
) -> Iterator[HeldPrune]:
    """Hold ``prune.json`` while no process relies on blobs; expired intents are given up.

    Args:
        repository: The job's savepoints.
        holder: Who prunes, for the messages of processes that wait.
        lease_s: After so long without a renewal another process may give the prune up.
        wait_s: How long to wait for takes, restores, exports and other prunes; they need not wait for it.
        poll_s: Seconds between two reads.
        clock: The clock of the wait.

    Raises:
        RepositoryBusyError: If a process still relies on blobs after ``wait_s``; each is named.
    """
    slot = _acquire(repository, holder=holder, lease_s=lease_s, wait_s=wait_s, poll_s=poll_s, clock=clock)
    renewed = Renewed(repository.store, slot_key(repository), slot)
    try:
        yield HeldPrune(repository=repository, renewed=renewed)
    finally:
        renewed.let_go(None if renewed.outlives_its_holder else renewed.record.freed())


def _acquire(
    repository: SavepointRepository,
    *,
    holder: str,
    lease_s: float,
    wait_s: float,
    poll_s: float,
    clock: Clock,
) -> LeasedRecord[PruneSlot]:
    """Take the slot at a moment without a live intent; takes wait only while the intents are read."""
    watch, patience = LeaseWatch(), clock.wait(wait_s, every_s=poll_s)
    while True:
        slot = read_slot(repository)
        busy = [str(intent) for intent in read_intents(repository, watch)[0].values()]
        if slot is not None and slot.record.holder is not None and not watch.is_expired("slot", slot):
            busy.append(str(slot.record))
        taken = None if busy else take_slot(repository, slot, holder=holder, lease_s=lease_s)
        if taken is not None:
            live, expired = read_intents(repository, watch)
            if not live:
                give_up(repository, expired)
                return taken
            free_slot(repository, taken)
            busy = [str(intent) for intent in live.values()]
        if not patience.again():
            holders = busy or ["another prune that began at the same moment"]
            raise RepositoryBusyError.of("a prune", repository.uri, holders=holders, wait_s=wait_s)
