"""Savepoints made from other savepoints; both share the blobs that both need."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.files.verified import publish_trusted
from airflow_flinkstyle.savepoint.manifest import FileEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository


def publish_derived(
    parent: Manifest,
    repository: SavepointRepository,
    savepoint_id: str,
    change: Callable[[QuerySnapshot], QuerySnapshot],
    *,
    evidence: Mapping[str, str] | None = None,
) -> Manifest:
    """Publish a savepoint whose queries are the parent's, each changed by ``change``.

    Its ``taken_at_ms`` is the parent's: the moment of the cut. To repeat it changes nothing.

    Raises:
        SavepointMissingError: If the parent is gone, and perhaps files that both would share with it.
    """
    with hold_intent(
        repository, "take", holder=f"the maker of {savepoint_id}", publishes=savepoint_id
    ) as held:
        repository.read(parent.savepoint_id)
        derived = replace(
            parent,
            savepoint_id=savepoint_id,
            parent=parent.savepoint_id,
            evidence={**parent.evidence, **(evidence or {})},
            queries=tuple(change(query) for query in parent.queries),
        )
        publish_trusted(held, repository, derived)
    return derived


def changed_file(repository: SavepointRepository, path: str, content: bytes) -> FileEntry:
    """Store a file's new content; call it only inside ``publish_derived``'s ``change``."""
    return FileEntry(
        path=path,
        size_bytes=len(content),
        blob=repository.put_blob(content),
        digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
    )
