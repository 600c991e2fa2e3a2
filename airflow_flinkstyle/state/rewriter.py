"""Spark's own writer of whole state stores, driven from Python: everything that names it is here.

``StateRewriter`` (4.2) is the class behind Spark's offline repartition, and internal: so the caller
always reads back and compares what it writes. For each store it hands a DataFrame of raw rows to a function
and writes what that returns, partition i of it into partition i of the store, as the version behind a batch.
The raw rows are ignored here: only their schema and the store's name are used, so the location needs no old
data.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

from airflow_flinkstyle.state.errors import (
    STATE_TRANSFORM_BY_SPARK,
    STATE_TRANSFORM_PLACED_OTHERWISE,
)
from airflow_flinkstyle.state.query_copy import number_fields, setting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from py4j.java_gateway import JavaObject
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

Family = tuple[int, tuple[str, str]]
"""An operator's number, one of its stores, and a family of rows in there; ``default`` where it has one."""
_REWRITER: Final = "org.apache.spark.sql.execution.streaming.state.StateRewriter"
_ADAPTIVE: Final = "spark.sql.adaptive.enabled"
_INVOKE: Final = "org.apache.spark.sql.catalyst.expressions.objects.Invoke"
_EXPRESSION_UTILS: Final = "org.apache.spark.sql.classic.ExpressionUtils"
_UNSAFE_ROW: Final = "org.apache.spark.sql.catalyst.expressions.UnsafeRow"
_RAW: Final = ("partition_key", "key_bytes", "value_bytes", "column_family_name")


def write_stores(
    spark: SparkSession,
    location: str,
    batch: int,
    states: Mapping[Family, DataFrame],
    partitions: Mapping[int, int],
) -> dict[str, list[list[str]]]:
    """Write the state of some stores as it is after a batch; the others are left as they are.

    Args:
        spark: A session of Spark 4.2 or newer, without a query that runs.
        location: A checkpoint as Spark writes it: logs and schemas, of these stores no data.
        batch: The batch; the offset log has it, and names the provider.
        states: What each family is to hold: columns ``key`` and ``value``, structs of its schema. A store
            without any is not written.
        partitions: Operator -> how many partitions its stores have.

    Returns:
        Of checkpoint format 2, by operator and partition the id of each store; of format 1, nothing.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if Spark does not write it; the caller discards the copy then.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    listen: Any = ensure_callback_server_started  # PySpark has no other way to call back, and no types for it
    listen(context._gateway)  # noqa: SLF001
    jvm, session = context._jvm, spark._jsparkSession  # noqa: SLF001 - Spark has no public name for it
    option, resolved = jvm.scala.Option.apply, _as_spark_resolves(location)
    to_write = _RowsToWrite(spark, states, partitions)
    rewriter = getattr(jvm, _REWRITER)(
        session,
        batch,
        batch,
        resolved,
        session.sessionState().newHadoopConf(),
        option(resolved),
        option(to_write),
        option(None),
    )
    try:
        with setting(spark, _ADAPTIVE, "false"):  # with empty input it would drop every partition
            return _ids(jvm, rewriter.run())
    except Py4JJavaError as error:
        if to_write.failed is not None:
            raise to_write.failed from error
        raise STATE_TRANSFORM_BY_SPARK.error(why=str(error.java_exception.toString())) from error


class _RowsToWrite:
    """Scala's function from a store's raw DataFrame to the one that is written."""

    def __init__(
        self, spark: SparkSession, states: Mapping[Family, DataFrame], partitions: Mapping[int, int]
    ) -> None:
        self._spark, self._states, self._partitions = spark, states, partitions
        self.failed: Exception | None = None
        """Why it returned nothing: the JVM reports only that a call failed."""

    def apply(self, raw: JavaObject) -> JavaObject:
        try:
            return self._given(raw)
        except Exception as error:
            self.failed = error
            raise

    def _given(self, raw: JavaObject) -> JavaObject:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        options = raw.queryExecution().analyzed().options()
        operator, store = int(options.get("operatorId")), str(options.get("storeName"))
        schema = DataFrame(raw, self._spark).schema
        families = {
            family: rows
            for (number, (place, family)), rows in self._states.items()
            if (number, place) == (operator, store)
        }
        if not families:
            return raw.limit(0)  # without a partition, so that nothing is written
        placed = [_placed(family, rows, schema) for family, rows in families.items()]
        # Spark keeps the state of an operator without keys in partition 0, whatever the number of partitions;
        # the hash of no fields would lead elsewhere, where nobody reads it.
        has_keys = bool(getattr(schema[_RAW[0]].dataType, "fields", None))
        number = self._partitions[operator] if has_keys else 1
        if len(placed) == 1:  # spread before each row is copied, not after it
            together = _as_stored(placed[0].repartition(number, _RAW[0]))
        else:
            together = reduce(DataFrame.union, map(_as_stored, placed)).repartition(number, _RAW[0])
        # The partition key is not used any more, and its schema may have two fields of one name.
        written = together.withColumn(_RAW[0], F.lit(None).cast(schema[_RAW[0]].dataType))
        return written.select(*_RAW)._jdf  # noqa: SLF001 - what the JVM takes

    def toString(self) -> str:
        return "flinkstyle"

    class Java:
        """For py4j."""

        implements = ("scala.Function1",)


def _placed(family: str, rows: DataFrame, schema: StructType) -> DataFrame:
    """Return the rows of a family, each with the key that Spark partitions it by."""
    from pyspark.sql import functions as F

    key = F.col("key")
    if "place" in rows.columns:  # kept by time, partitioned by another key
        rows, key = rows.select(F.col("place").alias("key"), key.alias("row"), "value"), F.col("row")
    place = _partition_key(rows, schema["partition_key"].dataType)
    return rows.select(place.alias("partition_key"), key.alias("key"), "value", F.lit(family).alias("family"))


def _partition_key(state: DataFrame, kind: Any) -> Column:  # noqa: ANN401 - a type of PySpark
    """Return what Spark partitions a store by: the key, or its first fields (joins, sessions).

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if the store's keys are placed by anything else.
    """
    from pyspark.sql import functions as F

    kind = number_fields(kind)
    key, fields = F.col("key"), state.select("key.*").schema.fields
    # Of a map: the key of all its entries, and an entry's own.
    if _types(fields[:1]) == [kind.simpleString()]:
        key, fields = key.getField(fields[0].name), cast("StructType", fields[0].dataType).fields
    fields = fields[: len(kind.fields)]
    if _types(fields) != _types(kind.fields):
        raise STATE_TRANSFORM_PLACED_OTHERWISE.error(key=state.schema["key"].dataType.simpleString())
    parts = [key.getField(mine.name).alias(its.name) for mine, its in zip(fields, kind, strict=True)]
    return F.struct(*parts)


def _types(fields: Sequence[StructField]) -> list[str]:
    return [field.dataType.simpleString() for field in fields]


def _as_stored(rows: DataFrame) -> DataFrame:
    """Return the same with ``key_bytes`` and ``value_bytes``: a struct in a row of Spark's is what it stores.

    In Python each row would go there and back, which takes longer than Spark's writing.
    """
    from pyspark.sql import Column, DataFrame
    from pyspark.sql import functions as F

    context: Any = rows.sparkSession.sparkContext
    jvm, session = context._jvm, rows.sparkSession._jsparkSession  # noqa: SLF001 - Spark has no public name
    invoke, as_columns = (getattr(jvm, name) for name in (_INVOKE, _EXPRESSION_UTILS))
    unsafe_row = jvm.org.apache.spark.sql.types.ObjectType(jvm.java.lang.Class.forName(_UNSAFE_ROW))
    binary = session.parseDataType('"binary"')
    nothing = getattr(getattr(jvm, "scala.collection.immutable.Nil$"), "MODULE$")

    def called(on: JavaObject, method: str, kind: JavaObject) -> JavaObject:
        return invoke(on, method, kind, nothing, nothing, *[True] * 3)

    def in_bytes(name: str) -> Column:
        # For Spark's compiler a struct has no getBytes; what ``copy`` returns is cast to a class that has it.
        struct = as_columns.expression(F.col(name)._jc)  # noqa: SLF001
        return Column(as_columns.column(called(called(struct, "copy", unsafe_row), "getBytes", binary)))

    # Spark makes such rows of computed columns at the end of a plan, and only there.
    frame = rows._jdf  # noqa: SLF001
    computed = session.internalCreateDataFrame(frame.queryExecution().toRdd(), frame.schema(), False)
    stored = DataFrame(computed, rows.sparkSession)
    name = F.when(F.col("key").isNotNull(), F.col("family"))  # the writer requires that it may be null
    return stored.select("partition_key", in_bytes("key"), in_bytes("value"), name).toDF(*_RAW)


def encoded_rows(rows: DataFrame) -> DataFrame:
    """Return keys and values as a store has them, by a codec that Spark's writer does not use.

    The columns are ``key_bytes`` and ``value_bytes``.
    """
    return rows.select("key", "value").mapInArrow(_pairs_encoded, "key_bytes binary, value_bytes binary")


def _pairs_encoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from airflow_flinkstyle.state.rows import encode_rows

    for batch in batches:
        yield pa.RecordBatch.from_arrays(list(map(encode_rows, batch.columns)), names=list(_RAW[1:3]))


def _as_spark_resolves(location: str) -> str:
    """Return the location with a scheme: this class takes it as it is."""
    return f"file:{location}" if location.startswith("/") else location


def _ids(jvm: Any, found: JavaObject) -> dict[str, list[list[str]]]:  # noqa: ANN401 - py4j's view
    """Return Scala's Option[Map[Long, Array[Array[String]]]] as Python has it, without empty ones."""
    if found.isEmpty():
        return {}
    by_operator = jvm.scala.jdk.javaapi.CollectionConverters.asJava(found.get())
    ids = {
        str(operator): [[str(uid) for uid in stores] for stores in by_operator[operator]]
        for operator in by_operator
    }
    return {operator: partitions for operator, partitions in ids.items() if partitions}
