"""What each savepoint needs, with every manifest read once as long as it does not change.

A process that frees blobs reads the manifests before it holds ``prune.json``, and again while it holds it and
others wait: then only those that are new or changed. A manifest whose listed version is the one that was read
has the same content.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.sequence import cut_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from airflow_flinkstyle.savepoint.sequence import SavepointCut

Blob = tuple[str, int]
"""Key, and size in bytes as the manifest has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one savepoint needs; manifests are too large to keep them all."""

    version: str
    """Of the manifest that was read."""
    cut: SavepointCut
    blobs: tuple[Blob, ...]


class Needs:
    """Reads what the savepoints of a job need, and remembers it."""

    def __init__(self, repository: SavepointRepository) -> None:
        self._repository = repository
        self._read: dict[str, Need] = {}
        self._once: dict[Blob, Blob] = {}  # most blobs are shared by many savepoints

    def read(self) -> Mapping[str, Need]:
        """Return what each savepoint that exists now needs, by its id.

        Raises:
            ManifestFormatError: If a manifest cannot be read, so that what it needs is unknown.
        """
        listed = self._repository.versions()
        self._read = {
            savepoint_id: need
            for savepoint_id, need in self._read.items()
            if listed.get(savepoint_id) == need.version
        }
        for manifest, version in self._repository.each_of(listed.keys() - self._read.keys()):
            self._read[manifest.savepoint_id] = Need(
                version=version,
                cut=cut_of(manifest),
                blobs=tuple(self._once.setdefault(blob, blob) for blob in manifest.blobs.items()),
            )
        return dict(self._read)
