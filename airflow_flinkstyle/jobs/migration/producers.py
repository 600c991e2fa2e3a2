"""Hold producers, and release them to one cluster: the interface users implement, and two that are here.

A hold is a lease: the attempt that works on the migration renews it, and without renewals it ends by itself.
For that, producers or a process beside them must count the time: a switch with ``hold`` (``LeasedSwitch``).
With any other switch a hold lasts until another position is applied.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from airflow_flinkstyle.jobs.errors import HOLD_LOST, StaleTokenError
from airflow_flinkstyle.jobs.status import OF_THIS_PROCESS
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.base import write_over
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from airflow_flinkstyle.jobs.status import Sightings
    from airflow_flinkstyle.storage.base import ObjectStore

log = logging.getLogger(__name__)

Released = Literal["release_old", "release_new"]
Position = Literal["hold", "release_old", "release_new"]


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLease:
    """How long a hold lasts without a renewal, and where producers write after that."""

    lease_s: float
    """Each producer counts it from when it first reads this renewal; no two clocks are compared."""
    renewal: int
    """1 begins the hold; a higher one renews it, but not once it was released."""
    generation: Generation | None
    """The next run of the job, which reads the new cluster."""
    back_to: Released = "release_old"
    """Where they write once the hold has ended, ..."""
    on_to: Released = "release_new"
    """... unless ``generation`` runs the job by then, or a run that follows it."""

    def renewed(self) -> Self:
        """Return the next renewal."""
        return replace(self, renewal=self.renewal + 1)

    def swapped(self) -> Self:
        """Return the same for producers that know the two clusters by each other's names."""
        return replace(self, back_to=self.on_to, on_to=self.back_to)


class ProducerSwitch(Protocol):
    """Makes every producer of the migrated topics write nowhere, to the old or to the new cluster."""

    def apply(self, position: Position, token: int) -> None:
        """Bring producers into a position.

        Must be idempotent, and must refuse (``StaleTokenError``) a token lower than the highest it has
        seen for the job: a call that was delayed must not undo what was settled since. Need not wait until
        producers obey: the caller proves that from the ends of the topics.
        """

    def read(self) -> Position | None:
        """Return the position last applied; None if none was, or if the switch cannot tell."""


class LeasedSwitch(ProducerSwitch, Protocol):
    """A switch whose holds end by themselves."""

    def hold(self, lease: HoldLease, token: int) -> None:
        """Hold producers for ``lease.lease_s`` from now on: begin that, or renew it.

        Called again and again while they are held. Without such calls they write, at the lease's end, to the
        cluster that it names. Must refuse a token as ``apply`` does, and a renewal (``lease.renewal``
        above 1) of a hold that was released (``HOLD_LOST``).
        """


def leased(switch: ProducerSwitch) -> Callable[[HoldLease, int], None] | None:
    """Return what holds for a lease; None for a switch whose holds last until another position is applied."""
    return getattr(switch, "hold", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRecord(Record):
    """What producers poll: where to write now."""

    what: ClassVar[str] = "producer switch"

    position: Position
    token: int
    lease: HoldLease | None = None
    """Of a hold; None: it lasts until another position is applied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _TokenRecord(Record):
    what: ClassVar[str] = "switch token counter"

    token: int


class TokenCounter:
    """Gives each attempt of a job's migrations a higher token than every attempt before it."""

    def __init__(self, store: ObjectStore, job: str) -> None:
        self._store, self._key = store, f"{job}/switch-token.json"

    def next(self) -> int:
        """Draw a token; no two calls, in any process, get the same."""
        while True:
            found = self._store.get(self._key)
            token = _TokenRecord.from_bytes(found.data).token + 1 if found else 1
            data = _TokenRecord(token=token).to_bytes()
            try:
                write_over(self._store, self._key, data, seen=found.version if found else None)
            except (ObjectExistsError, ObjectChangedError):
                continue  # another attempt drew this one
            return token


class StoreProducerSwitch:
    """A record in the store that producers poll with ``read``."""

    def __init__(self, store: ObjectStore, key: str, sightings: Sightings = OF_THIS_PROCESS) -> None:
        self._store, self._key, self._sightings = store, key, sightings

    def apply(self, position: Position, token: int) -> None:
        """Replace the record, unless it holds a higher token."""
        self._write(SwitchRecord(position=position, token=token))
        log.info("Producers: %s (token %d)", position, token)

    def hold(self, lease: HoldLease, token: int) -> None:
        """Hold producers for the lease, or renew that."""
        self._write(SwitchRecord(position="hold", token=token, lease=lease))

    def _write(self, wanted: SwitchRecord) -> None:
        while True:
            found = self._store.get(self._key)
            if found is not None:
                self._require_may_follow(wanted, SwitchRecord.from_bytes(found.data))
            try:
                seen = found.version if found else None
                write_over(self._store, self._key, wanted.to_bytes(), seen=seen)
            except (ObjectExistsError, ObjectChangedError):
                continue  # read it again: the other call's token may be the higher one
            return

    def _require_may_follow(self, wanted: SwitchRecord, current: SwitchRecord) -> None:
        if current.token > wanted.token:
            raise StaleTokenError(
                f"Token {wanted.token} was expected to be the highest for switch {self._key}, found "
                f"{current.token}.",
                state_after=f"The switch stays as it is; {wanted.position} was not applied.",
                remedy="Nothing is to be done: a newer attempt of the migration is in charge.",
            )
        renews = wanted.lease is not None and wanted.lease.renewal > 1
        if renews and (current.position != "hold" or current.token != wanted.token):
            raise HOLD_LOST.with_text(
                f"Switch {self._key} was expected to hold the producers, found it at {current.position}.",
                state_after="It stays so.",
                remedy="Nothing is to be done: another attempt has released them.",
            )

    def read(self) -> Position | None:
        """Return where producers are to write now; None before the first switch.

        A hold that this process has seen unchanged for its lease has ended: then producers write where the
        job runs. Any other error than that the store cannot be reached leaves producers held.
        """
        begun_s = self._sightings.clock.now_s
        found = self._store.get(self._key)
        if found is None:
            return None
        record = SwitchRecord.from_bytes(found.data)
        if record.position != "hold" or record.lease is None:
            return record.position
        seen = self._sightings.note(f"{self._store.uri}/{self._key}", found.version, begun_s=begun_s)
        return self._after(record.lease) if seen.still_s >= record.lease.lease_s else "hold"

    def is_held(self) -> bool:
        """Return whether the record is at ``hold``, also if the lease has ended."""
        found = self._store.get(self._key)
        return found is not None and SwitchRecord.from_bytes(found.data).position == "hold"

    def _after(self, lease: HoldLease) -> Released:
        """Return where producers write once a hold has ended."""
        board = JobBoard(self._store, self._key.rpartition("/")[0])
        current = board.current()
        generation = current.value.generation if current is not None else None
        while generation is not None and lease.generation is not None and generation >= lease.generation:
            if generation == lease.generation:
                return lease.on_to
            claim = board.claim(generation)
            generation = claim.follows if claim is not None else None
        return lease.back_to


class ManualSwitch:
    """People hold and release producers by hand; the ends of the topics prove that they did.

    Their hold does not end by itself: who settles the migration tells them where to start the producers.
    """

    _ASKED: ClassVar[dict[Position, str]] = {
        "hold": "STOP all producers of the migrated topics now, and keep them stopped until a step with a "
        "higher number, or flinkstyle migration settle, says where to start them",
        "release_old": "START the producers again, on the OLD cluster",
        "release_new": "START the producers again, on the NEW cluster",
    }

    def apply(self, position: Position, token: int) -> None:
        """Ask for it in the log."""
        log.warning("By hand, please (step %d): %s", token, self._ASKED[position])

    def read(self) -> Position | None:
        """Return None: only the producers' owner knows."""
        return None


def simple_switch(name: str, store: ObjectStore, job: str) -> ProducerSwitch | None:
    """Return the switch that ``store`` or ``manual`` names; None for any other, which is code."""
    if name == "manual":
        return ManualSwitch()
    return StoreProducerSwitch(store, f"{job}/producers.json") if name == "store" else None


class SwappedSwitch:
    """The same switch seen from the other cluster: for a migration back, where old is new.

    Producers still know both clusters by the names of the first migration.
    """

    _OTHER: ClassVar[dict[Position, Position]] = {
        "hold": "hold",
        "release_old": "release_new",
        "release_new": "release_old",
    }

    def __init__(self, switch: ProducerSwitch) -> None:
        self._switch = switch

    @property
    def hold(self) -> Callable[[HoldLease, int], None] | None:
        """Holds for a lease, if the switch does."""
        hold = leased(self._switch)
        return None if hold is None else lambda lease, token: hold(lease.swapped(), token)

    def apply(self, position: Position, token: int) -> None:
        """Apply the position as the first migration calls it."""
        self._switch.apply(self._OTHER[position], token)

    def read(self) -> Position | None:
        """Return the position as this migration calls it."""
        found = self._switch.read()
        return None if found is None else self._OTHER[found]
