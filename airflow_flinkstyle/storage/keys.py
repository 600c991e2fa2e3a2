"""Keys and locations of stores. Pure."""

from __future__ import annotations

import re

from airflow_flinkstyle.storage.errors import BadKeyError

MAX_KEY_BYTES = 900
"""S3 allows 1,024 bytes, the store's own prefix included."""

MAX_NAME_CHARACTERS = 128
"""Of a job, a query, a savepoint, a cut, a request; the format's own number."""
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_CHARACTERS - 1}}}")


def is_name(value: object) -> bool:
    """Tell whether a value is a text that can stand in a key, or in a path, as the name of something.

    The one rule for every name that comes from outside: of jobs, queries, savepoints, cuts and requests.
    """
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def below(location: str, name: str) -> str:
    """Return the location of what has this name directly below another.

    Raises:
        BadKeyError: If it is no name.
    """
    if not is_name(name):
        raise BadKeyError.of(name, f"it is no name of something below {location}")
    return f"{location.rstrip('/')}/{name}"


def checked_key(key: str) -> str:
    """Return ``key`` if it is safe in every backend.

    Raises:
        BadKeyError: If it is empty, absolute, too long, or has ``.``, ``..``, empty or odd segments.
    """
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
