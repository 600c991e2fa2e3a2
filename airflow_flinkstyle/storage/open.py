"""From a location, as users write it, to a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.storage.local import LocalStore

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.storage.s3_settings import S3Settings


def impatient(store: ObjectStore, *, answer_s: float) -> ObjectStore:
    """Return a client of its own for the same store, each call of which gives up after twice ``answer_s``.

    It shares no connection with the other one, so nothing large keeps its calls waiting; and it tries nothing
    twice, since who cannot wait decides that itself. A store without a network is returned as it is.
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
    parts = urlsplit(uri)
    if parts.scheme in {"s3", "s3a", "s3n"} and parts.netloc:
        from airflow_flinkstyle.storage.s3 import S3Store
        from airflow_flinkstyle.storage.s3_settings import S3Settings

        return S3Store(bucket=parts.netloc, prefix=parts.path.strip("/"), settings=s3 or S3Settings())
    if parts.scheme == "file" and parts.netloc in {"", "localhost"} and parts.path.startswith("/"):
        return LocalStore(Path(unquote(parts.path)))
    if not parts.scheme and uri.startswith("/"):
        return LocalStore(Path(uri))
    raise BadInputError(
        f"Expected a location like s3://bucket/prefix, file:///path or /path, found {uri!r}.",
        state_after="Nothing was read or written.",
        remedy="Correct the savepoint root or checkpoint location.",
    )
