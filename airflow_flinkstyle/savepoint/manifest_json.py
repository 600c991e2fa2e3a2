"""A manifest as text. Rendering is deterministic; parsing trusts nothing. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.savepoint.file_columns import (
    NO_PACKS,
    from_columns,
    require_once,
    require_readable,
    to_columns,
)
from airflow_flinkstyle.savepoint.manifest import Manifest
from airflow_flinkstyle.typed_json import MismatchError, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import FileEntry, QuerySnapshot

_NO_CHECKSUM = "0" * 64
_CHECKSUM = re.compile('"checksum": ?"([0-9a-f]{64})"')


def to_json(manifest: Manifest) -> str:
    """Render the manifest; equal manifests give equal text.

    What could not be read back is refused. Of the files only the columns are checked for that: to parse their
    text again would take longer than all the rest.

    Raises:
        ManifestFormatError: If a value could not be read back, such as a path with a line feed.
    """
    fields = encode(replace(manifest, queries=tuple(replace(query, files=()) for query in manifest.queries)))
    columns = [to_columns(query.files) for query in manifest.queries]
    _decoded(_with_columns(json.loads(json.dumps(fields)), columns), _only_checked)
    fields |= {"format_version": Manifest.format_version, "checksum": _NO_CHECKSUM}
    return with_checksum(json.dumps(_with_columns(fields, columns), sort_keys=True) + "\n")


def _with_columns(fields: dict[str, Any], columns: list[dict[str, Any]]) -> dict[str, Any]:
    for query, files in zip(fields["queries"], columns, strict=True):
        query["files"] = files
    return fields


def _only_checked(columns: object) -> tuple[()]:
    require_readable(columns)
    return ()


def _without_packs(columns: object) -> tuple[FileEntry, ...]:
    """Return the files of a manifest of format 1."""
    if isinstance(columns, dict):
        if known := columns.keys() & NO_PACKS:
            raise MismatchError("", "fields of format 1", min(known))
        columns = {**columns, **NO_PACKS}
    return from_columns(columns)


def with_checksum(text: str) -> str:
    """Return a manifest's text with the checksum that belongs to it; it has one already, right or wrong."""
    found = _CHECKSUM.search(text)
    if found is None:
        raise ManifestFormatError.of("the whole", "a field 'checksum'", text[:80])
    return text.replace(found[1], _checksum(text, found[1]), 1)


def _checksum(text: str, found: str) -> str:
    """Return the SHA-256 of the text with zeros in place of the checksum that was found in it."""
    return hashlib.sha256(text.replace(found, _NO_CHECKSUM, 1).encode("utf-8", "surrogatepass")).hexdigest()


def from_json(text: str) -> Manifest:
    """Parse a manifest.

    Raises:
        ManifestFormatError: If it is malformed, of another format, has fields this package does not know,
            names that are none, or paths that would leave the checkpoint (``..``, absolute, backslash,
            empty), or if a byte of it was changed.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ManifestFormatError.of("the whole", "a JSON object", text[:80]) from error
    if not isinstance(document, dict):
        raise ManifestFormatError.of("the whole", "a JSON object", document)
    version = document.pop("format_version", None)
    if type(version) is not int or version not in _READERS:
        expected = f"one of {', '.join(map(str, _READERS))}"
        raise ManifestFormatError.of("format_version", expected, version)
    checksum = document.pop("checksum", None)
    manifest = _decoded(document, _READERS[version])
    if checksum != (expected := _checksum(text, str(checksum))):
        raise ManifestFormatError.of("checksum", expected, checksum)
    return manifest


_READERS: Final = {1: _without_packs, Manifest.format_version: from_columns}
"""Reads the columns of files, by the format of the manifest; all else is the same in both."""


def _decoded(document: dict[str, Any], read_files: Callable[[object], tuple[FileEntry, ...]]) -> Manifest:
    """Return the manifest of a parsed document, whose files are columns."""
    columns = []
    for fields in _queries_of(document):
        if "files" in fields:
            columns.append(fields["files"])
            fields["files"] = []
    try:
        manifest = decode(Manifest, document)
        both = zip(manifest.queries, columns, strict=True)
        manifest = replace(manifest, queries=tuple(_filled(*one, read_files) for one in both))
        require_once("queries", [query.name for query in manifest.queries])
    except MismatchError as error:
        raise ManifestFormatError.of(error.where or "the whole", error.expected, error.found) from error
    return manifest


def _filled(
    query: QuerySnapshot, columns: object, read_files: Callable[[object], tuple[FileEntry, ...]]
) -> QuerySnapshot:
    try:
        return replace(query, files=read_files(columns))
    except MismatchError as error:
        raise error.below(f"files of query {query.name}") from None


def _queries_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    queries = document.get("queries")
    return [one for one in queries if isinstance(one, dict)] if isinstance(queries, list) else []
