"""What changed between two savepoints of a job. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.types import id_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_flinkstyle.checkpoint.table_position import TablePosition
    from airflow_flinkstyle.savepoint.manifest import FileEntry, KafkaPosition, Manifest, QuerySnapshot
    from airflow_flinkstyle.types import BatchId, NextOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetChange:
    """One partition of a Kafka source in both savepoints."""

    source: str
    """By name (offset log v2) or position (v1)."""
    topic: str
    partition: int
    before: NextOffset | None
    """Next record to read; None where only the other savepoint has the partition."""
    after: NextOffset | None
    same_log: bool = True
    """Whether both count in one log; after a migration, or in a topic that was made anew, they do not."""

    @property
    def records(self) -> int | None:
        """How far the position moved, in records; None where one end is missing, or is in another log."""
        if self.before is None or self.after is None or not self.same_log:
            return None
        return self.after - self.before


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSum:
    """A number of files and their size."""

    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChanges:
    """The checkpoint files of two savepoints, told apart by path and content."""

    shared: FileSum
    """In both, with the same content."""
    added: FileSum
    """Only in the later one, or under the same path with another content."""
    removed: FileSum
    """Only in the earlier one, or under the same path with another content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDiff:
    """One query that is in either savepoint."""

    name: str
    before: BatchId | None
    """Its newest committed batch; None if the savepoint does not have the query."""
    after: BatchId | None
    same_query_id: bool
    """Whether both snapshots are of the same lineage of batches; False if one is missing."""
    clusters: Mapping[str, tuple[str | None, str | None]]
    """Kafka cluster ids before and after, of the sources that read another cluster."""
    offsets: tuple[OffsetChange, ...]
    """Every partition of every Kafka source, also those that did not move."""
    tables: Mapping[str, tuple[TablePosition | None, TablePosition | None]]
    """Before and after, of each ``source <name>`` that is a table with versions, and of such a ``sink``."""
    confs: Mapping[str, tuple[str | None, str | None]]
    """Pinned settings that differ, before and after."""
    files: FileChanges


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointDiff:
    """What changed from one savepoint to another."""

    before: str
    after: str
    seconds_between: float
    """By the clocks of their takers; negative if ``after`` is the older one."""
    spark_versions: tuple[str, str]
    queries: tuple[QueryDiff, ...]
    """Sorted by name."""


def diff_savepoints(before: Manifest, after: Manifest) -> SavepointDiff:
    """Compare two savepoints of one job, or of two."""
    names = sorted({query.name for query in (*before.queries, *after.queries)})
    return SavepointDiff(
        before=before.savepoint_id,
        after=after.savepoint_id,
        seconds_between=(after.taken_at_ms - before.taken_at_ms) / 1000,
        spark_versions=(before.spark_version, after.spark_version),
        queries=tuple(_diff_query(name, before.query(name), after.query(name)) for name in names),
    )


def _diff_query(name: str, before: QuerySnapshot | None, after: QuerySnapshot | None) -> QueryDiff:
    old_kafka = before.kafka if before else {}
    new_kafka = after.kafka if after else {}
    old_clusters = {source: id_words(position.cluster_id) for source, position in old_kafka.items()}
    new_clusters = {source: id_words(position.cluster_id) for source, position in new_kafka.items()}
    return QueryDiff(
        name=name,
        before=before.batch_id if before else None,
        after=after.batch_id if after else None,
        same_query_id=bool(before and after and before.query_id == after.query_id),
        clusters=_changed(old_clusters, new_clusters),
        offsets=tuple(_offset_changes(old_kafka, new_kafka)),
        tables=_tables(before, after),
        confs=_changed(before.pinned_confs if before else {}, after.pinned_confs if after else {}),
        files=_diff_files(before.files if before else (), after.files if after else ()),
    )


def _tables(
    before: QuerySnapshot | None, after: QuerySnapshot | None
) -> dict[str, tuple[TablePosition | None, TablePosition | None]]:
    old, new = _named_tables(before), _named_tables(after)
    return {name: (old.get(name), new.get(name)) for name in sorted({*old, *new})}


def _named_tables(query: QuerySnapshot | None) -> dict[str, TablePosition]:
    if query is None:
        return {}
    sources = {f"source {source}": position for source, position in query.tables.items()}
    return sources | ({"sink": query.sink_table} if query.sink_table else {})


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    pairs = {name: (before.get(name), after.get(name)) for name in sorted({*before, *after})}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _offset_changes(
    before: Mapping[str, KafkaPosition], after: Mapping[str, KafkaPosition]
) -> Iterable[OffsetChange]:
    old, new = _by_partition(before), _by_partition(after)
    for source, topic, partition in sorted({*old, *new}):
        key = (source, topic, partition)
        one, other = before.get(source), after.get(source)
        yield OffsetChange(
            source=source,
            topic=topic,
            partition=partition,
            before=old.get(key),
            after=new.get(key),
            same_log=bool(one and other and one.shares_log(other, topic)),
        )


def _by_partition(positions: Mapping[str, KafkaPosition]) -> dict[tuple[str, str, int], NextOffset]:
    return {
        (source, topic, partition): offset
        for source, position in positions.items()
        for (topic, partition), offset in position.offsets.items()
    }


def _diff_files(before: Iterable[FileEntry], after: Iterable[FileEntry]) -> FileChanges:
    old = {(entry.path, entry.content): entry.size_bytes for entry in before}
    new = {(entry.path, entry.content): entry.size_bytes for entry in after}
    return FileChanges(
        shared=_sum(size for file, size in new.items() if file in old),
        added=_sum(size for file, size in new.items() if file not in old),
        removed=_sum(size for file, size in old.items() if file not in new),
    )


def _sum(sizes: Iterable[int]) -> FileSum:
    found = list(sizes)
    return FileSum(files=len(found), size_bytes=sum(found))
