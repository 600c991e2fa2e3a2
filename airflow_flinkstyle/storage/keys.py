"""Keys and locations of stores. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote, unquote

from airflow_flinkstyle.storage.errors import BadKeyError
from airflow_flinkstyle.typed_json import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_KEY_BYTES = 900
"""S3 allows 1,024 bytes, the store's own prefix included."""

MAX_NAME_CHARACTERS = 128
"""Of a job, a query, a savepoint, a cut, a request; the format's own number."""
_MOST_BYTES = 4
"""Of a character in UTF-8."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_CHARACTERS - 1}}}")
_SEGMENT = r"(?!\.{1,2}(?:/|$))[^/\\\x00-\x1f\x7f\ud800-\udfff]+"
_KEY = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})*")


def is_name(value: object) -> bool:
    """Tell whether a value is a text that can be part of a key, or of a path, as the name of something.

    The one rule for every name that comes from outside: of jobs, queries, savepoints, cuts and requests.
    """
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def is_key(value: str) -> bool:
    """Tell whether a text is safe as a key in every backend, and as a path below a folder."""
    return _KEY.fullmatch(value) is not None and len(value.encode()) <= MAX_KEY_BYTES


def first_no_key(values: Sequence[str]) -> str | None:
    """Return the first text that is no key; None if each is one, for a fifth of what asking each costs."""
    if all(map(_KEY.fullmatch, values)) and max(map(len, values), default=0) * _MOST_BYTES <= MAX_KEY_BYTES:
        return None
    return next((value for value in values if not is_key(value)), None)


Name = Annotated[str, Check("a name of letters, digits, '.', '_' and '-'", is_name)]
"""In a stored record: what becomes a part of a key."""
Key = Annotated[str, Check("a relative path without '..'", is_key)]
"""In a stored record: what becomes a key, or a path below a folder."""


def below(location: str, name: str) -> str:
    """Return the location of what has this name directly below another.

    Raises:
        BadKeyError: If it is no name.
    """
    if not is_name(name):
        raise BadKeyError.of(name, f"it is no name of something below {location}")
    return f"{location.rstrip('/')}/{name}"


_PLAIN: Final = "".join(map(chr, range(32, 127))).translate({ord(char): None for char in "%#?"})
"""What stands in a ``file://`` location as it is. The rest would end a path, or be read as something else."""
_FILE: Final = "file://"


def file_uri(path: str) -> str:
    """Return the ``file://`` location of an absolute path; ``file_path`` is its inverse."""
    return _FILE + "".join(char if char in _PLAIN or char > "\x7f" else quote(char) for char in path)


def file_path(location: str) -> str | None:
    """Return the absolute path that ``file:///path``, or a path itself, leads to; None for any other."""
    if location.startswith("/"):
        return location
    path = location.removeprefix(_FILE).removeprefix("localhost").removeprefix("file:")
    return unquote(path) if location.startswith("file:") and path.startswith("/") else None


def hadoop_location(uri: str) -> str:
    """Return a store's ``uri`` as Spark takes it: quoted nowhere, S3 under Hadoop's scheme."""
    path = file_path(uri)
    if path is not None:
        return path if uri == path else _FILE + path
    return "s3a://" + uri.removeprefix("s3://") if uri.startswith("s3://") else uri


def checked_key(key: str) -> str:
    """Return ``key`` if it is safe in every backend.

    Raises:
        BadKeyError: If it is empty, absolute, too long, or has ``.``, ``..``, empty or odd segments.
    """
    if is_key(key):
        return key
    if not key:
        raise BadKeyError.of(key, "it is empty")
    if key.startswith("/"):
        raise BadKeyError.of(key, "it is absolute")
    if "\\" in key or any(ord(char) < 32 or ord(char) == 127 for char in key):
        raise BadKeyError.of(key, "it holds a backslash or a control character")
    if any("\ud800" <= char <= "\udfff" for char in key):
        raise BadKeyError.of(key, "it holds half of a surrogate pair")
    if len(key.encode()) > MAX_KEY_BYTES:
        raise BadKeyError.of(key, f"it is longer than {MAX_KEY_BYTES} bytes")
    for segment in key.split("/"):
        if segment in {"", ".", ".."}:
            raise BadKeyError.of(key, f"it has the segment {segment!r}")
    return key


def checked_prefix(prefix: str) -> str:
    """Return ``prefix`` if it is empty, a key, or a key with a trailing slash."""
    if prefix:
        checked_key(prefix.removesuffix("/"))
    return prefix
