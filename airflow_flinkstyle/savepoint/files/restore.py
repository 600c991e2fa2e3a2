"""Write one query of a savepoint where Spark can start from it.

Spark must never start from a folder that is half written: without logs it would begin again from batch 0.
So the first write is an offset log of a version that no Spark knows (the seal), in the place of the newest
one; every start fails on it. The last write replaces it with the real one. The restored checkpoint shares
no file with the savepoint. It is the savepoint byte by byte, except for files in which Spark names the
checkpoint's own place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.checkpoint import metadata
from airflow_flinkstyle.checkpoint.relocation import is_relocatable, relocate
from airflow_flinkstyle.checkpoint.state_files import is_unique_sst
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.references import claim_savepoint
from airflow_flinkstyle.savepoint.errors import TARGET_OCCUPIED, SavepointDamagedError
from airflow_flinkstyle.savepoint.files.transfer import (
    DamagedFile,
    copy_file,
    each_file,
    each_window,
    ignore,
    known_sha256,
    read_stored,
)
from airflow_flinkstyle.storage.streams import sha256_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.savepoint.files.transfer import Copied
    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.progress import FileProgress
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.types import ClaimMode

_SEAL: Final = "v2147483647\n"
_SEALED_FOR: Final = "unfinished restore of savepoint"
_SEALS_WITHIN: Final = 3
"""How many of the newest offset logs may be the seal."""
_SEALED = "The target holds an unfinished restore, from which Spark refuses to start."


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What a restore did."""

    complete: bool
    """False for a pre-copy: Spark refuses to start until a restore completes it."""
    files_written: int
    files_kept: int
    """Files that were there already, equal to the savepoint's."""
    files_removed: int
    bytes_written: int


def restore_savepoint(
    manifest: Manifest,
    repository: SavepointRepository,
    open_target: Callable[[str], ObjectStore],
    *,
    claim_mode: ClaimMode = "no_claim",
    complete: bool = True,
    precopied: Manifest | None = None,
    progress: Callable[[FileProgress], None] = ignore,
) -> Mapping[str, Restored]:
    """Restore every query of a savepoint and return what was done, by query name.

    Args:
        manifest: The savepoint.
        repository: Where its files are.
        open_target: Returns the store at a query's new checkpoint location, by the query's name.
        claim_mode: ``no_claim`` leaves the savepoint to its owner; ``claim`` gives it to the restored job:
            it is disposed of once a newer complete one has taken its place. Both copy the files.
        complete: False for a pre-copy.
        precopied: The savepoint that this process has copied to the targets before; no other has written
            there since. Files that are the same in both are not read again.
        progress: Called after each file that had to be written, per query.

    Raises:
        FlinkstyleError: As ``restore_query`` raises; nothing is claimed then, and where anything was written,
            Spark starts from none of the targets.
    """
    names = [query.name for query in manifest.queries]
    targets = {name: open_target(name) for name in names}
    works = [
        _Work.of(
            manifest,
            query,
            repository,
            targets[query.name],
            precopied=precopied.query(query.name) if precopied is not None else None,
            progress=progress,
        )
        for query in manifest.queries
    ]
    with _held(repository, works, complete=complete):
        done = dict(zip(names, _restore(works, complete=complete), strict=True))
        if complete and claim_mode == "claim":
            by = f"what was restored to {', '.join(target.uri for target in targets.values())}"
            claim_savepoint(repository, manifest.savepoint_id, by=by, at_ms=now_ms())
    return done


def restore_query(
    manifest: Manifest,
    query: QuerySnapshot,
    repository: SavepointRepository,
    target: ObjectStore,
    *,
    complete: bool = True,
    precopied: QuerySnapshot | None = None,
    threads: int = 8,
    progress: Callable[[FileProgress], None] = ignore,
) -> Restored:
    """Restore one query; a repeated call writes only what is missing and removes what does not belong.

    A batch that is planned in the savepoint is planned in the checkpoint: Spark runs it again under its id,
    with the same rows, which a sink may have written already. No blob is freed meanwhile.

    Args:
        manifest: The savepoint.
        query: One of its queries.
        repository: Where its files are.
        target: The store of the new checkpoint location.
        complete: False copies everything but keeps the seal; the restore of the final savepoint then writes
            only files that differ.
        precopied: What this process has copied there before; no other has written there since.
        threads: Files written at a time.
        progress: Called after each file that had to be written.

    Raises:
        FlinkstyleError: ``TARGET_OCCUPIED`` if the target holds another query, or Spark ran there since.
        SavepointDamagedError: If a file is missing or altered; the target stays sealed.
    """
    work = _Work.of(
        manifest, query, repository, target, threads=threads, precopied=precopied, progress=progress
    )
    with _held(repository, [work], complete=complete):
        return _restore([work], complete=complete)[0]


def is_unfinished(target: ObjectStore) -> bool:
    """Return whether a place holds an unfinished restore, from which Spark refuses to start."""
    listed = {info.key for info in target.list("offsets/")}
    newest = sorted(_batches(listed, "offsets"), reverse=True)[:_SEALS_WITHIN]
    return any(target.read(f"offsets/{batch}").startswith(_SEAL.encode()) for batch in newest)


def _held(
    repository: SavepointRepository, works: Sequence[_Work], *, complete: bool
) -> AbstractContextManager[object]:
    """Let no blob be freed while any of the queries is restored."""
    to = ", ".join(work.writer.uri for work in works)
    holder = f"the restore of {works[0].writer.manifest.savepoint_id} to {to}" if works else "a restore"
    return hold_intent(repository, "restore" if complete else "precopy", holder=holder)


def _restore(works: Sequence[_Work], *, complete: bool) -> list[Restored]:
    """Look at all targets, seal all, write all, then unseal all; return what was done to each.

    A script starts its queries one after the other: a target that still lacked its seal when a restore died
    would begin anew at batch 0 beside others that go on.
    """
    by_place: dict[str, _Work] = {}
    for work in works:
        if (other := by_place.setdefault(work.writer.uri, work)) is not work:
            name = other.writer.query.name
            raise work.writer.occupied("a place of its own for each query", f"that it is query {name}'s")
        work.look(complete=complete)
    open_works = [work for work in works if not work.is_whole]
    for work in open_works:
        work.seal()
    for work in open_works:
        work.write()
    if complete:
        for work in open_works:
            work.unseal()
    return [work.restored(complete=complete) for work in works]


@dataclass(slots=True, kw_only=True)
class _Work:
    """What is to be done to one target."""

    writer: _Writer
    planned: bytes | None
    """The newest offset log, if it is that of a planned batch: it is in no list of files."""
    is_whole: bool = False
    """Spark may start from it already."""
    kept: set[str] = field(default_factory=set)
    missing: list[FileEntry] = field(default_factory=list)
    extra: set[str] = field(default_factory=set)
    bytes_written: int = 0

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        query: QuerySnapshot,
        repository: SavepointRepository,
        target: ObjectStore,
        *,
        threads: int = 8,
        precopied: QuerySnapshot | None,
        progress: Callable[[FileProgress], None],
    ) -> _Work:
        """Describe it; nothing is read from the target yet."""
        known = _copied(precopied) if precopied is not None else {}
        writer = _Writer(manifest, query, repository, target, threads, progress, known)
        return cls(writer=writer, planned=_planned_content(manifest, query))

    @property
    def newest(self) -> int:
        """The batch of the newest offset log, which is written last."""
        batch = self.writer.query.batch_id
        return batch + 1 if self.planned is not None else batch

    @property
    def last(self) -> str:
        """The path of that log."""
        return f"offsets/{self.newest}"

    def look(self, *, complete: bool) -> None:
        """Find what the target has; raises if it is not ours to write to."""
        files, target = self.writer.query.files, self.writer.target
        listed = {info.key: info.size_bytes for info in target.list()}
        _require_free(self.writer, listed, newest=self.newest)
        self.kept = self.writer.equal_files(listed)
        self.extra = listed.keys() - {entry.path for entry in files} - {self.last}
        equal = not self.extra and len(self.kept) == len(files)
        self.is_whole = complete and equal and _holds(self.writer, listed, self.last, self.planned)

    def seal(self) -> None:
        """From here on every start of Spark fails."""
        self.writer.seal(self.last)
        self.kept.discard(self.last)

    def write(self) -> None:
        """Write what is missing, and remove what does not belong there."""
        files = self.writer.query.files
        self.missing = [entry for entry in files if entry.path not in self.kept and entry.path != self.last]
        self.missing.sort(key=_write_order)
        for path in _newest_log_last(self.extra):  # an older seal may be above the new one: delete it last
            self.writer.target.delete(path)
        self.bytes_written = self.writer.write_all(self.missing)

    def unseal(self) -> None:
        """Write the newest offset log."""
        self.bytes_written += self.writer.unseal(self.last, self.planned)

    def restored(self, *, complete: bool) -> Restored:
        """Return what was done."""
        return Restored(
            complete=complete,
            files_written=0 if self.is_whole else len(self.missing) + complete,
            files_kept=len(self.kept),
            files_removed=len(self.extra),
            bytes_written=self.bytes_written,
        )


def _write_order(entry: FileEntry) -> tuple[bool, str, int]:
    """Order metadata first, so that no start gives the query another id; then as the files lie in packs."""
    return entry.path != "metadata", entry.blob, entry.offset or 0


def _copied(query: QuerySnapshot) -> dict[str, str]:
    """Return the files that a pre-copy has written, by path: their contents. Its newest log is the seal."""
    seals = {f"offsets/{query.batch_id}", f"offsets/{query.batch_id + 1}"}
    return {entry.path: entry.content for entry in query.files if entry.path not in seals}


def _planned_content(manifest: Manifest, query: QuerySnapshot) -> bytes | None:
    try:
        return query.planned_offsets.encode() if query.planned_offsets is not None else None
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can name and no file can hold
        finding = f"the planned offsets of query {query.name} are no text: {error.reason}"
        raise SavepointDamagedError.of(
            manifest.savepoint_id, [finding], state_after="Nothing was written."
        ) from error


def _holds(writer: _Writer, listed: Collection[str], path: str, planned: bytes | None) -> bool:
    """Tell whether the newest offset log is the real one; that of a planned batch is in no list of files."""
    if planned is None:
        return True
    return path in listed and writer.target.read(path) == planned


def _require_free(writer: _Writer, listed: Mapping[str, int], *, newest: int) -> None:
    """Refuse a target that is not ours to write to.

    These are ours: an empty one; a sealed one of the same query, or of the savepoint that this one was made
    from (a fork has another query id); and one of the same query that was restored and never run: its logs
    are as short as a restore writes them.
    """
    if not listed:
        return
    query = writer.query
    expected = f"empty, or restored from query {query.query_id} and not run since"
    seal = writer.seal_in(listed)
    if seal is not None:
        if seal.query_id != query.query_id and seal.savepoint_id != writer.manifest.parent:
            raise writer.occupied(expected, f"an unfinished restore of query {seal.query_id}")
        return
    if "metadata" not in listed:
        raise writer.occupied(expected, f"{len(listed)} files that are no checkpoint, like {min(listed)}")
    found = writer.target.read("metadata").decode(errors="replace")
    found_id = metadata.parse(found).query_id
    if found_id != query.query_id:
        raise writer.occupied(expected, f"a checkpoint of query {found_id}")
    offsets, commits = _batches(listed, "offsets"), _batches(listed, "commits")
    if offsets and max(offsets) > newest:
        raise writer.occupied(expected, f"its checkpoint with offsets of batch {max(offsets)}")
    done = max(commits, default=-1)
    if commits != {done} or min(offsets, default=done) < done - 1:
        raise writer.occupied(expected, f"its checkpoint with {len(commits)} committed batches up to {done}")


def _newest_log_last(paths: Collection[str]) -> list[str]:
    """Order files so that offset logs come after all others, by the numbers of their batches."""
    return sorted(sorted(paths), key=lambda path: sorted(_batches([path], "offsets")))


def _batches(paths: Collection[str], folder: str) -> set[int]:
    names = (path.removeprefix(f"{folder}/") for path in paths if path.startswith(f"{folder}/"))
    return {int(name) for name in names if name.isascii() and name.isdigit()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seal:
    """The note in the seal of an unfinished restore."""

    query_id: str
    savepoint_id: str


@dataclass(slots=True)
class _Writer:
    """Writes one query's files to the target, comparing every digest."""

    manifest: Manifest
    query: QuerySnapshot
    repository: SavepointRepository
    target: ObjectStore
    threads: int
    progress: Callable[[FileProgress], None]
    known: Mapping[str, str]
    """Files that this process has written there, by path: their contents."""

    def occupied(self, expected: str, found: str) -> FlinkstyleError:
        """Build the error that names the target."""
        return TARGET_OCCUPIED.error(uri=self.uri, expected=expected, found=found)

    @property
    def uri(self) -> str:
        """The new checkpoint location."""
        return self.target.uri.rstrip("/")

    def equal_files(self, listed: Mapping[str, int]) -> set[str]:
        """Return the paths that need not be written again."""
        candidates = [
            entry
            for entry in self.query.files
            if listed.get(entry.path) == entry.size_bytes
            or (is_relocatable(entry.path) and entry.path in listed)
        ]
        equal = each_file(self._is_equal, candidates, threads=self.threads)
        return {entry.path for entry in compress(candidates, equal)}

    def _is_equal(self, entry: FileEntry) -> bool:
        """Compare by content, except SSTs, whose names are unique, and files that this process wrote."""
        if is_unique_sst(entry.path) or self.known.get(entry.path) == entry.content:
            return True
        if is_relocatable(entry.path):
            return self.target.read(entry.path) == self._contents([entry])[0]
        return sha256_of(self.target, entry.path)[0] == known_sha256(entry)

    def seal(self, path: str) -> None:
        """Write the seal: from here on every start of Spark fails."""
        note = {
            _SEALED_FOR: self.manifest.savepoint_id,
            "query id": self.query.query_id,
            "remedy": "restore again; do not edit",
        }
        self.target.write(path, f"{_SEAL}{json.dumps(note)}".encode())

    def seal_in(self, listed: Collection[str]) -> _Seal | None:
        """Return the note of an unfinished restore; None if there is no seal."""
        for batch in sorted(_batches(listed, "offsets"), reverse=True)[:_SEALS_WITHIN]:
            content = self.target.read(f"offsets/{batch}").decode(errors="replace")
            if content.startswith(_SEAL):
                return _seal_of(content.removeprefix(_SEAL))
        return None

    def unseal(self, path: str, planned: bytes | None) -> int:
        """Write the newest offset log, last; returns its size in bytes."""
        if planned is not None:
            self.target.write(path, planned)
            return len(planned)
        return self.write_all([entry for entry in self.query.files if entry.path == path])

    def write_all(self, entries: list[FileEntry]) -> int:
        """Write files, several at a time; returns their size in bytes."""
        outcomes = each_window(self._write, entries, threads=self.threads, progress=self.progress)
        findings = [outcome.finding for outcome in outcomes if isinstance(outcome, DamagedFile)]
        if findings:
            raise SavepointDamagedError.of(self.manifest.savepoint_id, findings, state_after=_SEALED)
        return sum(entry.size_bytes for entry in entries)

    def _write(self, entries: Sequence[FileEntry]) -> Sequence[Copied | DamagedFile | None]:
        """Write one file, of any size, or several out of packs."""
        if len(entries) == 1 and entries[0].offset is None and not is_relocatable(entries[0].path):
            place = self.repository.place(entries[0].blob)
            return [copy_file(entries[0], place, (self.target, entries[0].path))]
        contents = self._contents(entries)
        both = zip(entries, contents, strict=True)
        self.target.write_many([(one.path, content) for one, content in both if isinstance(content, bytes)])
        return [content if isinstance(content, DamagedFile) else None for content in contents]

    def _contents(self, entries: Sequence[FileEntry]) -> list[bytes | DamagedFile]:
        """Return contents of small files as the target must have them: some name the checkpoint's place."""
        return [
            relocate(entry.path, content, self.uri)
            if isinstance(content, bytes) and is_relocatable(entry.path)
            else content
            for entry, content in zip(entries, read_stored(self.repository, entries), strict=True)
        ]


def _seal_of(note: str) -> _Seal:
    try:
        fields = json.loads(note)
        return _Seal(query_id=str(fields["query id"]), savepoint_id=str(fields.get(_SEALED_FOR, "")))
    except (ValueError, KeyError, TypeError, RecursionError):
        return _Seal(query_id=f"unknown to its note {note[:80]!r}", savepoint_id="")
