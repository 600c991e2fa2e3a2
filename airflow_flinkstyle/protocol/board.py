"""The job's records in the store, typed: the only place that knows their keys.

Both sides use it: callers (``jobs``) and the agent. Which side may write which record is said in
``records``; here stand the keys and the kind of write (create once, replace if unchanged).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.records import (
    Claim,
    Current,
    End,
    Heartbeat,
    IncarnationRecord,
    Progress,
    Record,
    Request,
    Submit,
    TakeoverOrder,
)
from airflow_flinkstyle.storage.keys import MAX_NAME_CHARACTERS, is_name
from airflow_flinkstyle.types import Generation, Incarnation

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore

R = TypeVar("R", bound=Record)
CUTS = "cuts"
"""Folder under a savepoint root, beside those of the jobs: what concerns several of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot(Generic[R]):
    """A record as read, with the version a replace expects."""

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
    if name == CUTS:
        raise BadInputError(
            f"A job name other than {name!r} was expected: that folder holds the cuts of several jobs.",
            state_after="Nothing was written.",
            remedy="Choose another job name.",
        )
    return check_name("job name", name)


class JobBoard:
    """Records of one job under a savepoint root."""

    def __init__(self, store: ObjectStore, job: str) -> None:
        self.store = store
        self.job = check_job_name(job)

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

    # --- one generation -----------------------------------------------------------------------

    def generations(self) -> list[Generation]:
        """Return the claimed generations, oldest first."""
        prefix = f"{self.job}/runs/"
        keys = (info.key for info in self.store.list(prefix))
        return sorted(
            {Generation(int(key[len(prefix) :].split("/")[0])) for key in keys if key.endswith("/claim.json")}
        )

    def create_claim(self, generation: Generation, claim: Claim) -> None:
        """Claim a generation; raises ``ObjectExistsError`` if another caller was first."""
        self.store.create(self._run(generation, "claim"), claim.to_bytes())

    def claim(self, generation: Generation) -> Claim | None:
        """Return the claim of a generation."""
        return self._value(Claim, self._run(generation, "claim"))

    def create_takeover_order(self, generation: Generation, order: TakeoverOrder) -> None:
        """Let the generation's driver take over; raises ``ObjectExistsError`` if it was told before."""
        self.store.create(self._run(generation, "takeover-order"), order.to_bytes())

    def takeover_order(self, generation: Generation) -> TakeoverOrder | None:
        """Return what the generation's driver was told, or None while it only waits."""
        return self._value(TakeoverOrder, self._run(generation, "takeover-order"))

    # --- driver processes ---------------------------------------------------------------------

    def newest_submit(self, generation: Generation) -> int:
        """Return the number of the newest submit of a generation; 0 before the first."""
        return max(self._numbers(generation, "submits"), default=0)

    def create_submit(self, generation: Generation, number: int, submit: Submit) -> str:
        """Take the right to start one driver process; raises ``ObjectExistsError`` if another caller has it.

        Returns:
            The version that ``put_submit`` expects.
        """
        return self.store.create(self._run(generation, f"submits/{number:06d}"), submit.to_bytes())

    def put_submit(self, generation: Generation, number: int, submit: Submit, *, seen: str) -> None:
        """Say what came of a submit; raises ``ObjectChangedError`` if somebody did since it was read."""
        self.store.replace(self._run(generation, f"submits/{number:06d}"), submit.to_bytes(), expected=seen)

    def submit(self, generation: Generation, number: int) -> Slot[Submit] | None:
        """Return a submit of a generation."""
        return self._get(Submit, self._run(generation, f"submits/{number:06d}"))

    def incarnations(self, generation: Generation) -> list[Incarnation]:
        """Return the driver processes that have begun under a generation, oldest first."""
        return [Incarnation(number) for number in self._numbers(generation, "incarnations")]

    def create_incarnation(
        self, generation: Generation, incarnation: Incarnation, record: IncarnationRecord
    ) -> None:
        """Begin an incarnation; raises ``ObjectExistsError`` if another process has this number."""
        self.store.create(self._run(generation, f"incarnations/{incarnation:06d}"), record.to_bytes())

    def incarnation(self, generation: Generation, incarnation: Incarnation) -> IncarnationRecord | None:
        """Return what a driver process said of itself when it began."""
        return self._value(IncarnationRecord, self._run(generation, f"incarnations/{incarnation:06d}"))

    def heartbeat(self, generation: Generation) -> Slot[Heartbeat] | None:
        """Return the newest heartbeat of a generation."""
        return self._get(Heartbeat, self._run(generation, "heartbeat"))

    def beat(self, generation: Generation, heartbeat: Heartbeat, *, seen: str | None) -> str:
        """Write a heartbeat over version ``seen`` (None: the first); returns the new version.

        Raises:
            ObjectChangedError: If another incarnation has written since: this one has been superseded.
            ObjectExistsError: The same, for the first.
        """
        key = self._run(generation, "heartbeat")
        if seen is None:
            return self.store.create(key, heartbeat.to_bytes())
        return self.store.replace(key, heartbeat.to_bytes(), expected=seen)

    # --- requests and reports -----------------------------------------------------------------

    def request(self, generation: Generation, *, unless: str | None = None) -> Slot[Request] | None:
        """Return the request slot; None if it is empty or still at version ``unless``."""
        return self._get(Request, self._run(generation, "request"), unless=unless)

    def put_request(self, generation: Generation, request: Request, *, seen: Slot[Request] | None) -> None:
        """Fill or change the slot if nothing changed since ``seen``; else raises as a replace does."""
        self._put(self._run(generation, "request"), request, seen)

    def write_progress(self, generation: Generation, progress: Progress) -> None:
        """Show how far a savepoint is."""
        self.store.write(
            self._run(generation, f"reports/{progress.request_id}.progress"), progress.to_bytes()
        )

    def progress(self, generation: Generation, request_id: str) -> Progress | None:
        """Return the newest progress of a request."""
        return self._value(Progress, self._run(generation, f"reports/{request_id}.progress"))

    def create_end(self, generation: Generation, end: End) -> None:
        """End a request; raises ``ObjectExistsError`` if it has ended before."""
        self.store.create(self._run(generation, f"reports/{end.request_id}.end"), end.to_bytes())

    def end(self, generation: Generation, request_id: str) -> End | None:
        """Return how a request ended, or None while it has not."""
        return self._value(End, self._run(generation, f"reports/{request_id}.end"))

    # --- keys ---------------------------------------------------------------------------------

    def _run(self, generation: Generation, name: str) -> str:
        return f"{self.job}/runs/{generation:06d}/{name}.json"

    def _numbers(self, generation: Generation, folder: str) -> list[int]:
        prefix = f"{self.job}/runs/{generation:06d}/{folder}/"
        return sorted(int(info.key[len(prefix) :].removesuffix(".json")) for info in self.store.list(prefix))

    def _get(self, record: type[R], key: str, *, unless: str | None = None) -> Slot[R] | None:
        found = self.store.get(key, unless=unless)
        return None if found is None else Slot(value=record.from_bytes(found.data), version=found.version)

    def _value(self, record: type[R], key: str) -> R | None:
        slot = self._get(record, key)
        return None if slot is None else slot.value

    def _put(self, key: str, record: R, seen: Slot[R] | None) -> None:
        if seen is None:
            self.store.create(key, record.to_bytes())
        else:
            self.store.replace(key, record.to_bytes(), expected=seen.version)
