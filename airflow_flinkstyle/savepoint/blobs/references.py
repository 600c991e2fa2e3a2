"""``<job>/references/<savepoint id>/<holder>.json``: who needs a savepoint; written before the need begins.

A pin, a start, a standby, a drill, and a restore in claim mode all hold a savepoint in this one way. A
reference is written under an intent, or while something else protects the savepoint, and counts if the intent
is still alive after that write: a prune either sees it, or has given that intent up. It is released by the
event that ends the need (a person unpins; the generation is superseded, closes or fails for good), never by
age.

Claim mode means the same as in Flink: the savepoint belongs to the job that was restored from it, and a prune
disposes of it once a newer complete one has taken its place. The files are copied in both modes. Hard links
would share them only on one file system, and only while no process ever opens one for writing: Spark uses the
names ``N.zip``, ``N.changelog`` and ``N.delta`` again when it runs a batch again, and the checkpoint's file
manager decides whether that replaces the file or its content.
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
"""Holder of a person's reference: a savepoint has one pin at most."""
Need = Literal["pin", "start", "prepare", "restored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference(Record):
    """Keeps a savepoint from every prune until it is released."""

    what: ClassVar[str] = "reference"

    need: Need
    """``prepare``: a standby, or a drill, copies it; ``restored``: by hand, in claim mode."""
    by: str
    """Who made it, for people."""
    reason: str
    at_ms: int
    """Epoch milliseconds, UTC: for people, and to find a newer savepoint of a restore by hand."""
    generation: Generation | None = None
    """The run whose end releases it; None: it is released by its holder's name."""
    claim_id: str = ""
    """Of that run's claim: two callers may try for one number."""
    claims: bool = False
    """Claim mode: once the run has committed a batch, it owns the savepoint."""


def of_generation(generation: Generation) -> str:
    """Return the holder's name of a run."""
    return f"generation-{generation:06d}"


def of_claim(generation: Generation, claim_id: str) -> str:
    """Return the holder's name of a claim before it is created: another caller may be first."""
    return f"{of_generation(generation)}-{claim_id[:8]}"


def write_reference(
    repository: SavepointRepository, savepoint_id: str, holder: str, reference: Reference
) -> None:
    """Refer to a savepoint. Only under an intent, or while another reference or an open journal keeps it."""
    repository.store.write(_key(repository, savepoint_id, holder), reference.to_bytes())


def release(repository: SavepointRepository, savepoint_id: str, holder: str) -> Reference:
    """Release a reference of any holder; the next prune decides on the savepoint.

    Raises:
        FlinkstyleError: ``REFERENCE_MISSING`` if that holder has none; the existing holders are named.
    """
    known = references(repository).get(savepoint_id, {})
    if holder not in known:
        raise reference_missing(savepoint_id, holder, repository.uri, known=sorted(known))
    repository.store.delete(_key(repository, savepoint_id, holder))
    return known[holder]


def forget(repository: SavepointRepository, savepoint_id: str, holder: str) -> None:
    """Delete a reference that keeps nothing any more; another caller may have deleted it."""
    repository.store.delete(_key(repository, savepoint_id, holder))


def keys_of(repository: SavepointRepository, savepoints: Collection[str]) -> list[str]:
    """Return the keys of references to these savepoints, by one listing, to delete them too."""
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
    """Pin a savepoint, or pin it again for another reason.

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
        IntentBrokenError: If a prune took this process for dead meanwhile; the savepoint may be gone.
    """
    if not reason.strip():
        raise BadInputError(
            f"Expected a reason to keep savepoint {savepoint_id}, found none.",
            state_after="Nothing was pinned.",
            remedy="Give the reason why it is kept, for those who clean up later.",
        )
    made = Reference(need="pin", reason=reason, by=by, at_ms=at_ms)
    with hold_intent(repository, "pin", holder=by, wait_s=wait_s) as held:
        repository.read(savepoint_id)
        write_reference(repository, savepoint_id, PIN, made)
        held.require_alive()  # else a prune may have read the references before this one existed
    return made


def unpin(repository: SavepointRepository, savepoint_id: str) -> None:
    """Let retention decide on a savepoint again; one that is not pinned stays as it is."""
    forget(repository, savepoint_id, PIN)


def pins(repository: SavepointRepository) -> Mapping[str, Reference]:
    """Return all pins by savepoint id."""
    return {savepoint_id: held[PIN] for savepoint_id, held in references(repository).items() if PIN in held}


def claim_savepoint(repository: SavepointRepository, savepoint_id: str, *, by: str, at_ms: int) -> None:
    """Record that a savepoint was restored by hand in claim mode; per place, the first record stays."""
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
