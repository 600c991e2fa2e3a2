"""The job's records in the store, typed: the only place that knows their keys.

Both sides use it: callers (``jobs``) and the agent. ``records`` names the side that may write a record; this
module holds the keys and the kind of write (create once, replace if unchanged).
"""

from __future__ import annotations

import functools
import hashlib
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, Generic, TypeVar

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.comparison_records import Comparison
from airflow_flinkstyle.protocol.errors import ROOT_COPIED
from airflow_flinkstyle.protocol.history import History
from airflow_flinkstyle.protocol.home import HOME_KEY, Home
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.protocol.records import (
    Claim,
    Current,
    DriverEnd,
    End,
    Heartbeat,
    IncarnationRecord,
    Precopy,
    Progress,
    Request,
    Submit,
    TakeoverOrder,
    WorkRecord,
)
from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal
from airflow_flinkstyle.protocol.replay_records import ReplayRange
from airflow_flinkstyle.protocol.table_records import RestoredTable, TablesToRestore
from airflow_flinkstyle.storage.base import write_over
from airflow_flinkstyle.storage.errors import ObjectExistsError
from airflow_flinkstyle.storage.keys import MAX_NAME_CHARACTERS, Name, is_name
from airflow_flinkstyle.types import Generation, Incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.storage.base import ObjectStore

ROOT_KEY: Final = "_root.json"
"""No job's name begins with ``_``, so lists of jobs skip it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Root(Record):
    """``_root.json``: created by the first start below a root."""

    what: ClassVar[str] = "root"

    root_id: Name
    uri: str
    """Where the root was when this was written: if it is elsewhere now, it was copied or moved."""
    created_at_ms: int

    def require_at(self, uri: str) -> None:
        """Check that the root is where it was created; raises ``ROOT_COPIED`` with both places."""
        if uri != self.uri:
            raise ROOT_COPIED.error(uri=uri, created_at=self.uri)


def root_of(store: ObjectStore) -> Root:
    """Return the identity of a root, which is created if it has none."""
    found = store.get(ROOT_KEY)
    if found is None:
        with suppress(ObjectExistsError):  # another was first, or an answer was lost
            store.create(ROOT_KEY, _new(store).to_bytes())
    return Root.from_bytes(store.read(ROOT_KEY) if found is None else found.data)


def adopt_root(store: ObjectStore, *, is_copy: bool) -> Root:
    """Let a root that was created elsewhere be used where it is now.

    Args:
        store: The root.
        is_copy: The original is still used: this root gets an id of its own, so places of the original's
            jobs are not those of its own jobs. Else the root was moved, and keeps its id.

    Raises:
        ObjectChangedError: If another caller has just adopted it.
    """
    found = store.get(ROOT_KEY)
    if found is None:
        return root_of(store)
    adopted = _new(store) if is_copy else replace(Root.from_bytes(found.data), uri=store.uri)
    store.replace(ROOT_KEY, adopted.to_bytes(), expected=found.version)
    return adopted


def _new(store: ObjectStore) -> Root:
    return Root(root_id=uuid.uuid4().hex, uri=store.uri, created_at_ms=now_ms())


R = TypeVar("R", bound=Record)
WORK: Final = "0-work.json"
"""Name of the record in a migration's or an upgrade's folder that names the attempt at work."""
CUTS = "cuts"
"""Folder under a savepoint root, beside the jobs' folders: the cuts of several jobs."""
CHECKPOINTS = "checkpoints"
"""Folder beside the jobs' folders: checkpoints by default, each job's in a folder of its name."""
_NO_JOBS: Final = {CUTS: "the cuts of several jobs", CHECKPOINTS: "the checkpoints of the jobs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot(Generic[R]):
    """A record as it was read, with the version that a replace expects."""

    value: R
    version: str


def check_name(what: str, name: str) -> str:
    """Return ``name`` if it can stand in a key.

    Raises:
        BadInputError: If it is empty, too long, or holds anything but letters, digits, ``._-``.
    """
    if not is_name(name):
        raise BadInputError(
            f"A {what} of up to {MAX_NAME_CHARACTERS} letters, digits, '.', '_' or '-', a letter or "
            f"digit first, was expected, found {name!r}.",
            state_after="Nothing was written.",
            remedy=f"Choose another {what}.",
        )
    return name


def check_job_name(name: str) -> str:
    """Return ``name`` if a job may have it.

    Raises:
        BadInputError: If it cannot stand in a key, or its folder is not a job's.
    """
    if name in _NO_JOBS:
        raise BadInputError(
            f"A job name other than {name!r} was expected: that folder holds {_NO_JOBS[name]}.",
            state_after="Nothing was written.",
            remedy="Choose another job name.",
        )
    return check_name("job name", name)


def is_job_name(name: str) -> bool:
    """Tell whether a folder below a savepoint root may be a job's."""
    return is_name(name) and name not in _NO_JOBS


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterRecords:
    """Records written after those of the driver that took a job over last: usually none."""

    keys: Mapping[str, str]
    """Key -> version."""
    at: Callable[[Generation, str], str]
    """Returns the key of a generation's record, by its name."""

    def with_takeover_order(self) -> list[Generation]:
        """Return the later generations that have a takeover order, oldest first."""
        orders = [key for key in self.keys if key.endswith("/takeover-order.json")]
        return sorted(Generation(int(key.split("/")[-2])) for key in orders)

    def has_incarnation(self, generation: Generation) -> bool:
        """Return whether a later driver process of that generation has begun."""
        prefix = self.at(generation, "incarnations/").removesuffix(".json")
        return any(key.startswith(prefix) for key in self.keys)

    def submit_version(self, generation: Generation) -> str | None:
        """Return the version of a generation's newest submit; None if there is none."""
        return self.keys.get(self.at(generation, "submit"))


class JobBoard:
    """Records of one job under a savepoint root."""

    def __init__(self, store: ObjectStore, job: str) -> None:
        self.store = store
        self.job = check_job_name(job)

    @functools.cached_property
    def root(self) -> Root:
        """The identity of the job's root, read once."""
        return root_of(self.store)

    # --- current.json -------------------------------------------------------------------------

    def current(self) -> Slot[Current] | None:
        """Return which driver may run batches; None before the job's first."""
        return self._get(Current, f"{self.job}/current.json")

    def take_current(self, current: Current, *, seen: Slot[Current] | None) -> None:
        """Take over, if nothing changed since ``seen`` was read (None: there was none).

        Raises:
            ObjectExistsError: If another driver created it meanwhile.
            ObjectChangedError: If another driver took it over meanwhile.
        """
        self._put(f"{self.job}/current.json", current, seen)

    def behind(self, current: Current | None) -> LaterRecords:
        """Return the records after those of the driver that took the job over last, by one listing.

        It begins after that driver's incarnation record, so the job's older records cost nothing.
        """
        prefix, after = f"{self.job}/runs/", ""
        if current is not None:
            after = self._run(current.generation, f"incarnations/{current.incarnation:06d}")
        found = {info.key: info.version for info in self.store.list(prefix, after=after) if info.key > after}
        return LaterRecords(keys=found, at=self._run)

    # --- one generation -----------------------------------------------------------------------

    def generations(self) -> list[Generation]:
        """Return the claimed generations, oldest first."""
        return sorted(self.claim_versions())

    def claim_versions(self) -> dict[Generation, str]:
        """Return the version of each generation's claim, by one listing."""
        prefix = f"{self.job}/runs/"
        return {
            Generation(int(info.key[len(prefix) :].split("/")[0])): info.version
            for info in self.store.list(prefix)
            if info.key.endswith("/claim.json")
        }

    def create_claim(self, generation: Generation, claim: Claim) -> None:
        """Claim a generation; raises ``ObjectExistsError`` if another caller was first."""
        self.store.create(self._run(generation, "claim"), claim.to_bytes())

    def claim(self, generation: Generation) -> Claim | None:
        """Return the claim of a generation."""
        return self._value(Claim, self._run(generation, "claim"))

    def claim_data(self, generation: Generation) -> bytes | None:
        """Return the claim of a generation as it is stored, to verify its signature."""
        found = self.store.get(self._run(generation, "claim"))
        return None if found is None else found.data

    def claim_digest(self, generation: Generation) -> str | None:
        """Return the SHA-256 of a generation's claim in hex; None if it was not claimed."""
        data = self.claim_data(generation)
        return None if data is None else hashlib.sha256(data).hexdigest()

    def claim_place(self, generation: Generation) -> str:
        """Return the root and key of a generation's claim, by which it is signed."""
        return f"{self.store.uri}/{self._run(generation, 'claim')}"

    def create_takeover_order(self, generation: Generation, order: TakeoverOrder) -> None:
        """Let the generation's driver take over; raises ``ObjectExistsError`` if it has an order."""
        self.store.create(self._run(generation, "takeover-order"), order.to_bytes())

    def takeover_order(self, generation: Generation) -> TakeoverOrder | None:
        """Return the order of the generation's driver; None while it only waits."""
        return self._value(TakeoverOrder, self._run(generation, "takeover-order"))

    def takeover_order_data(self, generation: Generation) -> bytes | None:
        """Return the takeover order as it is stored, to verify its signature."""
        found = self.store.get(self._run(generation, "takeover-order"))
        return None if found is None else found.data

    def takeover_order_place(self, generation: Generation) -> str:
        """Return the root and key of a generation's takeover order, by which it is signed."""
        return f"{self.store.uri}/{self._run(generation, 'takeover-order')}"

    def create_tables_to_restore(self, generation: Generation, tables: TablesToRestore) -> None:
        """Record what a rewind takes back; raises ``ObjectExistsError`` if an earlier try did."""
        self.store.create(self._run(generation, "tables-to-restore"), tables.to_bytes())

    def tables_to_restore_data(self, generation: Generation) -> bytes | None:
        """Return that record as it is stored, to verify its signature; None for no tables."""
        found = self.store.get(self._run(generation, "tables-to-restore"))
        return None if found is None else found.data

    def tables_to_restore_place(self, generation: Generation) -> str:
        """Return the root and key of that record, by which it is signed."""
        return f"{self.store.uri}/{self._run(generation, 'tables-to-restore')}"

    def create_restored_table(self, generation: Generation, query: str, restored: RestoredTable) -> None:
        """Record that a query's table was put back; an earlier record of it stays."""
        with suppress(ObjectExistsError):
            self.store.create(self._run(generation, f"restored-tables/{query}"), restored.to_bytes())

    def restored_table(self, generation: Generation, query: str) -> RestoredTable | None:
        """Return how this generation put a query's table back; None if it has not yet."""
        return self._value(RestoredTable, self._run(generation, f"restored-tables/{query}"))

    def write_precopy(self, generation: Generation, savepoint_id: str) -> None:
        """Name a newer hot savepoint to a driver that waits."""
        self.store.write(self._run(generation, "precopy"), Precopy(savepoint_id=savepoint_id).to_bytes())

    def precopy(self, generation: Generation) -> Precopy | None:
        """Return the newest savepoint that a waiting driver may copy ahead; None: that of its claim."""
        return self._value(Precopy, self._run(generation, "precopy"))

    # --- the attempt that works on a migration or an upgrade ----------------------------------

    def write_work(self, migration_id: str, work: WorkRecord) -> None:
        """Write the record of the attempt at work; the newest one counts."""
        self.store.write(self._work(migration_id), work.to_bytes())

    def work(self, migration_id: str) -> Slot[WorkRecord] | None:
        """Return the newest record of the attempt at work; None before the first."""
        return self._get(WorkRecord, self._work(migration_id))

    # --- driver processes ---------------------------------------------------------------------

    def newest_submit(self, generation: Generation) -> int:
        """Return the number of the newest submit of a generation; 0 before the first."""
        slot = self.submit(generation)
        return slot.value.number if slot is not None else 0

    def create_submit(self, generation: Generation, number: int, submit: Submit) -> str:
        """Take the right to start one driver process, with the next number.

        Returns:
            The version that ``put_submit`` expects.

        Raises:
            ObjectExistsError: If another caller has this number, or a later one.
            ObjectChangedError: If another caller took it at this moment.
        """
        key, before = self._run(generation, "submit"), self.submit(generation)
        if (before.value.number if before is not None else 0) != number - 1:
            raise ObjectExistsError.at(self.store.uri, f"{key}, number {number}")
        return self._put(key, replace(submit, number=number), before)

    def put_submit(self, generation: Generation, submit: Submit, *, seen: str) -> None:
        """Write a submit's outcome; raises ``ObjectChangedError`` if it changed, or a later one exists."""
        self.store.replace(self._run(generation, "submit"), submit.to_bytes(), expected=seen)

    def submit_place(self, generation: Generation) -> str:
        """Return root and key of a generation's submit, which the signature of its process covers."""
        return f"{self.store.uri}/{self._run(generation, 'submit')}"

    def submit(self, generation: Generation) -> Slot[Submit] | None:
        """Return the newest submit of a generation."""
        return self._get(Submit, self._run(generation, "submit"))

    def incarnations(self, generation: Generation) -> list[Incarnation]:
        """Return the driver processes that have begun under a generation, oldest first."""
        return [Incarnation(number) for number in self._numbers(generation, "incarnations")]

    def create_incarnation(
        self, generation: Generation, incarnation: Incarnation, record: IncarnationRecord
    ) -> None:
        """Begin an incarnation; raises ``ObjectExistsError`` if another process has this number."""
        self.store.create(self._run(generation, f"incarnations/{incarnation:06d}"), record.to_bytes())

    def incarnation(self, generation: Generation, incarnation: Incarnation) -> IncarnationRecord | None:
        """Return the record that a driver process wrote when it began."""
        return self._value(IncarnationRecord, self._run(generation, f"incarnations/{incarnation:06d}"))

    def write_driver_end(self, generation: Generation, end: DriverEnd) -> None:
        """Record for a generation's drivers that another driver has ended; the first record stays."""
        with suppress(ObjectExistsError):
            self.store.create(self._driver_end(generation, end.generation, end.incarnation), end.to_bytes())

    def driver_end_data(
        self, generation: Generation, of: Generation, incarnation: Incarnation
    ) -> bytes | None:
        """Return the record of a driver's end as it is stored, to verify its signature; None if none is."""
        found = self.store.get(self._driver_end(generation, of, incarnation))
        return None if found is None else found.data

    def driver_end_place(self, generation: Generation, of: Generation, incarnation: Incarnation) -> str:
        """Return the root and key of the record of a driver's end, by which it is signed."""
        return f"{self.store.uri}/{self._driver_end(generation, of, incarnation)}"

    def _driver_end(self, generation: Generation, of: Generation, incarnation: Incarnation) -> str:
        return self._run(generation, f"ended/{of:06d}-{incarnation:06d}")

    def heartbeat(self, generation: Generation) -> Slot[Heartbeat] | None:
        """Return the newest heartbeat of a generation."""
        return self._get(Heartbeat, self._run(generation, "heartbeat"))

    def heartbeat_version(self, generation: Generation) -> str | None:
        """Return the version of a generation's heartbeat, without reading it; None if there is none."""
        found = self.store.head(self._run(generation, "heartbeat"))
        return None if found is None else found.version

    def current_heartbeat(self) -> Heartbeat | None:
        """Return the newest heartbeat of the driver that took the job over last; None if there is none."""
        current = self.current()
        slot = self.heartbeat(current.value.generation) if current is not None else None
        return slot.value if slot is not None else None

    def beat(self, generation: Generation, heartbeat: Heartbeat, *, seen: str | None) -> str:
        """Write a heartbeat over version ``seen`` (None: the first); returns the new version.

        Raises:
            ObjectChangedError: If another incarnation has written since: this one is superseded.
            ObjectExistsError: If another one has written the first.
        """
        return write_over(self.store, self._run(generation, "heartbeat"), heartbeat.to_bytes(), seen=seen)

    # --- how fast it was ----------------------------------------------------------------------

    def history(self) -> Slot[History] | None:
        """Return how fast the job was; None before anything was noted."""
        return self._get(History, f"{self.job}/history.json")

    def history_version(self) -> str:
        """Return the version of the history, to replace one that cannot be read; empty for none."""
        found = self.store.head(f"{self.job}/history.json")
        return found.version if found is not None else ""

    def write_history(self, history: History, *, seen: str) -> str:
        """Write the history over version ``seen`` (empty: the first); raises as a replace or create does."""
        return write_over(self.store, f"{self.job}/history.json", history.to_bytes(), seen=seen or None)

    # --- a job that plain Spark runs, or ran ---------------------------------------------------

    def home(self) -> Slot[Home] | None:
        """Return how plain Spark runs, or ran, the job; None if it never did."""
        return self._get(Home, f"{self.job}/{HOME_KEY}")

    def binding_home(self) -> Home | None:
        """Return the same; None if there is no such record, or a driver has taken the job over since."""
        slot = self.home()
        if slot is None:
            return None
        current = self.current()
        return slot.value if slot.value.binds(current.value.head if current is not None else None) else None

    def put_home(self, home: Home, *, seen: Slot[Home] | None) -> None:
        """Write that record if unchanged since ``seen``; else raises as a replace or create does."""
        self._put(f"{self.job}/{HOME_KEY}", home, seen)

    # --- requests and reports -----------------------------------------------------------------

    def request(self, generation: Generation, *, unless: str | None = None) -> Slot[Request] | None:
        """Return the request slot; None if it is empty or still at version ``unless``."""
        return self._get(Request, self._run(generation, "request"), unless=unless)

    def put_request(self, generation: Generation, request: Request, *, seen: Slot[Request] | None) -> None:
        """Fill or change the slot if nothing changed since ``seen``; else raises as a replace does."""
        self._put(self._run(generation, "request"), request, seen)

    def write_progress(self, generation: Generation, progress: Progress) -> None:
        """Write how far a savepoint is."""
        self.store.write(self._report(generation, f"{progress.request_id}.progress"), progress.to_bytes())

    def progress(self, generation: Generation, request_id: str) -> Progress | None:
        """Return the newest progress of a request."""
        return self._value(Progress, self._report(generation, f"{request_id}.progress"))

    def create_end(self, generation: Generation, end: End) -> None:
        """Record the end of a request; raises ``ObjectExistsError`` if it has ended before."""
        self.store.create(self._report(generation, f"{end.request_id}.end"), end.to_bytes())

    def end(self, generation: Generation, request_id: str) -> End | None:
        """Return how a request ended, or None while it has not."""
        return self._value(End, self._report(generation, f"{request_id}.end"))

    def write_rehearsal(self, generation: Generation, rehearsal: Rehearsal) -> None:
        """Write the outcome of a rehearsal; a later driver of the generation rehearses again."""
        self.store.write(self._report(generation, "rehearsal"), rehearsal.to_bytes())

    def rehearsal(self, generation: Generation) -> Rehearsal | None:
        """Return the outcome of a generation's newest rehearsal; None if there was none."""
        return self._value(Rehearsal, self._report(generation, "rehearsal"))

    def write_comparison(self, generation: Generation, comparison: Comparison) -> None:
        """Write the outcome of a comparison; a later driver of the generation compares again."""
        self.store.write(self._report(generation, "comparison"), comparison.to_bytes())

    def comparison(self, generation: Generation) -> Comparison | None:
        """Return the outcome of a generation's comparison; None if there was none."""
        return self._value(Comparison, self._report(generation, "comparison"))

    # --- a replay -----------------------------------------------------------------------------

    def create_replay_range(self, query: str, replay_range: ReplayRange) -> ReplayRange:
        """Record the range that a query runs; returns the one that was recorded first."""
        key = f"{self.job}/replay/{check_name('query name', query)}.json"
        with suppress(ObjectExistsError):
            self.store.create(key, replay_range.to_bytes())
        return ReplayRange.from_bytes(self.store.read(key))

    def replay_ranges(self) -> dict[str, ReplayRange]:
        """Return the recorded ranges by query; empty for a job that is no replay."""
        prefix = f"{self.job}/replay/"
        ranges = {info.key: self._value(ReplayRange, info.key) for info in self.store.list(prefix)}
        names = {key: key.removeprefix(prefix).removesuffix(".json") for key in ranges}
        return {names[key]: one for key, one in ranges.items() if one is not None}

    # --- keys ---------------------------------------------------------------------------------

    def _run(self, generation: Generation, name: str) -> str:
        return f"{self.job}/runs/{generation:06d}/{name}.json"

    def _work(self, migration_id: str) -> str:
        return f"{self.job}/migrations/{check_name('migration id', migration_id)}/{WORK}"

    def _report(self, generation: Generation, name: str) -> str:
        """Return a report's key: outside ``runs/``, whose listing must not grow with each savepoint."""
        return f"{self.job}/reports/{generation:06d}/{name}.json"

    def _numbers(self, generation: Generation, folder: str) -> list[int]:
        prefix = f"{self.job}/runs/{generation:06d}/{folder}/"
        return sorted(int(info.key[len(prefix) :].removesuffix(".json")) for info in self.store.list(prefix))

    def _get(self, record: type[R], key: str, *, unless: str | None = None) -> Slot[R] | None:
        found = self.store.get(key, unless=unless)
        return None if found is None else Slot(value=record.from_bytes(found.data), version=found.version)

    def _value(self, record: type[R], key: str) -> R | None:
        slot = self._get(record, key)
        return None if slot is None else slot.value

    def _put(self, key: str, record: R, seen: Slot[R] | None) -> str:
        return write_over(self.store, key, record.to_bytes(), seen=seen.version if seen else None)
