"""Who owns a place that is known by its location alone: a checkpoint location, a scratch folder.

The first run that uses a place creates a mark in it, by a conditional create. A place that holds anything of
others is refused. So of two runs that come at once one gets it, and a run finds only what its own job wrote
there. The mark is beside the queries' folders, so Spark never sees it and no savepoint holds it; it is
written before anything else, and deleted after everything else.
"""

from __future__ import annotations

import itertools
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.protocol.errors import CHECKPOINT_LOST, PlaceOccupiedError
from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.errors import ObjectExistsError, StoreDeniedError
from airflow_flinkstyle.storage.keys import Name
from airflow_flinkstyle.types import Generation

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.storage.base import ObjectStore

MARK_KEY: Final = "_owner.json"
"""No query's name begins with ``_``."""
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnersMark(Record):
    """``_owner.json`` in a place: the agent's, created once, before anything else is written there."""

    what: ClassVar[str] = "owner's mark"

    place_id: Name
    """Unique to this place: the same location is another place on each machine's disk."""
    root_id: Name
    root: str
    """Where that root was, for people."""
    job: Name
    generation: Generation
    """The first one that used the place; later ones of the job may continue in it."""
    claim_digest: str
    """SHA-256 of that generation's claim in hex. A job that was deleted and created again counts its
    generations from 1 again, but its claims differ."""
    marked_at_ms: int


def own_place(place: ObjectStore, board: JobBoard, generation: Generation) -> str:
    """Make a place this job's own, or check that it is; a retry or a later incarnation finds the job's mark.

    Args:
        place: The store at the location.
        board: The job's records.
        generation: The one that is to use it.

    Returns:
        The place's id.

    Raises:
        PlaceOccupiedError: If another job's mark is there, or files without a mark.
        StoreDeniedError: If the mark may not be read or written.
        FlinkstyleError: ``ROOT_COPIED`` if the job's root is not where it was created.
    """
    board.root.require_at(board.store.uri)
    mark = _mark(board, generation).to_bytes()
    try:
        found = place.get(MARK_KEY)
        if found is None:
            _require_empty(place)
            with suppress(ObjectExistsError):  # another run was first, or an answer was lost
                place.create(MARK_KEY, mark)
        data = place.read(MARK_KEY) if found is None else found.data
    except StoreDeniedError as error:
        raise StoreDeniedError(
            f"Job {board.job} was expected to leave its mark in {place.uri} ({MARK_KEY}), before it writes "
            f"anything there; found that it may not: {error.problem}",
            state_after="No query was started; nothing was written there.",
            remedy="Let the driver's user or keys read and write below the checkpoint root, or choose "
            "another one.",
        ) from error
    return _require_own(place, board, data).place_id


def require_unmarked(place: ObjectStore) -> None:
    """Check that no job owns a place; other files in it are not checked.

    Raises:
        PlaceOccupiedError: If a job owns it.
    """
    found = place.get(MARK_KEY)
    if found is not None:
        raise PlaceOccupiedError.of(place.uri, "a place that no job owns", _whose(found.data))


def require_marked(place: ObjectStore, board: JobBoard, place_id: str) -> None:
    """Check that a checkpoint location is the very place in which the job ran before.

    The mark is written before a run takes the job over, and heartbeats may not have reported its newest
    batches yet. So an empty place does not mean that nothing ran: the checkpoint is gone, or on another
    host's disk. And a marked place may be where a driver only waited, while another ran the job elsewhere.

    Args:
        place: The location, as it is seen from here.
        board: The job's records.
        place_id: The id of the place in ``current.json``.

    Raises:
        FlinkstyleError: ``CHECKPOINT_LOST`` if it is not: queries would silently start from scratch, or
            earlier.
    """
    found = "none" if place.head(MARK_KEY) is None else None
    if found is None and place_id and place_id_of(place, board) not in (None, place_id):
        found = "that of another place"
    if found is not None:
        raise CHECKPOINT_LOST.with_text(
            f"Checkpoint location {place.uri} was expected to bear the mark of the job that ran there "
            f"({MARK_KEY}), found {found}: it was deleted, or is on the disk of another machine.",
            remedy="Bring it back; or start the job from a savepoint (start_from='savepoint'), or "
            "from scratch (start_from='fresh'), which gives up what that run has done.",
        )


def is_own(place: ObjectStore, board: JobBoard) -> bool:
    """Tell whether a place bears a mark of this job."""
    return place_id_of(place, board) is not None


def place_id_of(place: ObjectStore, board: JobBoard) -> str | None:
    """Return the id of a place that bears a mark of this job; None for any other place."""
    found = place.get(MARK_KEY)
    mark = _read(found.data) if found is not None else None
    return mark.place_id if isinstance(mark, OwnersMark) and _is_of(mark, board) else None


def _mark(board: JobBoard, generation: Generation) -> OwnersMark:
    root = board.root
    return OwnersMark(
        place_id=uuid.uuid4().hex,
        root_id=root.root_id,
        root=root.uri,
        job=board.job,
        generation=generation,
        claim_digest=board.claim_digest(generation) or "",
        marked_at_ms=now_ms(),
    )


def _require_own(place: ObjectStore, board: JobBoard, data: bytes) -> OwnersMark:
    mark = _read(data)
    if isinstance(mark, str) or not _is_of(mark, board):
        expected = f"empty, or a place of job {board.job} of root {board.root.root_id} ({board.store.uri})"
        raise PlaceOccupiedError.of(place.uri, expected, f"{_whose(data)}, with {_content(place)}")
    return mark


def _require_empty(place: ObjectStore) -> None:
    content = _content(place)
    if content != _NOTHING:
        raise PlaceOccupiedError.of(place.uri, "empty, or marked by its owner", f"no mark, and {content}")


def _is_of(mark: OwnersMark, board: JobBoard) -> bool:
    """Return whether a mark was written under a claim of this job: then no other job may use the place."""
    same = (mark.root_id, mark.job) == (board.root.root_id, board.job)
    return same and board.claim_digest(mark.generation) == mark.claim_digest


def _read(data: bytes) -> OwnersMark | str:
    """Return the mark, or what is wrong with it."""
    try:
        return OwnersMark.from_bytes(data)
    except ProtocolVersionError as error:
        return f"of a version that this package does not know ({error.problem})"
    except MessageFormatError as error:
        return f"that cannot be read ({error.problem})"


def _whose(data: bytes) -> str:
    mark = _read(data)
    if isinstance(mark, str):
        return f"a mark {mark}"
    return (
        f"that of generation {mark.generation} of job {mark.job} of root {mark.root_id} ({mark.root}), "
        f"claim {mark.claim_digest[:12]}"
    )


_NOTHING: Final = "nothing else in it"


def _content(place: ObjectStore) -> str:
    """Return the first names in a place beside the mark; folders are not listed."""
    names = list(itertools.islice(place.folders(), _SHOWN + 1))
    if not names:
        files = (info.key for info in place.list() if info.key != MARK_KEY)
        names = list(itertools.islice(files, _SHOWN + 1))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return f"{shown} in it" if names else _NOTHING
