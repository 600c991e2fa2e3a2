"""What a migration or an upgrade has done so far: intent before each phase, result after it.

A retry begins a new attempt and continues after the last result. Every phase can be done twice: its ids
derive from the migration's, not from the attempt. An older attempt that wakes up finds its number
replaced, in the attempt record and in the record of its phase.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.errors import AttemptSupersededError
from airflow_flinkstyle.protocol.board import WORK, check_name
from airflow_flinkstyle.protocol.record import Record, SignedRecord
from airflow_flinkstyle.storage.base import write_over
from airflow_flinkstyle.storage.errors import ObjectChangedError, ObjectExistsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from airflow_flinkstyle.jobs.signing import Signer
    from airflow_flinkstyle.storage.base import ObjectStore, Versioned

log = logging.getLogger(__name__)
_FOLDER, _ATTEMPT = "migrations", "0-attempt.json"
_NO_PHASES = frozenset({_ATTEMPT, WORK})
DECIDED = "decided"
"""A phase before the first: who has approved or rejected it, and when."""
_LAST_PHASES = frozenset({DECIDED, "running", "verify", "observe", "rollback"})
"""A journal with the result of one of these has ended, unless ``is_last`` is false."""
_REST = ("release", "rollback", "verify", "observe")
"""After the result of one of these the migration rests: no producer is held, and nothing is half moved."""
_BEGUN_PHASES = frozenset({"standby", "stop"})
"""The first that start or stop anything."""
APPROVED = "approved"
"""A phase before the first: what was approved is in its intent, and it has no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord(Record):
    """``0-attempt.json``: the attempt in charge."""

    what: ClassVar[str] = "migration attempt"

    attempt: int
    token: int
    """For the producer switch; drawn after the last attempt was read, so it is higher than that one's."""
    holder: str
    begun_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord(SignedRecord):
    """``<n>-<phase>.json``: signed, because callers start, stop or put back what it names."""

    what: ClassVar[str] = "migration phase"

    phase: str
    attempt: int
    intent: Mapping[str, Any]
    intent_at_ms: int
    """When the first attempt began the phase."""
    result: Mapping[str, Any] | None = None
    result_at_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPhase:
    """A phase this attempt has written its intent for."""

    record: PhaseRecord
    key: str
    version: str


def read_phases(
    store: ObjectStore, job: str, *, only: Collection[str] | None = None
) -> dict[str, list[PhaseRecord]]:
    """Return the phases that each migration and upgrade of a job has begun, or ``only`` these, by its id.

    Not verified: enough to keep a savepoint for it, or to refuse another one beside it, but not to act on it.
    """
    journals: dict[str, list[PhaseRecord]] = {}
    for info in store.list(f"{job}/{_FOLDER}/"):
        migration_id, _, name = info.key.removeprefix(f"{job}/{_FOLDER}/").partition("/")
        wanted = name not in _NO_PHASES and (only is None or _phase_of(info.key) in only)
        found = store.get(info.key) if wanted else None
        if found is not None:
            journals.setdefault(migration_id, []).append(PhaseRecord.from_bytes(found.data))
    return journals


def has_ended(phases: Iterable[PhaseRecord]) -> bool:
    """Return whether the migration or upgrade with these phases has ended."""
    return any(phase.phase in _LAST_PHASES and is_last(phase) for phase in phases)


def is_under_way(phases: Collection[PhaseRecord]) -> bool:
    """Return whether it has started or stopped anything, and has not ended.

    What was only planned or approved, and then refused or given up, has no end of its own.
    """
    return any(phase.phase in _BEGUN_PHASES for phase in phases) and not has_ended(phases)


def is_last(record: PhaseRecord | None) -> bool:
    """Return whether a last phase has ended its migration or upgrade.

    After a failure the way back follows; a result may name the phase after it (``then``).
    """
    result = record.result if record is not None else None
    return result is not None and not result.get("failure") and not result.get("then")


def read_unrested(store: ObjectStore, job: str) -> dict[str, list[PhaseRecord]]:
    """Return the phases of a job's migrations and upgrades that do not rest, by id.

    One that rests holds no producers, and has moved its job wholly or not at all. Not verified, as
    ``read_phases``. One listing, and one read for each that rests: a job may have had hundreds.
    """
    keys: dict[str, dict[str, str]] = {}
    for info in store.list(f"{job}/{_FOLDER}/"):
        migration_id, _, name = info.key.removeprefix(f"{job}/{_FOLDER}/").partition("/")
        if name not in _NO_PHASES:
            keys.setdefault(migration_id, {})[_phase_of(info.key)] = info.key

    def read(key: str) -> PhaseRecord | None:
        found = store.get(key)
        return PhaseRecord.from_bytes(found.data) if found is not None else None

    return {
        migration_id: [record for key in begun.values() if (record := read(key)) is not None]
        for migration_id, begun in keys.items()
        if "standby" in begun and not any(is_last(read(begun[name])) for name in _REST if name in begun)
    }


def open_since_ms(store: ObjectStore, job: str) -> int | None:
    """Return when the oldest migration or upgrade that is under way began; None if none is."""
    begun = [
        min(phase.intent_at_ms for phase in phases)
        for phases in read_phases(store, job).values()
        if is_under_way(phases)
    ]
    return min(begun, default=None)


def _phase_of(key: str) -> str:
    return key.rpartition("/")[2].partition("-")[2].removesuffix(".json")


class CutoverJournal:
    """The records of one migration, ``<job>/migrations/<id>/``.

    Every phase that is read raises ``SignatureError`` unless a caller with the key wrote it.
    """

    def __init__(
        self, store: ObjectStore, job: str, migration_id: str, phases: tuple[str, ...], *, signer: Signer
    ) -> None:
        self._store, self._job, self._phases, self._signer = store, job, phases, signer
        self._prefix = f"{job}/{_FOLDER}/{check_name('migration id', migration_id)}"
        self.migration_id = migration_id
        self._attempt: AttemptRecord | None = None

    # --- attempts -----------------------------------------------------------------------------

    def begin(self, draw_token: Callable[[], int]) -> AttemptRecord:
        """Take charge as the newest attempt.

        Raises:
            AttemptSupersededError: If another attempt begins at the same moment.
        """
        found = self._store.get(self._attempt_key)
        before = AttemptRecord.from_bytes(found.data).attempt if found else 0
        attempt = AttemptRecord(
            attempt=before + 1, token=draw_token(), holder=socket.gethostname(), begun_at_ms=now_ms()
        )
        try:
            seen = found.version if found else None
            write_over(self._store, self._attempt_key, attempt.to_bytes(), seen=seen)
        except (ObjectExistsError, ObjectChangedError) as error:
            raise self._superseded(attempt.attempt) from error
        self._attempt = attempt
        return attempt

    def part(self, name: str) -> CutoverJournal:
        """Return the journal of a cutover that is part of this one, with the same phases."""
        return CutoverJournal(
            self._store, self._job, f"{self.migration_id}-{name}", self._phases, signer=self._signer
        )

    @property
    def has_begun(self) -> bool:
        """Whether any attempt was ever made."""
        return self._store.get(self._attempt_key) is not None

    def check(self) -> None:
        """Require that this attempt is still the newest.

        Raises:
            AttemptSupersededError: If a later one has begun.
        """
        found = self._store.get(self._attempt_key)
        mine = self._mine()
        if found is None or AttemptRecord.from_bytes(found.data) != mine:
            raise self._superseded(mine.attempt)

    @property
    def attempt(self) -> int:
        """The number of this attempt."""
        return self._mine().attempt

    @property
    def token(self) -> int:
        """This attempt's token for the producer switch."""
        return self._mine().token

    # --- what was approved --------------------------------------------------------------------

    def approve(self, what: Mapping[str, Any]) -> Mapping[str, Any]:
        """Store what is approved, once; returns what is stored, perhaps by an earlier call."""
        record = PhaseRecord(phase=APPROVED, attempt=0, intent=what, intent_at_ms=now_ms())
        try:
            self._store.create(self._approved_key, self._signed(record, self._approved_key))
        except ObjectExistsError:
            log.info("The approval of %s was stored before", self.migration_id)
        return self.approved() or what

    def approved(self) -> Mapping[str, Any] | None:
        """Return what was approved; None if nothing was stored."""
        found = self._store.get(self._approved_key)
        return self._verified(found, self._approved_key).intent if found else None

    def decide(self, who: Mapping[str, Any], *, approved: bool) -> None:
        """Store who has approved or rejected it; a later answer takes the place of an earlier one."""
        record = PhaseRecord(
            phase=DECIDED,
            attempt=0,
            intent=who,
            intent_at_ms=now_ms(),
            result={"then": "window"} if approved else {},  # a rejected one has ended
            result_at_ms=now_ms(),
        )
        self._store.write(self._decided_key, self._signed(record, self._decided_key))

    def decided(self) -> Mapping[str, Any] | None:
        """Return who has approved or rejected it; None if nobody has yet."""
        found = self._store.get(self._decided_key)
        return self._verified(found, self._decided_key).intent if found else None

    # --- phases -------------------------------------------------------------------------------

    def read(self, phase: str) -> PhaseRecord | None:
        """Return a phase's record, or None if it was never begun."""
        key, found = self._find(phase)
        return self._verified(found, key) if found else None

    def result(self, phase: str) -> Mapping[str, Any] | None:
        """Return a phase's result, or None while it has none."""
        record = self.read(phase)
        return record.result if record else None

    def open(self, phase: str, intent: Mapping[str, Any]) -> OpenPhase:
        """Write the intent; a phase begun by an earlier attempt keeps its intent, and its result.

        Raises:
            AttemptSupersededError: If a later attempt has begun.
        """
        self.check()
        key, found = self._find(phase)
        try:
            if found is None:
                record = PhaseRecord(
                    phase=phase, attempt=self._mine().attempt, intent=intent, intent_at_ms=now_ms()
                )
                version = self._store.create(key, self._signed(record, key))
                return OpenPhase(record=record, key=key, version=version)
            record = self._verified(found, key)
            if record.result is not None or record.attempt == self._mine().attempt:
                return OpenPhase(record=record, key=key, version=found.version)
            record = replace(record, attempt=self._mine().attempt)
            version = self._store.replace(key, self._signed(record, key), expected=found.version)
            return OpenPhase(record=record, key=key, version=version)
        except (ObjectExistsError, ObjectChangedError) as error:
            raise self._superseded(self._mine().attempt) from error

    def close(self, phase: OpenPhase, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write the result, if no later attempt has opened the phase since.

        Raises:
            AttemptSupersededError: If one has.
        """
        done = replace(phase.record, result=result, result_at_ms=now_ms())
        try:
            self._store.replace(phase.key, self._signed(done, phase.key), expected=phase.version)
        except ObjectChangedError as error:
            raise self._superseded(self._mine().attempt) from error
        return result

    def phases(self) -> list[PhaseRecord]:
        """Return every phase that was begun, in order."""
        return [record for phase in self._phases if (record := self.read(phase)) is not None]

    def seconds(self) -> dict[str, float]:
        """Return how long each finished phase took, retries included."""
        return {
            record.phase: (record.result_at_ms - record.intent_at_ms) / 1000
            for record in self.phases()
            if record.result_at_ms is not None
        }

    # --- signatures ---------------------------------------------------------------------------

    def _signed(self, record: PhaseRecord, key: str) -> bytes:
        return self._signer.sign(record, f"{self._store.uri}/{key}").to_bytes()

    def _verified(self, found: Versioned, key: str) -> PhaseRecord:
        self._signer.require(found.data, f"{self._store.uri}/{key}")
        return PhaseRecord.from_bytes(found.data)

    # --- keys ---------------------------------------------------------------------------------

    @property
    def _approved_key(self) -> str:
        return f"{self._prefix}/0-{APPROVED}.json"

    @property
    def _decided_key(self) -> str:
        return f"{self._prefix}/0-{DECIDED}.json"

    @property
    def _attempt_key(self) -> str:
        return f"{self._prefix}/{_ATTEMPT}"

    def _find(self, phase: str) -> tuple[str, Versioned | None]:
        """Return a phase's key and record."""
        key = f"{self._prefix}/{self._phases.index(phase) + 1}-{phase}.json"
        return key, self._store.get(key)

    def _mine(self) -> AttemptRecord:
        if self._attempt is None:
            raise self._superseded(0)
        return self._attempt

    def _superseded(self, attempt: int) -> AttemptSupersededError:
        return AttemptSupersededError(
            f"Attempt {attempt} of {self.migration_id} was expected to be the newest, found a later one.",
            state_after="This attempt does nothing more; the later one continues.",
            remedy="Look at the newest try of the task.",
        )
