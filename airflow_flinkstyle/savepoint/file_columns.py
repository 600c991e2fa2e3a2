"""The files of a query in a manifest's text: a column for each field, so that many files stay small. Pure.

Half of what describes a file is its SHA-256, and most blobs have it as their key: as rows of JSON it would
stand there twice, in digits. A column is checked at once, for a tenth of what a check of each value costs.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.savepoint.manifest import Digest, FileEntry
from airflow_flinkstyle.storage.keys import Key, first_no_key
from airflow_flinkstyle.typed_json import MismatchError, decode, stored

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHA256 = "sha256:"
_DIGITS = 64
_HEX = re.compile("(?:[0-9a-f]{64})*")


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumns:
    """``files`` of a query: what is at place N of a column belongs to file N, counted from 0."""

    path: Any
    """Names. One that ends in ``/`` is no file but the folder of those behind it; ``/`` is the topmost."""
    size_bytes: Any
    """Of each file."""
    sha256: str
    """Base64 of 32 bytes for each file that ``digest`` does not name, in order."""
    digest: Mapping[int, Digest | None]
    """Of each file whose digest is no SHA-256, by its number."""
    blob: Mapping[int, Key]
    """Of each file whose blob has another key than the file's SHA-256 in hex, by its number."""


def to_columns(files: Sequence[FileEntry]) -> dict[str, Any]:
    """Return the JSON of a query's files; nothing of it is checked."""
    digests = [entry.digest or "" for entry in files]
    own = [digest.removeprefix(_SHA256) if digest.startswith(_SHA256) else "" for digest in digests]
    if not _HEX.fullmatch("".join(own)):  # one is none, and is kept apart as what it is
        own = [digits if digits and _HEX.fullmatch(digits) else "" for digits in own]
    return {
        "path": _by_folder(files),
        "size_bytes": [entry.size_bytes for entry in files],
        "sha256": base64.b64encode(bytes.fromhex("".join(own))).decode(),
        "digest": {str(number): files[number].digest for number, digits in enumerate(own) if not digits},
        "blob": {
            str(number): entry.blob
            for number, (entry, digits) in enumerate(zip(files, own, strict=True))
            if entry.blob != digits
        },
    }


def from_columns(columns: object) -> tuple[FileEntry, ...]:
    """Return the files that parsed columns stand for.

    Raises:
        MismatchError: As ``checked`` does.
    """
    read, paths, digits = checked(columns)
    own = iter([digits[start : start + _DIGITS] for start in range(0, len(digits), _DIGITS)])
    files = []
    for number, (path, size_bytes) in enumerate(zip(paths, read.size_bytes, strict=True)):
        if number in read.digest:
            blob, digest = read.blob[number], read.digest[number]
        else:
            sha256 = next(own)
            blob, digest = read.blob.get(number, sha256), _SHA256 + sha256
        files.append(FileEntry(path=path, size_bytes=size_bytes, blob=blob, digest=digest))
    return tuple(files)


def checked(columns: object) -> tuple[FileColumns, list[str], str]:
    """Return parsed columns of which ``from_columns`` can make files, the paths, and the SHA-256s in hex.

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
    return read, paths, _digits(read.sha256, count - len(read.digest))


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
