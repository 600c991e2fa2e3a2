"""From rows to records: the schema of Spark's own Kafka sink, shards by key, hashes for the digest."""

from __future__ import annotations

import hashlib
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, cast

from airflow_flinkstyle.sinks.errors import REPLAYS, SinkInputError
from airflow_flinkstyle.sinks.shard import WRAP, Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from airflow_flinkstyle.sinks.settings import SinkSettings

_HEADERS = "array<struct<key:string,value:binary>>"
COLUMNS: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": (_HEADERS,),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""Column -> types it may have; ``timestamp`` is the record's, which Spark's own sink cannot set."""
_RECORD: Final = {
    "key": "cast(key as binary) as key",
    "value": "cast(value as binary) as value",
    "timestamp": "unix_millis(`timestamp`) as `timestamp`",
}
"""SQL, because each call of a column's function costs a batch a trip to the JVM."""
_ARGUMENTS: Final = (
    *(("value", None), ("key", None), ("partition", -1)),
    *(("callback", None), ("on_delivery", None)),
    *(("timestamp", 0), ("headers", None)),
)
"""What the client's ``produce`` takes behind the topic, by position, and what it is without a column."""
_SLICE = 1000
"""Rows that are Python objects at the same time."""
HASH = "__hash"
SHARDS = "shards"
"""Under this name the hash column's metadata tells over how many shards the rows are spread."""


def shards_of(frame: DataFrame, settings: SinkSettings) -> DataFrame:
    """Return the rows as records, with one partition per shard.

    Raises:
        SinkInputError: If a column is missing, unknown, or of another type.
    """
    require_columns(frame.schema, topic=settings.topic)
    return spread(as_records(frame), settings.shards)


def as_records(frame: DataFrame) -> DataFrame:
    """Return the columns of Kafka's records, in the types that the sink takes."""
    return frame.selectExpr([_RECORD.get(name, name) for name in COLUMNS if name in frame.columns])


def spread(records: DataFrame, shards: int) -> DataFrame:
    """Return records with their hashes, one partition per shard.

    A key always belongs to the same shard, and the rows of one task keep their order within it. Rows
    without a key are spread by their values.
    """
    from pyspark.sql import functions as F

    names = records.columns
    digest = F.expr(f"xxhash64({', '.join(sorted(names))})").alias(HASH, metadata={SHARDS: shards})
    by = F.expr("coalesce(key, value)" if "key" in names else "value")
    return records.select("*", digest).repartition(shards, by)


def require_columns(schema: StructType, *, topic: str | None) -> None:
    """Check the columns that a job gives the sink.

    Raises:
        SinkInputError: If a column is missing, unknown, or of another type.
    """
    found = _types(schema)
    wrong = [f"{name} {kind}" for name, kind in found.items() if kind not in COLUMNS.get(name, ())]
    missing = [] if "value" in found else ["value"]
    if topic is None and "topic" not in found:
        missing.append("topic (or the sink's topic)")
    if wrong or missing:
        wanted = "; ".join(f"{name}: {' or '.join(kinds)}" for name, kinds in COLUMNS.items())
        raise SinkInputError(
            f"The sink takes the columns {wanted}, of which value is required, but found "
            f"{', '.join(wrong) or 'no'} others and missed {', '.join(missing) or 'none'}.",
            left="Nothing was written.",
            remedy="Select and cast the columns as for Spark's own Kafka sink.",
        )


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def plan_of(schema: StructType, settings: SinkSettings) -> str:
    """Return what must not change between two runs of a batch: the number of shards, columns and topic."""
    described = f"{settings.topic} {sorted(_types(schema).items())}"
    return f"{settings.shards}-{hashlib.sha256(described.encode()).hexdigest()[:16]}"


def chunks_of(batches: Iterator[pa.RecordBatch], topic: str | None) -> Iterator[Chunk]:
    """Return the records of one shard, as they come from Spark.

    Args:
        batches: Rows as ``spread`` made them.
        topic: For records without a topic.
    """
    for batch in batches:
        hashes = batch.column(batch.schema.names.index(HASH)).to_numpy(zero_copy_only=False)
        digest = int(hashes.view("uint64").sum(dtype="uint64")) % WRAP
        chunk = Chunk(records=_arguments(batch, topic), count=batch.num_rows, digest=digest)
        del batch, hashes  # or there would be two of them when the next one comes
        yield chunk


def _arguments(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[Any, ...]]:
    names = batch.schema.names
    wanted = [("topic", topic), *_ARGUMENTS]
    while wanted[-1][0] not in names:
        wanted.pop()
    for start in range(0, batch.num_rows, _SLICE):
        rows = batch.slice(start, _SLICE)
        yield from zip(*(_column(rows, names, *argument) for argument in wanted), strict=False)  # some repeat


def _column(batch: pa.RecordBatch, names: list[str], name: str, default: object) -> Iterable[Any]:
    if name not in names:
        return repeat(default)
    column = batch.column(names.index(name))
    if name == "headers":
        lists = column.to_pylist()
        return [[(one["key"], one["value"]) for one in headers] if headers else None for headers in lists]
    if column.null_count and default is not None:
        column = column.fill_null(default)
    elif column.null_count and name == "topic":
        raise SinkInputError(
            f"Every record was expected to have a topic, found {column.null_count} without, and the sink "
            "has none for them.",
            left=REPLAYS,
            remedy="Give the sink a topic, or leave such records out; then start the job again.",
        )
    return cast("list[Any]", column.to_pylist())
