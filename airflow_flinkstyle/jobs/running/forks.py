"""A savepoint under new query ids, and numbers: what a fork starts from."""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.errors import RenumberError
from airflow_flinkstyle.savepoint.files.derive import changed_file, publish_derived
from airflow_flinkstyle.savepoint.files.renumber import renumber
from airflow_flinkstyle.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

_METADATA = "metadata"


def fork(
    manifest: Manifest,
    repository: SavepointRepository,
    key: str,
    numbers: Mapping[str, int | None] | None = None,
) -> Manifest:
    """Publish the savepoint under new query ids, so that no sink takes its batches for known ones.

    What was planned behind it is the old lineage's to complete: a fork plans its own.

    Args:
        manifest: The savepoint.
        repository: Where it is.
        key: Who asks, without the try number.
        numbers: Query name -> a number above every batch that the job may have had; the takeover order's
            ``unused_from``.
    """
    numbers = numbers or {}
    counted = [f"{name}={number}" for name, number in sorted(numbers.items()) if number is not None]
    text = "\0".join([manifest.savepoint_id, key, *counted])
    digest = hashlib.sha256(text.encode()).hexdigest()[:20]

    def forked(query: QuerySnapshot) -> QuerySnapshot:
        return _renamed(_counted_on(query, numbers.get(query.name)), repository, digest)

    return publish_derived(manifest, repository, f"sp-fork-{digest}", forked)


def _counted_on(query: QuerySnapshot, number: int | None) -> QuerySnapshot:
    """Give a query into a plain function its number at once: its driver may end before it comes to it.

    What is left as it is here, the agent judges by the script.
    """
    is_plain = query.sink == "foreachBatch" and query.sinks is not None and not query.sinks.lineages
    if number is not None and is_plain:
        with contextlib.suppress(RenumberError):
            return renumber(query, BatchId(number))
    return query


def _renamed(query: QuerySnapshot, repository: SavepointRepository, digest: str) -> QuerySnapshot:
    query_id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{query.query_id}/{digest}"))
    files = []
    for entry in query.files:
        if entry.path == _METADATA:
            metadata = {**json.loads(repository.read_blob(entry.blob)), "id": query_id}
            content = json.dumps(metadata, separators=(",", ":")).encode()
            entry = changed_file(repository, entry.path, content)
        files.append(entry)
    return replace(query, query_id=query_id, planned_offsets=None, files=tuple(files))
