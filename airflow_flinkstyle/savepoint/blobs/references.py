"""``<job>/references/<savepoint id>/<holder>.json``: who needs a savepoint; written before the need begins.

A pin, a start and a standby, a drill, and a restore in claim mode all hold a savepoint in this one way. A
reference is written under an intent, or by a process that is protected otherwise, and counts once the intent
is found alive after it was written: a prune either sees it, or has given that intent up. It is released by
the event that ends the need (a person unpins; the generation is superseded, closes or fails for good), never
by age.

Claim mode means what it does in Flink: the savepoint belongs to the job that was restored from it, and goes
once a newer complete one has taken its place, without anybody disposing of it. The files are copied in both
modes. Hard links would share them only on one file system, and only while nothing ever opens one for writing:
Spark uses the names ``N.zip``, ``N.changelog`` and ``N.delta`` again when it runs a batch again, and whether
that replaces the file or its content is up to the checkpoint's file manager.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.errors import reference_missing
from airflow_flinkstyle.savepoint.repository.folder_cache import read_folder
from airflow_flinkstyle.savepoint.repository.stored import parse_stored
from airflow_flinkstyle.storage.keys import is_name
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

FOLDER = "references"
PIN = "pin"
"""Holder of the one reference that a person may have to a savepoint."""
Need = Literal["pin", "start", "prepare", "restored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(Record):
    """Keeps a savepoint from every prune until it is released."""

    what: ClassVar[str] = "reference"

    need: Need
    """``prepare``: a standby, or a drill, copies it; ``restored``: by hand, in claim mode."""
    by: str
    """Who asked for it, for people."""
    reason: str
    at_ms: int
    """Epoch milliseconds, UTC: for people, and for what was restored by hand."""
    generation: Generation | None = None
    """The run whose end releases it; None: somebody releases it by name."""
    claim_id: str = ""
    """Of that run's claim: two callers may try for one number."""
    claims: bool = False
    """Claim mode: once the run has committed a batch, the savepoint is its own."""


def of_generation(generation: Generation) -> str:
    """Return the holder's name of a run."""
    return f"generation-{generation:06d}"


def of_claim(generation: Generation, claim_id: str) -> str:
    """Return the holder's name of a claim that may not come to be: another caller may be faster."""
    return f"{of_generation(generation)}-{claim_id[:8]}"


def write_reference(
    repository: SavepointRepository, savepoint_id: str, holder: str, reference: Reference
) -> None:
    """Refer to a savepoint. Only under an intent, or while another reference or an open journal keeps it."""
    repository.store.write(_key(repository, savepoint_id, holder), reference.to_bytes())


def release(repository: SavepointRepository, savepoint_id: str, holder: str) -> Reference:
    """Release a reference, whoever holds it; what it kept is decided on by the next prune.

    Raises:
        FlinkstyleError: ``REFERENCE_MISSING`` if there is none of that holder; those that there are, are
            named.
    """
    known = references(repository).get(savepoint_id, {})
    if holder not in known:
        raise reference_missing(savepoint_id, holder, repository.uri, known=sorted(known))
    repository.store.delete(_key(repository, savepoint_id, holder))
    return known[holder]


def forget(repository: SavepointRepository, savepoint_id: str, holder: str) -> None:
    """Delete a reference that keeps nothing any more; another caller may have."""
    repository.store.delete(_key(repository, savepoint_id, holder))


def keys_of(repository: SavepointRepository, savepoints: Collection[str]) -> list[str]:
    """Return where the references to savepoints are, by one listing, for who deletes them with those."""
    folder = f"{repository.job}/{FOLDER}/"
    wanted = frozenset(savepoints)
    keys = (info.key for info in repository.store.list(folder))
    return [key for key in keys if key.removeprefix(folder).partition("/")[0] in wanted]


def references(repository: SavepointRepository) -> Mapping[str, Mapping[str, Reference]]:
    """Return all references by savepoint id and holder, by one listing."""

    def extract(name: str, data: bytes) -> str:
        parse_stored(Reference, repository, f"{repository.job}/{FOLDER}/{name}.json", data)
        return data.decode()

    found: dict[str, dict[str, Reference]] = {}
    for name, text in sorted(read_folder(repository, FOLDER, extract).items()):
        savepoint_id, _, holder = name.partition("/")
        found.setdefault(savepoint_id, {})[holder] = Reference.from_bytes(text.encode())
    return found


def pin(
    repository: SavepointRepository,
    savepoint_id: str,
    *,
    reason: str,
    by: str,
    at_ms: int,
    wait_s: float = 600.0,
) -> Reference:
    """Pin a savepoint, or pin it anew for another reason.

    Args:
        repository: The job's savepoints.
        savepoint_id: Which one.
        reason: Why it is kept.
        by: Who pins it.
        at_ms: When, epoch milliseconds.
        wait_s: How long to wait for a prune to end.

    Raises:
        SavepointMissingError: If there is none of that id.
        RepositoryBusyError: If a prune has not ended in time.
        IntentBrokenError: If this process was taken for dead meanwhile; the savepoint may be gone.
    """
    if not reason.strip():
        raise BadInputError(
            f"Expected a reason to keep savepoint {savepoint_id}, found none.",
            state_after="Nothing was pinned.",
            remedy="Say why it is kept, for those who clean up later.",
        )
    made = Reference(need="pin", reason=reason, by=by, at_ms=at_ms)
    with hold_intent(repository, "pin", holder=by, wait_s=wait_s) as held:
        repository.read(savepoint_id)
        write_reference(repository, savepoint_id, PIN, made)
        held.require_alive()  # else a prune had read the references before this one was there
    return made


def unpin(repository: SavepointRepository, savepoint_id: str) -> None:
    """Let retention decide on a savepoint again; one that is not pinned stays as it is."""
    forget(repository, savepoint_id, PIN)


def pins(repository: SavepointRepository) -> Mapping[str, Reference]:
    """Return all pins by savepoint id."""
    return {savepoint_id: held[PIN] for savepoint_id, held in references(repository).items() if PIN in held}


def claim_savepoint(repository: SavepointRepository, savepoint_id: str, *, by: str, at_ms: int) -> None:
    """Write down that a savepoint was restored by hand in claim mode; the same place does since the first."""
    holder = f"restored-{hashlib.sha256(by.encode()).hexdigest()[:16]}"
    if holder not in references(repository).get(savepoint_id, {}):
        made = Reference(
            need="restored", by=by, reason="it was restored in claim mode", at_ms=at_ms, claims=True
        )
        write_reference(repository, savepoint_id, holder, made)


def _key(repository: SavepointRepository, savepoint_id: str, holder: str) -> str:
    if not is_name(holder) or not is_name(savepoint_id):
        raise reference_missing(savepoint_id, holder, repository.uri, known=())
    return f"{repository.job}/{FOLDER}/{savepoint_id}/{holder}.json"
