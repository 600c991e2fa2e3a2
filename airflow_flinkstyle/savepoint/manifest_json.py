"""A manifest as text. Rendering is deterministic; parsing trusts nothing. Pure.

The files of a query are written as a column for each field, so that many of them stay small: half of what
describes a file is its SHA-256, and most blobs have it as their key: in rows of JSON it would be written
twice, in hex. A column is checked at once, for a tenth of what a check of each value costs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.savepoint.manifest import Digest, FileEntry, Manifest
from airflow_flinkstyle.storage.keys import Key, first_no_key
from airflow_flinkstyle.typed_json import MismatchError, decode, encode, stored
from airflow_flinkstyle.types import Count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_flinkstyle.savepoint.manifest import QuerySnapshot

_SHA256 = "sha256:"
_DIGITS = 64
_HEX = re.compile("(?:[0-9a-f]{64})*")


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """``files`` of a query: entry N of a column belongs to file N, counted from 0."""

    path: Any
    """Names. One that ends in ``/`` is no file but the folder of the next ones; ``/`` is the topmost."""
    size_bytes: Any
    """Size of each file."""
    sha256: str
    """Base64 of 32 bytes for each file that ``digest`` does not name, in order."""
    digest: Mapping[int, Digest | None]
    """Of each file whose digest is no SHA-256, by its number."""
    blob: Mapping[int, Key]
    """Of each file whose blob has another key than the file's SHA-256 in hex, by its number."""
    packs: tuple[tuple[Key, Count], ...]
    """Key and size in bytes of each pack."""
    packed: Any
    """Four numbers for each run of files that lie one behind the other in a pack: the first file, how many
    files, the pack's place in ``packs``, and the byte of it at which the first one begins."""


NO_PACKS: Final[dict[str, Any]] = {"packs": [], "packed": []}
"""The columns about packs that a manifest of format 1 lacks: it has no packs."""


class _PackedRun(NamedTuple):
    """Files that lie one behind the other in a pack."""

    first: int
    end: int
    """The number behind that of the last one."""
    pack: Key
    pack_bytes: Count
    offset: int
    """Of the first one's first byte."""


@dataclass(frozen=True, slots=True)
class _Checked:
    """Columns that were checked, with values computed from them."""

    columns: FileColumns
    paths: list[str]
    digits: str
    """The SHA-256s in hex, one behind the other."""
    runs: list[_PackedRun]
    """In the order of their files."""


def to_columns(files: Sequence[FileEntry]) -> dict[str, Any]:
    """Return the JSON of a query's files; nothing of it is checked."""
    digests = [entry.digest or "" for entry in files]
    own = [digest.removeprefix(_SHA256) if digest.startswith(_SHA256) else "" for digest in digests]
    if not _HEX.fullmatch("".join(own)):  # not each is a SHA-256: ``digest`` keeps the others
        own = [digits if digits and _HEX.fullmatch(digits) else "" for digits in own]
    return {
        "path": _by_folder(files),
        "size_bytes": [entry.size_bytes for entry in files],
        "sha256": base64.b64encode(bytes.fromhex("".join(own))).decode(),
        "digest": {str(number): files[number].digest for number, digits in enumerate(own) if not digits},
        "blob": {
            str(number): entry.blob
            for number, (entry, digits) in enumerate(zip(files, own, strict=True))
            if entry.offset is None and entry.blob != digits
        },
        **_packs_of(files),
    }


def _packs_of(files: Sequence[FileEntry]) -> dict[str, Any]:
    """Return the columns about packs, which are numbered in the order in which files name them."""
    numbers: dict[tuple[str, int | None], int] = {}
    packed: list[int] = []
    expected = None  # the file that would continue the last run
    for number, entry in enumerate(files):
        if entry.offset is None:
            continue
        pack = numbers.setdefault((entry.blob, entry.pack_bytes), len(numbers))
        if expected == (number, pack, entry.offset):
            packed[-3] += 1
        else:
            packed += (number, 1, pack, entry.offset)
        expected = (number + 1, pack, entry.offset + entry.size_bytes)
    return {"packs": [list(pack) for pack in numbers], "packed": packed}


_NO_RUN = _PackedRun(sys.maxsize, sys.maxsize, "", 0, 0)


def from_columns(columns: object) -> tuple[FileEntry, ...]:
    """Return the files that parsed columns describe.

    Raises:
        MismatchError: As ``_checked`` does.
    """
    found = _checked(columns)
    read, digits = found.columns, found.digits
    own = iter([digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS)])
    files = []
    runs = iter(found.runs)
    run = next(runs, _NO_RUN)
    at = run.offset
    for number, (path, size_bytes) in enumerate(zip(found.paths, read.size_bytes, strict=True)):
        offset = pack_bytes = None
        if number in read.digest:
            blob, digest = read.blob[number], read.digest[number]
        else:
            sha256 = next(own)
            blob, digest = read.blob.get(number, sha256), _SHA256 + sha256
        if number >= run.first:
            blob, pack_bytes, offset = run.pack, run.pack_bytes, at
            at += size_bytes
            if number + 1 == run.end:
                run = next(runs, _NO_RUN)
                at = run.offset
        files.append(
            FileEntry(
                path=path,
                size_bytes=size_bytes,
                blob=blob,
                digest=digest,
                offset=offset,
                pack_bytes=pack_bytes,
            )
        )
    return tuple(files)


def require_readable(columns: object) -> None:
    """Require parsed columns of which ``from_columns`` can make files.

    Raises:
        MismatchError: If a value is none of its column, or the columns are not of the same files.
    """
    _checked(columns)


def _checked(columns: object) -> _Checked:
    """Return parsed columns with the values that are computed from them.

    Raises:
        MismatchError: If a value is none of its column, or the columns are not of the same files.
    """
    read = decode(FileColumns, columns)
    _require_all("path", read.path, str)
    _require_all("size_bytes", read.size_bytes, int)
    paths = _paths(read.path)
    if (bad := first_no_key(paths)) is not None:
        raise MismatchError("path", "a relative path without '..'", bad)
    require_once("path", paths)
    count = len(paths)
    if len(read.size_bytes) != count:
        raise MismatchError("size_bytes", f"a number for each of {count} files", len(read.size_bytes))
    if (least := min(read.size_bytes, default=0)) < 0:
        raise MismatchError("size_bytes", "a number, 0 or more", least)
    for name, exceptions in (("digest", read.digest), ("blob", read.blob)):
        if (most := max(exceptions, default=-1)) >= count:
            raise MismatchError(name, f"numbers of {count} files, from 0", most)
    if unnamed := read.digest.keys() - read.blob.keys():
        raise MismatchError("blob", "the key of each file without a SHA-256", f"none for {min(unnamed)}")
    digits = _digits(read.sha256, count - len(read.digest))
    return _Checked(read, paths, digits, _runs(read))


def _runs(read: FileColumns) -> list[_PackedRun]:
    """Return the runs of files in packs; raises ``MismatchError`` unless each is one place inside one."""
    _require_all("packed", read.packed, int)
    require_once("packs", [key for key, _ in read.packs])
    before = list(accumulate(read.size_bytes, initial=0))
    count, end = len(read.size_bytes), 0
    runs = []
    for first, files, pack, offset in _in_fours(read.packed):
        if first < end or files < 1 or first + files > count:
            expected = f"runs of {count} files, each behind the one before"
            raise MismatchError("packed", expected, [first, files, pack, offset])
        if not (0 <= pack < len(read.packs) and offset >= 0):
            expected = f"a place in one of {len(read.packs)} packs"
            raise MismatchError("packed", expected, [first, files, pack, offset])
        end, (key, pack_bytes) = first + files, read.packs[pack]
        if offset + before[end] - before[first] > pack_bytes:
            raise MismatchError("packed", f"files inside the {pack_bytes} bytes of {key}", offset)
        runs.append(_PackedRun(first, end, key, pack_bytes, offset))
    starts = [run.first for run in runs]
    for number in read.digest.keys() | read.blob.keys():
        run = bisect_right(starts, number) - 1
        if run >= 0 and number < runs[run].end:
            raise MismatchError("packed", "files with a SHA-256 and no blob of their own", number)
    return runs


def _in_fours(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    if len(numbers) % 4:
        raise MismatchError("packed", "four numbers for each run", len(numbers))
    return (numbers[start : start + 4] for start in range(0, len(numbers), 4))


def require_once(where: str, names: Sequence[str]) -> None:
    """Require that no name occurs twice; raises ``MismatchError``."""
    if len(set(names)) < len(names):
        twice = min(name for name, times in Counter(names).items() if times > 1)
        raise MismatchError(where, "each name once", twice)


def _by_folder(files: Sequence[FileEntry]) -> list[str]:
    """Return each file's name, and its folder before it where it is not that of the file before."""
    found, current = [], ""
    for entry in files:
        folder, slash, name = entry.path.rpartition("/")
        if slash and not folder:  # an absolute path, which is no key: it must not be read as a relative one
            name = entry.path
        if folder != current:
            found.append(f"{folder}/")
            current = folder
        found.append(name)
    return found


def _paths(names: Sequence[str]) -> list[str]:
    found, folder = [], ""
    for name in names:
        if name.endswith("/"):
            folder = name if name != "/" else ""
        else:
            found.append(folder + name)
    return found


def _digits(sha256: str, count: int) -> str:
    try:
        digits = base64.b64decode(sha256, validate=True).hex()
    except ValueError as error:
        raise MismatchError("sha256", "base64", sha256) from error
    if len(digits) != count * _DIGITS:
        raise MismatchError("sha256", f"base64 of 32 bytes for each of {count} files", sha256)
    return digits


def _require_all(name: str, column: object, kind: type) -> None:
    if type(column) is not list:
        raise MismatchError(name, "a list", column)
    if odd := {*map(type, column)} - {kind}:
        expected = "texts" if kind is str else "whole numbers"
        raise MismatchError(name, expected, next(value for value in column if type(value) in odd))


_NO_CHECKSUM = "0" * 64
_CHECKSUM = re.compile('"checksum": ?"([0-9a-f]{64})"')


def to_json(manifest: Manifest) -> str:
    """Render the manifest; equal manifests give equal text.

    A manifest that could not be read back is refused. Of its files only the columns are checked: to parse
    their text again would take longer than everything else.

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
