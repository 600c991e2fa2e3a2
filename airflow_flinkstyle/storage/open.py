"""From a location, as users write it, to a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.storage.keys import file_path
from airflow_flinkstyle.storage.local import LocalStore

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.storage.s3_settings import S3Settings

_S3 = frozenset({"s3", "s3a", "s3n"})


def impatient(store: ObjectStore, *, answer_s: float) -> ObjectStore:
    """Return a client of its own for the same store, each call of which gives up after twice ``answer_s``.

    It shares no connection with the other one, so nothing large keeps its calls waiting; and it tries nothing
    twice: a caller that cannot wait decides that itself. A store without a network is returned as it is.
    """
    if not store.uri.startswith("s3://"):
        return store
    from airflow_flinkstyle.storage.s3 import S3Store

    return store.impatient(answer_s) if isinstance(store, S3Store) else store


def open_store(uri: str, s3: S3Settings | None = None) -> ObjectStore:
    """Open the store at ``s3://bucket/prefix``, ``file:///path`` or ``/path``.

    ``s3a://`` and ``s3n://``, Spark's names for the same bucket, are understood too.

    Args:
        uri: The location.
        s3: Endpoint and keys for an S3 location; None for boto3's standard environment variables.

    Raises:
        BadInputError: If the location is of another kind.
    """
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme in _S3 and bucket:
        # A key of S3 may hold '#' and '?': no part of a location is taken for a fragment or a query.
        return _open_s3(bucket, prefix, s3)
    if (path := file_path(uri)) is not None:
        return LocalStore(Path(path))
    raise _no_location(uri)


def open_as_hadoop(location: str, s3: S3Settings | None = None) -> ObjectStore:
    """Open the place that Hadoop's client means by a location, as a script of Spark names its checkpoint.

    Unlike in a URI, ``%20``, ``#`` and ``?`` are characters of the path like any other.

    Args:
        location: ``s3a://bucket/prefix``, ``file:///path``, ``file:/path`` or ``/path``.
        s3: Endpoint and keys for an S3 location; None for boto3's standard environment variables.

    Raises:
        BadInputError: If the location is of another kind: only the client of its file system opens it.
    """
    scheme, colon, rest = location.partition(":")
    if "/" in scheme or not colon:
        scheme, rest = "", location
    authority, path = "", rest
    if rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
    if scheme in _S3 and authority:
        return _open_s3(authority, path, s3)
    if scheme in {"", "file"} and authority in {"", "localhost"} and path.startswith("/"):
        return LocalStore(Path(path))
    raise _no_location(location)


def is_of_hadoop(location: str) -> bool:
    """Tell whether a location names a file system that only Spark's own client opens: ``hdfs``, ``abfss``."""
    scheme, colon, rest = location.partition(":")
    return bool(colon) and rest.startswith("/") and scheme.isalnum() and scheme not in {*_S3, "file"}


def _open_s3(bucket: str, path: str, s3: S3Settings | None) -> ObjectStore:
    from airflow_flinkstyle.storage.s3 import S3Store
    from airflow_flinkstyle.storage.s3_settings import S3Settings

    return S3Store(bucket=bucket, prefix=path.strip("/"), settings=s3 or S3Settings())


def _no_location(found: str) -> BadInputError:
    return BadInputError(
        f"Expected a location like s3://bucket/prefix, file:///path or /path, found {found!r}.",
        state_after="Nothing was read or written.",
        remedy="Correct the savepoint root or checkpoint location.",
    )
