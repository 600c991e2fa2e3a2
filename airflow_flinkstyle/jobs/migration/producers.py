"""Hold producers, and release them to one cluster: the interface users implement, and two that are here."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from airflow_flinkstyle.jobs.errors import StaleTokenError
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.base import write_over
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore

log = logging.getLogger(__name__)

Position = Literal["hold", "release_old", "release_new"]


class ProducerSwitch(Protocol):
    """Makes every producer of the migrated topics write nowhere, to the old or to the new cluster."""

    def apply(self, position: Position, token: int) -> None:
        """Bring producers into a position.

        Must be idempotent, and must refuse (``StaleTokenError``) a token lower than the highest it has
        seen for the job: a call that slept must not undo what was settled since. Need not wait until
        producers obey: the caller proves that from the ends of the topics.
        """

    def read(self) -> Position | None:
        """Return the position last applied; None if none was, or if the switch cannot tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchRecord(Record):
    """What producers poll: where to write now."""

    what: ClassVar[str] = "producer switch"

    position: Position
    token: int


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

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key

    def apply(self, position: Position, token: int) -> None:
        """Replace the record, unless it holds a higher token."""
        data = SwitchRecord(position=position, token=token).to_bytes()
        while True:
            found = self._store.get(self._key)
            if found is not None and (other := SwitchRecord.from_bytes(found.data).token) > token:
                raise StaleTokenError(
                    f"Token {token} was expected to be the highest for switch {self._key}, found {other}.",
                    state_after=f"The switch stays as it is; {position} was not applied.",
                    remedy="Nothing is to be done: a newer attempt of the migration is in charge.",
                )
            try:
                write_over(self._store, self._key, data, seen=found.version if found else None)
            except (ObjectExistsError, ObjectChangedError):
                continue  # look again: the other call's token may be the higher one
            log.info("Producers: %s (token %d)", position, token)
            return

    def read(self) -> Position | None:
        """Return where producers are to write now; None before the first switch."""
        found = self._store.get(self._key)
        return SwitchRecord.from_bytes(found.data).position if found else None


class ManualSwitch:
    """People hold and release producers by hand; the ends of the topics prove that they did."""

    _ASKED: ClassVar[dict[Position, str]] = {
        "hold": "STOP all producers of the migrated topics now, and keep them stopped",
        "release_old": "START the producers again, on the OLD cluster",
        "release_new": "START the producers again, on the NEW cluster",
    }

    def apply(self, position: Position, token: int) -> None:
        """Ask for it in the log."""
        log.warning("By hand, please (step %d): %s", token, self._ASKED[position])

    def read(self) -> Position | None:
        """Return None: nobody but the producers' owner can tell."""
        return None


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

    def apply(self, position: Position, token: int) -> None:
        """Apply the position as the first migration calls it."""
        self._switch.apply(self._OTHER[position], token)

    def read(self) -> Position | None:
        """Return the position as this migration calls it."""
        found = self._switch.read()
        return None if found is None else self._OTHER[found]
