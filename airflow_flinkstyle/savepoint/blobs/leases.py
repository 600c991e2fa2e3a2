"""Records that their holder renews, and that others may give up once it does not any more."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.errors import IntentBrokenError
from airflow_flinkstyle.storage.errors import ObjectChangedError, StoreError
from airflow_flinkstyle.typed_json import Check

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore

log = logging.getLogger(__name__)

LEASE_S = 30.0
"""Default lease: how long a record may go unrenewed."""
_LONGEST_LEASE_S = 1e9
_LATEST_MS = 1 << 47
"""In the year 6429; ``time.gmtime`` ends somewhere later."""
LeaseSeconds = Annotated[float, Check("a lease in seconds", lambda lease_s: 0 <= lease_s < _LONGEST_LEASE_S)]
EpochMs = Annotated[int, Check("epoch milliseconds", lambda at_ms: 0 <= at_ms < _LATEST_MS)]
_RENEWALS_PER_LEASE = 4
_LEAST_RENEWAL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased(Record):
    """A record that is renewed; others may give it up after its lease, by their clock, without a renewal."""

    holder: str | None
    """For people: which task, driver or command; None if it is free."""
    lease_s: LeaseSeconds
    begun_at_ms: EpochMs
    """By the holder's clock: for people, never for the lease."""
    beat: int = 0
    """Grows with every renewal, so that the record changes."""

    def __str__(self) -> str:
        """Name the record in messages."""
        begun = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.begun_at_ms / 1000))
        return f"{self.what} of {self.holder}, begun {begun}"


L = TypeVar("L", bound=Leased)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedRecord(Generic[L]):
    """A leased record as read or written."""

    record: L
    version: str


@dataclass(slots=True)
class LeaseWatch:
    """Since when each record has been unchanged, by this machine's clock: other clocks may differ."""

    _since: dict[str, tuple[str, float]] = field(default_factory=dict)

    def is_expired(self, key: str, seen: LeasedRecord[L]) -> bool:
        """Tell whether this watch saw the record at this version for its whole lease."""
        version, since_s = self._since.get(key, ("", 0.0))
        if version != seen.version:
            self._since[key] = (seen.version, time.monotonic())
            return False
        return time.monotonic() - since_s >= seen.record.lease_s


class Renewed(Generic[L]):
    """A record of ours in the store, kept fresh by a thread until it is let go or given up."""

    def __init__(self, store: ObjectStore, key: str, seen: LeasedRecord[L]) -> None:
        self.record = seen.record
        self.outlives_its_holder = False
        self._store, self._key, self._version = store, key, seen.version
        self._lock, self._ended, self._broken = threading.Lock(), threading.Event(), False
        threading.Thread(target=self._keep, name=f"renew {key}", daemon=True).start()

    def require_alive(self) -> None:
        """Renew it now; raises ``IntentBrokenError`` if another process has given it up."""
        with self._lock:
            if not self._broken:
                self._write(replace(self.record, beat=self.record.beat + 1))
            if self._broken:
                raise IntentBrokenError.of(str(self.record), self._store.uri, self.record.lease_s)

    def let_go(self, last: L | None = None) -> None:
        """Stop renewing it, and write a last record unless another process has given it up."""
        self._ended.set()
        if last is None:
            return
        try:
            with self._lock:
                self._write(last)
        except StoreError as error:
            log.warning("%s stays until its lease has passed: %s", self.record, error)

    def _write(self, record: L) -> None:
        try:
            self._version = self._store.replace(self._key, record.to_bytes(), expected=self._version)
        except ObjectChangedError:
            found = self._store.get(self._key)
            if found is None or not self._is_ours(found.data):
                self._broken = True
                return
            self._version = found.version  # an answer was lost: the renewal before had taken effect
            self._version = self._store.replace(self._key, record.to_bytes(), expected=self._version)
        self.record = record

    def _is_ours(self, data: bytes) -> bool:
        try:
            found = type(self.record).from_bytes(data)
        except FlinkstyleError:  # garbage that others wrote: the record is not ours any more
            return False
        return replace(found, beat=0) == replace(self.record, beat=0)

    def _keep(self) -> None:
        pause_s = max(self.record.lease_s / _RENEWALS_PER_LEASE, _LEAST_RENEWAL_S)
        while not self._ended.wait(pause_s):
            try:
                self.require_alive()
            except IntentBrokenError as error:
                if not self._ended.is_set():  # else its holder has just withdrawn it
                    log.warning("%s", error)
                return
            except StoreError as error:
                log.warning("%s could not be renewed: %s", self.record, error)
