"""Addresses for people."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class NoUrl:
    """A browser could not open the manifest."""

    reason: str


def manifest_url(root: str, endpoint: str | None, job: str, savepoint_id: str) -> str | NoUrl:
    """Return an address that a person logged in to Amazon's console can open, or why there is none.

    Args:
        root: The savepoint root, ``s3://bucket/prefix``, ``file:///path`` or a path.
        endpoint: Address of an S3 server other than Amazon's; None for Amazon's.
        job: The job's name.
        savepoint_id: The savepoint's id.
    """
    key = quote(f"{job}/savepoints/{savepoint_id}.json")
    scheme, _, rest = root.partition("://")
    if scheme != "s3":
        return NoUrl("a browser opens no file of the machine where the savepoint root is")
    if endpoint:
        return NoUrl(f"{endpoint} answers signed requests only, and the key leaves Airflow in no link")
    bucket, _, prefix = rest.partition("/")
    path = "/".join(part for part in (quote(prefix.strip("/")), key) if part)
    return f"https://s3.console.aws.amazon.com/s3/object/{bucket}?prefix={path}"
