"""Check that a savepoint is whole: its files, and that they fit together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.checkpoint import commit_log, metadata, offset_log, state_store
from airflow_flinkstyle.checkpoint.relocation import is_relocatable, relocate
from airflow_flinkstyle.checkpoint.stores_in_use import shuffle_partitions
from airflow_flinkstyle.checkpoint.table_position import source_position
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.savepoint.files.transfer import (
    DamagedFile,
    altered,
    each_window,
    ignore,
    other_size,
    read_stored,
)
from airflow_flinkstyle.storage.errors import ObjectMissingError, StoreDeniedError, StoreUnavailableError
from airflow_flinkstyle.types import version_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest, QuerySnapshot, StoredAt
    from airflow_flinkstyle.savepoint.progress import FileProgress
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

Level = Literal["quick", "full"]
LEVELS: tuple[Level, ...] = ("quick", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A check that a savepoint passed."""

    savepoint_id: str
    level: Level
    """``quick``: every file's presence and size, the logs' content; ``full``: every byte."""
    files: int
    size_bytes: int


def verify_savepoint(
    manifest: Manifest,
    repository: SavepointRepository,
    *,
    level: Level,
    progress: Callable[[FileProgress], None] = ignore,
) -> Verified:
    """Check a savepoint.

    Args:
        manifest: The savepoint.
        repository: Where its files are.
        level: How much to read.
        progress: Called after each file of a full check.

    Raises:
        SavepointDamagedError: If it is not whole; each bad file is listed as missing, cut or altered.
    """
    findings = list(_listed_findings(manifest, repository.blob_sizes()))
    altered: dict[StoredAt, str] = {}
    if level == "full" and not findings:
        contents = sorted(manifest.contents.values(), key=lambda entry: entry.path)
        read = each_window(partial(_altered, repository), contents, progress=progress)
        both = zip(contents, read, strict=True)
        altered = {entry.place: found for entry, found in both if found is not None}
        findings = list(altered.values())
    if not findings:  # else reading the logs would only repeat these
        for query in manifest.queries:
            findings += [f"query {query.name}: {text}" for text in _content_findings(query, repository)]
    if findings:
        raise SavepointDamagedError.of(manifest.savepoint_id, findings, altered=tuple(altered))
    files = sum(len(query.files) for query in manifest.queries)
    return Verified(
        savepoint_id=manifest.savepoint_id, level=level, files=files, size_bytes=manifest.total_bytes
    )


def _listed_findings(manifest: Manifest, stored: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each file whose blob is missing or of another size; one for all files of a pack."""
    packs: dict[str, list[FileEntry]] = {}
    for entry in sorted((e for query in manifest.queries for e in query.files), key=lambda e: e.path):
        size_bytes = stored.get(entry.blob)
        if size_bytes == entry.stored_bytes:
            continue
        if entry.offset is not None:
            packs.setdefault(entry.blob, []).append(entry)
        elif size_bytes is None:
            yield f"{entry.path} is missing (blob {entry.blob})"
        else:
            yield other_size(entry, f"{size_bytes}").finding
    for blob, entries in packs.items():
        yield _pack_finding(entries, stored.get(blob))


def _pack_finding(entries: Sequence[FileEntry], size_bytes: int | None) -> str:
    first = entries[0]
    what = first.path if len(entries) == 1 else f"{first.path}, with {len(entries) - 1} other files,"
    if size_bytes is None:
        return f"{what} is missing (blob {first.blob})"
    return f"{what} is in a pack of {size_bytes} bytes instead of {first.pack_bytes} (blob {first.blob})"


def _altered(repository: SavepointRepository, entries: Sequence[FileEntry]) -> list[str | None]:
    """Read files and compare each with its digest; return what is wrong with each."""
    if entries[0].offset is None:
        return [_altered_blob(repository, entry) for entry in entries]
    read = read_stored(repository, entries)
    return [content.finding if isinstance(content, DamagedFile) else None for content in read]


def _altered_blob(repository: SavepointRepository, entry: FileEntry) -> str | None:
    """Read a blob in pieces and compare it with its digest; without one, only by size."""
    try:
        return None if repository.digest_matches(entry) else altered(entry).finding
    except ObjectMissingError:
        return f"{entry.path} is missing (blob {entry.blob})"


def _content_findings(query: QuerySnapshot, repository: SavepointRepository) -> Iterator[str]:
    """Yield contradictions: logs that Spark could not read, state that is not complete."""
    batch = query.batch_id
    by_path = {entry.path: entry for entry in query.files}
    needed = {"metadata", f"commits/{batch}", f"offsets/{batch}", f"offsets/{max(0, batch - 1)}"}
    missing = sorted(needed - by_path.keys())
    if missing:
        yield f"the manifest lists no {', '.join(missing)}"
        return
    try:
        yield from _contradictions(query, lambda path: repository.read_file(by_path[path]))
    except (StoreUnavailableError, StoreDeniedError):
        raise  # shows nothing about the savepoint
    except FlinkstyleError as error:
        yield error.problem
    except UnicodeDecodeError as error:
        yield f"a log is no text: {error}"


def _contradictions(query: QuerySnapshot, read: Callable[[str], bytes]) -> Iterator[str]:
    """Parse the logs, follow the state's files, and compare both with the manifest."""
    batch = query.batch_id
    offsets = offset_log.parse(read(f"offsets/{batch}").decode())
    offset_log.parse(read(f"offsets/{max(0, batch - 1)}").decode())
    commit = commit_log.parse(read(f"commits/{batch}").decode())
    state_store.refuse_unsupported(offsets.confs)
    if query.planned_offsets is not None:
        offset_log.parse(query.planned_offsets)
    found_id = metadata.parse(read("metadata").decode()).query_id
    if found_id != query.query_id:
        yield f"metadata names query {found_id}, the manifest {query.query_id}"
    for source, position in query.kafka.items():
        if offsets.kafka_offsets(source) != position.offsets:
            yield f"offsets/{batch} and the manifest differ in the offsets of source {source}"
    for source, table in query.tables.items():
        if source_position(offsets.sources.get(source, "")) != table:
            yield f"offsets/{batch} and the manifest differ in the table version of source {source}"
    if dict(offsets.confs) != dict(query.pinned_confs):
        yield f"offsets/{batch} and the manifest differ in the pinned confs"
    paths = {entry.path for entry in query.files}
    for path in filter(is_relocatable, paths):
        relocate(path, read(path), "file:///elsewhere")  # raises where a restore would
    closure = state_store.state_closure(
        paths,
        version_after(batch),
        commit.state_unique_ids,
        read,
        partitions=shuffle_partitions(offsets.confs),
    )
    state = {path for path in paths if path.startswith("state/")}
    for path in sorted(state - {file.path for file in closure}):
        yield f"{path} does not belong to batch {batch}"
