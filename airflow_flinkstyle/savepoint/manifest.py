"""The savepoint manifest. Pure; ``manifest_json`` turns it into text and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, TypeAlias

from airflow_flinkstyle.checkpoint.table_position import TablePosition
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import Sinks
from airflow_flinkstyle.storage.keys import Key, Name
from airflow_flinkstyle.typed_json import Check, stored
from airflow_flinkstyle.types import Alignment, BatchId, Count, KafkaId, NextOffset, Text, ids_differ

_DIGEST = re.compile("sha256:[0-9a-f]{64}|(?!sha256:)[^:]*:.+", re.DOTALL)
Digest = Annotated[str, Check("'sha256:' or a store's kind of checksum, and the digest", _DIGEST.fullmatch)]

StoredAt: TypeAlias = tuple[str, int | None, int]
"""Key of a blob, the first byte in it (None if the blob is that content alone), and the size in bytes."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One checkpoint file inside a savepoint."""

    path: Key
    """Relative to the checkpoint root, forward slashes, never ``..``."""
    size_bytes: Count
    blob: Key
    """Key in the repository: SHA-256 of the content, ``origin/...`` for a copy made inside the store, or
    ``packs/...`` for a pack of small files."""
    digest: Digest | None
    """``sha256:...`` or the store's own checksum; None until a full verify has read the file. In a pack
    always a SHA-256."""
    offset: Count | None = None
    """Where the content begins in its pack, in bytes; None if the blob is this content alone."""
    pack_bytes: Count | None = None
    """Size of the whole pack; None if the blob is this content alone."""

    @property
    def stored_bytes(self) -> int:
        """Size of the blob that holds it."""
        return self.size_bytes if self.pack_bytes is None else self.pack_bytes

    @property
    def place(self) -> StoredAt:
        """Where its content is stored; by its size, too: an empty file begins where the next one does."""
        return self.blob, self.offset, self.size_bytes

    @property
    def content(self) -> str:
        """Identifies the content: equal for equal contents at any place, if the files were read."""
        return self.digest if self.digest is not None and self.digest.startswith("sha256:") else self.blob


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaLog:
    """The log that one Kafka source reads, as the caller saw it; a capture adds the offsets."""

    cluster_id: KafkaId | None
    """``cluster.id`` reported by the broker when the query started; None if it reports none."""
    topic_ids: Mapping[str, KafkaId | None]
    log_range: Mapping[str, Mapping[int, tuple[NextOffset, NextOffset]]]
    """Earliest and end offset per partition when the savepoint was taken."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPosition:
    """Where one Kafka source stood, and in which log."""

    cluster_id: KafkaId | None
    """``cluster.id`` reported by the broker when the query started; None if it reports none."""
    topic_ids: Mapping[str, KafkaId | None]
    """None where unknown: the cluster reports none, or the driver died before it asked."""
    offsets: Offsets
    """From ``offsets/K``: the next record to read."""
    log_range: Mapping[str, Mapping[int, tuple[NextOffset, NextOffset]]]
    """Earliest and end offset per partition when the savepoint was taken."""

    @property
    def log(self) -> KafkaLog:
        """The log it stood in, to capture the query once more."""
        return KafkaLog(
            cluster_id=self.cluster_id, topic_ids=dict(self.topic_ids), log_range=dict(self.log_range)
        )

    def shares_log(self, other: KafkaPosition, topic: str) -> bool:
        """Return whether offsets of ``topic`` in both count the same records, as far as the ids show."""
        of_another = ids_differ(self.cluster_id, other.cluster_id)
        return not of_another and not ids_differ(self.topic_ids.get(topic), other.topic_ids.get(topic))


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySnapshot:
    """One query of the job, cut between two batches."""

    name: Name
    query_id: Text
    """Spark's query id, from the checkpoint's ``metadata`` file."""
    batch_id: BatchId
    """Newest batch in both ``offsets/`` and ``commits/`` (Spark: CommitLog)."""
    checkpoint_location: str
    """Where the checkpoint was when it was copied; for people, a restore goes elsewhere."""
    planned_offsets: str | None
    """Raw ``offsets/K+1`` of the planned batch, if there is one."""
    pinned_confs: Mapping[str, str]
    """Settings in the offset log that override the session's (shuffle partitions, provider, ...)."""
    kafka: Mapping[str, KafkaPosition]
    """By source name (log v2) or position (v1)."""
    tables: Mapping[str, TablePosition] = field(default_factory=dict)
    """How far it has read sources that are tables with versions, by source."""
    sink: Text | None = None
    """Spark's name of the sink (``kafka``, ``foreachBatch``, ``parquet``, ...); None if unknown."""
    sinks: Sinks | None = None
    """What its transactional sinks had written; None if it was not recorded."""
    sink_table: TablePosition | None = None
    """The newest version of its sink's table up to this batch; None if none was found."""
    files: tuple[FileEntry, ...]
    """Sorted by path."""

    @property
    def has_state(self) -> bool:
        """Tell whether the query has a stateful operator."""
        return any(entry.path.startswith("state/") for entry in self.files)

    def file(self, path: str) -> FileEntry | None:
        """Return the entry of one checkpoint file, or None."""
        return next((entry for entry in self.files if entry.path == path), None)


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A savepoint: a cut of every query of a job, and where it came from.

    The manifest is created last. A savepoint without one does not exist.
    """

    format_version: ClassVar[int] = 2
    """It changes only together with a reader of the format before."""

    savepoint_id: Name
    job: Name
    parent: Name | None
    """The savepoint this one was rewritten from."""
    alignment: Alignment
    taken_at_ms: int
    """Epoch milliseconds, UTC, by the clock of the process that took it."""
    taken_from_generation: int | None
    """The generation of the job that was running, or ran last; None for a checkpoint from outside."""
    batches_run: Count
    """How many batches the queries of that generation had run together when it was cut, each from its
    beginning: its place within the generation. A savepoint that is made from it keeps it, whatever numbers
    its own batches have."""
    spark_version: str
    evidence: Mapping[str, str]
    """The proofs of a rewrite, by name; empty for a savepoint as taken."""
    cut_id: Name | None = None
    """Shared by the savepoints of several jobs that were cut together, else None."""
    queries: tuple[QuerySnapshot, ...]
    """Sorted by name."""

    @property
    def total_bytes(self) -> int:
        """Size if nothing were shared with other savepoints."""
        return sum(entry.size_bytes for query in self.queries for entry in query.files)

    @property
    def blobs(self) -> Mapping[str, int]:
        """Key and size in bytes of every blob that the savepoint needs."""
        return {entry.blob: entry.stored_bytes for query in self.queries for entry in query.files}

    @property
    def contents(self) -> Mapping[StoredAt, FileEntry]:
        """Every content that the savepoint needs, each once, by its place."""
        return {entry.place: entry for query in self.queries for entry in query.files}

    def query(self, name: str) -> QuerySnapshot | None:
        """Return the snapshot of one query, or None."""
        return next((query for query in self.queries if query.name == name), None)
