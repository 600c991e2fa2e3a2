"""``<job>/savepoints/<id>.json``: a savepoint's manifest, or the tombstone of an id."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.storage.keys import is_name

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.stored import JobFolder

_TOMBSTONE = b'{"tombstone": '
"""How the tombstone of an id begins; it is where its manifest would be."""
_LARGE_BYTES = 64 << 10
"""Manifests above it are stored compressed; a person can read the others as they are."""
_MOST_BYTES = 1 << 28
"""Of text, about a million files: a larger one was not written by a take."""
_GZIP, _GZIP_LEVEL, _GZIP_WINDOW = b"\x1f\x8b", 2, 31


def manifest_key(job: str, savepoint_id: str) -> str:
    """Return where the manifest of a savepoint is."""
    return f"{job}/savepoints/{savepoint_id}.json"


def find_manifest(repository: JobFolder, savepoint_id: str) -> tuple[Manifest, str] | None:
    """Return a savepoint and its manifest's version, or None if there is none of that id.

    Raises:
        ManifestFormatError: As ``parse_manifest`` does.
    """
    if not is_name(savepoint_id):
        return None
    found = repository.store.get(manifest_key(repository.job, savepoint_id))
    manifest = parse_manifest(repository, savepoint_id, found.data) if found is not None else None
    return (manifest, found.version) if found is not None and manifest is not None else None


def parse_manifest(repository: JobFolder, savepoint_id: str, data: bytes) -> Manifest | None:
    """Return the manifest in the store under an id, or None where a tombstone is.

    Raises:
        ManifestFormatError: If it is malformed, or belongs to another job or id; the object is named.
    """
    if is_tombstone(data):
        return None
    try:
        manifest = manifest_json.from_json(_text_of(data).decode("utf-8", "replace"))
        require_own(manifest, repository.job, savepoint_id)
    except ManifestFormatError as error:
        raise error.at(f"{repository.store.uri}/{manifest_key(repository.job, savepoint_id)}") from error
    return manifest


def manifest_bytes(repository: JobFolder, manifest: Manifest) -> bytes:
    """Return a manifest as it is stored; equal manifests give equal bytes.

    Raises:
        ManifestFormatError: If it could not be read back; the object that was to be is named.
    """
    try:
        text = manifest_json.to_json(manifest).encode()
    except ManifestFormatError as error:
        place = f"{repository.store.uri}/{manifest_key(repository.job, manifest.savepoint_id)}"
        raise error.at(place) from error
    return text if len(text) <= _LARGE_BYTES else gzip.compress(text, _GZIP_LEVEL, mtime=0)


def _text_of(data: bytes) -> bytes:
    if not data.startswith(_GZIP):
        return data
    unpacked = zlib.decompressobj(_GZIP_WINDOW)
    try:
        text = unpacked.decompress(data, _MOST_BYTES)
    except zlib.error as error:
        raise ManifestFormatError.of("the whole", "JSON, plain or as gzip", data[:40].hex()) from error
    if not unpacked.eof or unpacked.unused_data:
        found = f"{len(text):,} bytes of text in {len(data):,}, cut off or with more behind"
        raise ManifestFormatError.of("the whole", f"one gzip of at most {_MOST_BYTES:,} bytes", found)
    return text


def require_own(manifest: Manifest, job: str, savepoint_id: str) -> None:
    """Refuse a manifest whose job or id differs from its key."""
    found = (manifest.job, manifest.savepoint_id)
    if found != (job, savepoint_id):
        raise ManifestFormatError.of("job and savepoint_id", f"{(job, savepoint_id)}", found)


def tombstone_of(why: str) -> bytes:
    """Return the object of an id that no savepoint may get any more."""
    return json.dumps({"tombstone": why}).encode()


def is_tombstone(data: bytes) -> bool:
    """Tell whether an id is tombstoned, by the object under it."""
    return data.startswith(_TOMBSTONE)


def reason_of(data: bytes, key: str) -> str:
    """Return the reason in a tombstone."""
    try:
        return str(json.loads(data)["tombstone"])
    except (ValueError, RecursionError):  # the beginning alone makes it a tombstone
        return f"the tombstone {key} was altered and does not give the reason any more"
