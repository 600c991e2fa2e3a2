"""Who relies on blobs: ``<job>/takes/<id>.json``, one per take, restore, export, pre-copy, pin or full check.

An intent is written before the blobs are first listed, and removed after the manifest. A process that finds
``prune.json`` held right after it wrote its intent withdraws it and waits; the holder of ``prune.json`` reads
the intents after taking it, and deletes nothing while one is live. So one of the two always sees the other.

A process that was given up cannot be stopped, only made harmless, in case it wakes: the id of the savepoint
that it wanted to publish is tombstoned before its intent is removed, so that its conditional create fails.
"""

from __future__ import annotations

import logging
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from airflow_flinkstyle.clock import CLOCK, now_ms
from airflow_flinkstyle.savepoint.blobs.leases import LEASE_S, Leased, LeasedRecord, LeaseWatch, Renewed
from airflow_flinkstyle.savepoint.blobs.prune_slot import condemned_blobs, free_slot, read_slot, take_slot
from airflow_flinkstyle.savepoint.errors import RepositoryBusyError
from airflow_flinkstyle.savepoint.repository.stored import parse_stored
from airflow_flinkstyle.storage.errors import StoreError, StoreUnavailableError
from airflow_flinkstyle.storage.keys import Name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

log = logging.getLogger(__name__)

IntentKind = Literal["take", "restore", "export", "precopy", "pin", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent(Leased):
    """``takes/<id>.json``: a process relies on blobs."""

    what: ClassVar[str] = "intent"

    kind: IntentKind
    publishes: Name | None
    """The savepoint it will make; its id is tombstoned when the intent is given up. None if it makes none."""

    def __str__(self) -> str:
        """Name the intent in messages."""
        return f"{self.kind} {super(Intent, self).__str__()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """An intent that is held: no blob is freed meanwhile."""

    renewed: Renewed[Intent]
    avoided: frozenset[str]
    """Blobs that were condemned before it listed any: it relies on none of them."""

    def require_alive(self) -> None:
        """Require that no process has given the intent up; raises ``IntentBrokenError``."""
        self.renewed.require_alive()

    def publish(self, repository: SavepointRepository, manifest: Manifest) -> None:
        """Publish a savepoint; raises as ``require_alive`` and ``repository.publish`` do.

        A create without an answer may still take effect later. The intent then stays until its lease has
        passed, so that nothing is freed before the id is tombstoned.
        """
        self.require_alive()
        try:
            repository.publish(manifest)
        except StoreUnavailableError:
            self.renewed.outlives_its_holder = True
            raise
        self.renewed.outlives_its_holder = False  # an earlier try of this call had no answer


@contextmanager
def hold_intent(
    repository: SavepointRepository,
    kind: IntentKind,
    *,
    holder: str,
    publishes: str | None = None,
    lease_s: float = LEASE_S,
    wait_s: float = 600.0,
    give_up_waiting: Callable[[], bool] = lambda: False,
    poll_s: float = 0.5,
) -> Iterator[Held]:
    """Rely on the repository's blobs: no prune deletes anything until the block is left.

    Args:
        repository: The job's savepoints.
        kind: What for.
        holder: Who relies on them, for the messages of processes that wait.
        publishes: Id of the savepoint that the block publishes; a block that publishes must name it.
        lease_s: After so long without a renewal another process may give the intent up.
        wait_s: How long to wait for a prune to end.
        give_up_waiting: Called while waiting; True ends the wait at once.
        poll_s: Seconds between two reads.

    Raises:
        RepositoryBusyError: If a prune has not ended in time.
        FlinkstyleError: ``SAVEPOINT_TOMBSTONED`` if an earlier holder with the same ``publishes`` was given
            up.
    """
    if publishes is not None:
        repository.require_not_tombstoned(publishes)
    intent = Intent(
        kind=kind,
        holder=holder,
        publishes=publishes,
        lease_s=lease_s,
        begun_at_ms=now_ms(),
    )
    key, seen = _declare(repository, intent, wait_s=wait_s, poll_s=poll_s, give_up_waiting=give_up_waiting)
    renewed = Renewed(repository.store, key, seen)
    try:
        avoided = condemned_blobs(repository)
        repository.avoid(avoided)
        yield Held(renewed=renewed, avoided=avoided)
    finally:
        renewed.let_go()
        if not renewed.outlives_its_holder:
            _withdraw(repository, key)


def _declare(
    repository: SavepointRepository,
    intent: Intent,
    *,
    wait_s: float,
    poll_s: float,
    give_up_waiting: Callable[[], bool],
) -> tuple[str, LeasedRecord[Intent]]:
    """Write the intent while no process frees blobs; returns its key, and the intent as written."""
    watch, wait = LeaseWatch(), CLOCK.wait(wait_s, every_s=poll_s)
    while True:
        key = f"{repository.job}/takes/{uuid.uuid4().hex}.json"
        version = repository.store.create(key, intent.to_bytes())
        try:
            slot = read_slot(repository)
        except BaseException:
            _withdraw(repository, key)
            raise
        if slot is None or slot.record.holder is None:
            return key, LeasedRecord(record=intent, version=version)
        _withdraw(repository, key)
        if watch.is_expired("slot", slot):
            taken = take_slot(repository, slot, holder=str(intent), lease_s=intent.lease_s)
            if taken is not None:
                free_slot(repository, taken)
        elif give_up_waiting() or not wait.again():
            holders = [str(slot.record)]
            raise RepositoryBusyError.of(f"a {intent.kind}", repository.uri, holders=holders, wait_s=wait_s)


def _withdraw(repository: SavepointRepository, key: str) -> None:
    try:
        repository.store.delete(key)
    except StoreError as error:
        log.warning("%s stays until its lease has passed: %s", key, error)


def read_intents(
    repository: SavepointRepository, watch: LeaseWatch
) -> tuple[dict[str, Intent], dict[str, Intent]]:
    """Return the live intents and the expired ones, by key."""
    live: dict[str, Intent] = {}
    expired: dict[str, Intent] = {}
    for info in repository.store.list(f"{repository.job}/takes/"):
        found = repository.store.get(info.key)
        if found is not None:
            seen = LeasedRecord(
                record=parse_stored(Intent, repository, info.key, found.data), version=found.version
            )
            (expired if watch.is_expired(info.key, seen) else live)[info.key] = seen.record
    return live, expired


def give_up(repository: SavepointRepository, expired: dict[str, Intent]) -> None:
    """Make the holders of expired intents harmless, then remove the intents; only with the prune slot."""
    for key, intent in expired.items():
        log.warning("Gave up the %s: it was not renewed for %g s", intent, intent.lease_s)
        if intent.publishes is not None:
            repository.tombstone(intent.publishes, f"the {intent}, was not renewed for {intent.lease_s:g} s")
        repository.store.delete(key)
