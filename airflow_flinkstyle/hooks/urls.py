"""Addresses for people."""

from __future__ import annotations

from urllib.parse import quote, urlsplit


def manifest_url(root: str, endpoint: str | None, job: str, savepoint_id: str) -> str:
    """Return an absolute address of a manifest, because Airflow hides relative ones.

    Args:
        root: The savepoint root, ``s3://bucket/prefix``, ``file:///path`` or a path.
        endpoint: Address of an S3 server other than Amazon's; None for Amazon's.
        job: The job's name.
        savepoint_id: The savepoint's id.
    """
    key = quote(f"{job}/savepoints/{savepoint_id}.json")
    parts = urlsplit(root)
    if parts.scheme != "s3":
        return f"file://{quote(parts.path.rstrip('/'))}/{key}"
    path = "/".join(part for part in (quote(parts.path.strip("/")), key) if part)
    if endpoint:
        return f"{endpoint.rstrip('/')}/{parts.netloc}/{path}"
    return f"https://s3.console.aws.amazon.com/s3/object/{parts.netloc}?prefix={path}"
