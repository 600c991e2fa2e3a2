"""From rows to records: the schema of Spark's own Kafka sink, shards by key, hashes for the digest."""

from __future__ import annotations

import hashlib
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, cast

from airflow_flinkstyle.sinks.errors import REPLAYS, SINK_CONFIG, SINK_INPUT
from airflow_flinkstyle.sinks.marker import WRAP
from airflow_flinkstyle.sinks.shard import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from airflow_flinkstyle.errors import FlinkstyleError
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
    "key": ("binary", "cast(key as binary)"),
    "value": ("binary", "cast(value as binary)"),
    "timestamp": ("bigint", "unix_millis(`timestamp`)"),
}
"""Column -> the type and the SQL of what is sent, where that is not the column itself.

SQL, because each call of a column's function costs a batch a trip to the JVM.
"""
_ARGUMENTS: Final = (
    *(("value", None), ("key", None), ("partition", -1)),
    *(("callback", None), ("on_delivery", None)),
    *(("timestamp", 0), ("headers", None)),
)
"""What the client's ``produce`` takes behind the topic, by position, and what it is without a column."""
_SLICE = 1000
"""Rows that are Python objects at the same time."""
HASH, SHARD = "__hash", "__shard"


def records_of(frame: DataFrame, *, shards: int) -> DataFrame:
    """Return the rows as records, with hash and shard.

    A key always belongs to the same shard. Rows without a key are spread by their values.

    Args:
        frame: With columns as ``require_columns`` wants them.
        shards: Of the lineage.
    """
    sent = {name: _RECORD.get(name, ("", name))[1] for name in COLUMNS if name in frame.columns}
    by = f"coalesce({sent['key']}, {sent['value']})" if "key" in sent else sent["value"]
    return frame.selectExpr(
        *(f"{sql} as `{name}`" for name, sql in sent.items()),
        f"xxhash64({', '.join(sent[name] for name in sorted(sent))}) as {HASH}",
        f"pmod(hash({by}), {shards}) as {SHARD}",
    )


def spread(frame: DataFrame, *, shards: int, tasks: int) -> DataFrame:
    """Return the records of ``records_of``, each shard whole in one of the tasks' partitions.

    The rows of one task of the source keep their order within it.

    Args:
        frame: With columns as ``require_columns`` wants them.
        shards: Of the lineage.
        tasks: A divisor of it: Spark spreads by the same hash, so partition p holds shards p, p + tasks, ...
    """
    from pyspark.sql import functions as F

    by = "coalesce(key, value)" if "key" in frame.columns else "value"
    return records_of(frame, shards=shards).repartition(tasks, F.expr(by))


def require_columns(schema: StructType, *, topic: str | None) -> None:
    """Check the columns that a job gives the sink.

    Raises:
        FlinkstyleError: ``SINK_INPUT`` if a column is missing, unknown, or of another type.
    """
    found = _types(schema)
    wrong = [f"{name} {kind}" for name, kind in found.items() if kind not in COLUMNS.get(name, ())]
    missing = [] if "value" in found else ["value"]
    if topic is None and "topic" not in found:
        missing.append("topic (or the sink's topic)")
    if wrong or missing:
        wanted = "; ".join(f"{name}: {' or '.join(kinds)}" for name, kinds in COLUMNS.items())
        raise SINK_INPUT.with_text(
            f"The sink takes the columns {wanted}, of which value is required, but found "
            f"{', '.join(wrong) or 'no'} others and missed {', '.join(missing) or 'none'}.",
            state_after="Nothing was written.",
            remedy="Select and cast the columns as for Spark's own Kafka sink.",
        )


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def plan_of(schema: StructType, settings: SinkSettings) -> str:
    """Return what must not change between two runs of a batch: the number of shards, columns and topic.

    Args:
        schema: Of the rows that the job gives the sink.
        settings: The sink.
    """
    types = {name: kind for name, kind in _types(schema).items() if name in COLUMNS}
    types |= {name: kind for name, (kind, _) in _RECORD.items() if name in types}
    described = f"{settings.topic} {sorted(types.items())}"
    return f"{settings.shards}-{hashlib.sha256(described.encode()).hexdigest()[:16]}"


def chunks_of(batches: Iterator[pa.RecordBatch], topic: str | None, shards: Sequence[int]) -> Iterator[Chunk]:
    """Return the records of a task's shards, as they come from Spark.

    Args:
        batches: Rows as ``spread`` made them.
        topic: For records without a topic.
        shards: Those of the task.

    Raises:
        FlinkstyleError: ``SINK_CONFIG`` if there are rows of other shards.
    """
    from numpy import bincount
    from pyarrow import array

    for batch in batches:
        hashes = batch.column(batch.schema.names.index(HASH)).to_numpy().view("uint64")
        shard_of = batch.column(batch.schema.names.index(SHARD)).to_numpy()
        found = [int(shard) for shard in bincount(shard_of).nonzero()[0]]
        if not set(found) <= set(shards):
            raise _respread(found, shards)
        for shard in found:
            mine = shard_of == shard
            rows = batch if len(found) == 1 else batch.filter(array(mine))
            digest = int(hashes[mine].sum(dtype="uint64")) % WRAP
            yield Chunk(
                shard=shard,
                records=_arguments(rows, topic),
                count=rows.num_rows,
                digest=digest,
                size_bytes=rows.nbytes,
            )
        batch = hashes = shard_of = rows = None  # or there would be two of them when the next one comes


def _respread(found: Sequence[int], shards: Sequence[int]) -> FlinkstyleError:
    return SINK_CONFIG.with_text(
        f"A task was expected to have rows of the shards {list(shards)}, found rows of the shards {found}.",
        state_after=REPLAYS,
        remedy="Use a version of PySpark that the package supports: this one spreads rows in another way.",
    )


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
        raise SINK_INPUT.with_text(
            f"Every record was expected to have a topic, found {column.null_count} without, and the sink "
            "has none for them.",
            state_after=REPLAYS,
            remedy="Give the sink a topic, or leave such records out; then start the job again.",
        )
    return cast("list[Any]", column.to_pylist())
