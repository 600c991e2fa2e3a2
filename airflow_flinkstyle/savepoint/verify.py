"""Check that a savepoint is whole: its files, and that they fit together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_flinkstyle.checkpoint import commit_log, metadata, offset_log, state_store
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.storage.errors import ObjectMissingError
from airflow_flinkstyle.types import version_after

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.savepoint.manifest import FileEntry, Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository import SavepointRepository

Level = Literal["quick", "full"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What was looked at, and found good."""

    savepoint_id: str
    level: Level
    """``quick``: every file's presence and size, the logs' content; ``full``: every byte."""
    files: int
    size_bytes: int


def verify_savepoint(manifest: Manifest, repository: SavepointRepository, *, level: Level) -> Verified:
    """Check a savepoint.

    Raises:
        SavepointDamagedError: If it is not whole; each bad file is listed as missing, cut or altered.
    """
    stored = repository.blob_sizes()
    findings = list(_file_findings(manifest.blobs, stored, repository if level == "full" else None))
    if not findings:  # what reads the files would only repeat these
        for query in manifest.queries:
            findings += [f"query {query.name}: {text}" for text in _content_findings(query, repository)]
    if findings:
        raise SavepointDamagedError.of(manifest.savepoint_id, findings)
    files = sum(len(query.files) for query in manifest.queries)
    return Verified(
        savepoint_id=manifest.savepoint_id, level=level, files=files, size_bytes=manifest.total_bytes
    )


def _file_findings(
    blobs: Mapping[str, FileEntry], stored: Mapping[str, int], repository: SavepointRepository | None
) -> Iterator[str]:
    """Yield a line for each bad file; contents are read only where a repository is given."""
    for blob, entry in sorted(blobs.items(), key=lambda item: item[1].path):
        size_bytes = stored.get(blob)
        if size_bytes is None:
            yield f"{entry.path} is missing (blob {blob})"
        elif size_bytes != entry.size_bytes:
            yield f"{entry.path} has {size_bytes} bytes instead of {entry.size_bytes} (blob {blob})"
        elif repository is not None and not _content_matches(entry, repository):
            yield f"{entry.path} was altered (blob {blob})"


def _content_matches(entry: FileEntry, repository: SavepointRepository) -> bool:
    """Read a blob in pieces and compare it with its digest; one without a SHA-256 only has its size."""
    kind, _, expected = (entry.digest or "").partition(":")
    try:
        digest, size_bytes = repository.digest_of(entry.blob)
    except ObjectMissingError:
        return False
    return size_bytes == entry.size_bytes and (kind != "sha256" or digest == expected)


def _content_findings(query: QuerySnapshot, repository: SavepointRepository) -> Iterator[str]:
    """Yield what does not fit together: logs that Spark could not read, state that is not complete."""
    batch = query.batch_id
    by_path = {entry.path: entry for entry in query.files}
    needed = {"metadata", f"commits/{batch}", f"offsets/{batch}", f"offsets/{max(0, batch - 1)}"}
    missing = sorted(needed - by_path.keys())
    if missing:
        yield f"the manifest lists no {', '.join(missing)}"
        return

    def read(path: str) -> bytes:
        return repository.read_blob(by_path[path].blob)

    try:
        offsets = offset_log.parse(read(f"offsets/{batch}").decode())
        offset_log.parse(read(f"offsets/{max(0, batch - 1)}").decode())
        commit = commit_log.parse(read(f"commits/{batch}").decode())
        found_id = metadata.parse(read("metadata").decode()).query_id
        state_store.refuse_unsupported(offsets.confs, commit.state_unique_ids)
        closure = state_store.state_closure(by_path, version_after(batch), read)
        if query.pending_offsets is not None:
            offset_log.parse(query.pending_offsets)
        for source, position in query.kafka.items():
            if offsets.kafka_offsets(source) != position.offsets:
                yield f"offsets/{batch} and the manifest differ in the offsets of source {source}"
    except (FlinkstyleError, UnicodeDecodeError) as error:
        yield error.problem if isinstance(error, FlinkstyleError) else f"a log is no text: {error}"
        return
    if found_id != query.query_id:
        yield f"metadata names query {found_id}, the manifest {query.query_id}"
    if dict(offsets.confs) != dict(query.pinned_confs):
        yield f"offsets/{batch} and the manifest differ in the pinned confs"
    state = {path for path in by_path if path.startswith("state/")}
    for path in sorted(state - {file.path for file in closure}):
        yield f"{path} does not belong to batch {batch}"
