"""What an operator keeps, as users see it, and the rows in which Spark's stores hold it.

An aggregation has one state. A join has one for each side: rows that wait, each with its number among those
of its key, and beside them how many there are. ``transformWithState`` has one for each variable, all in one
store under names of their own (``variables``).
Spark: ``SymmetricHashJoinStateManager``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, cast

from airflow_flinkstyle.state.errors import STATE_TRANSFORM_UNKNOWN_STORES, state_read_operator_unknown
from airflow_flinkstyle.state.query_copy import number_fields
from airflow_flinkstyle.state.variables import DEFAULT, NO_TIME, RAW, Place, Variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.state.query_copy import QueryCopy

PREFIX: Final = "_numColsPrefixKey"
"""Hidden column of Spark: how many of a key's first fields it looks keys up by; 0 for all."""
_JOIN: Final = "symmetricHashJoin"
_SIDES: Final = ("left", "right")
_ROWS, _COUNTS = "keyWithIndexToValue", "keyToNumValues"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """What Spark's metadata has of a stateful operator."""

    number: int
    name: str
    partitions: int
    prefix: int
    """See ``PREFIX``; -1 where it is in its stores' schemas."""
    stores: tuple[str, ...]
    properties: Mapping[str, object]

    @classmethod
    def of(cls, copied: QueryCopy, number: int) -> Operator:
        """Read it.

        Raises:
            FlinkstyleError: ``STATE_READ`` if the query has no such operator with state.
        """
        rows: list[Row] = copied.operators().select("*", PREFIX).collect()
        mine = [row for row in rows if row["operatorId"] == number]
        if not mine:
            known = sorted({f"{row['operatorId']} ({row['operatorName']})" for row in rows})
            raise state_read_operator_unknown(number, copied.query.name, known)
        return cls(
            number=number,
            name=str(mine[0]["operatorName"]),
            partitions=int(mine[0]["numPartitions"]),
            prefix=int(mine[0][PREFIX]),
            stores=tuple(sorted(row["stateStoreName"] for row in mine)),
            properties=json.loads(mine[0]["operatorProperties"] or "{}"),
        )


class States(Protocol):
    """The states of one operator."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each: ``left``, a variable; empty for the only one."""

    def read(self, copied: QueryCopy, name: str) -> DataFrame:
        """Return a state as users see it."""

    def settled(self, name: str, state: DataFrame) -> DataFrame:
        """Return a state with the numbers that Spark keeps itself."""

    def rows(self, name: str, state: DataFrame) -> dict[Place, DataFrame]:
        """Return the rows of each store and family for a settled state: columns ``key`` and ``value``."""

    def unique(self, name: str) -> tuple[str, ...]:
        """Return the columns that no two rows share; none if they may."""


def states_of(copied: QueryCopy, operator: Operator) -> States:
    """Return the states of an operator.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if its stores cannot be written.
    """

    def unknown(found: Iterable[str]) -> FlinkstyleError:
        return STATE_TRANSFORM_UNKNOWN_STORES.error(
            query=copied.query.name, operator=operator.number, name=operator.name, found=", ".join(found)
        )

    if operator.name == _JOIN:
        join = Join(operator=operator.number, in_one_store=operator.stores == (DEFAULT,))
        several = {f"{side}-{kind}" for side in _SIDES for kind in (_ROWS, _COUNTS)}
        # In one store the names of the families show how it is kept; a join of another kind has no such rows.
        is_known = join.is_whole(copied) if join.in_one_store else set(operator.stores) == several
        if not is_known:
            raise unknown(operator.stores)
        return join
    if operator.stores != (DEFAULT,):
        raise unknown(operator.stores)
    variables = cast("list[dict[str, object]]", operator.properties.get("stateVariables", []))
    if not variables:
        return OneState(operator=operator.number)
    found = Variables.of(operator.number, variables, str(operator.properties.get("timeMode", NO_TIME)))
    if others := found.unknown_kinds():
        raise unknown(others)
    if (family := found.differing_family(copied)) is not None:
        raise unknown([family])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OneState:
    """An operator with a value for each key."""

    operator: int
    names: tuple[str, ...] = ("",)

    def read(self, copied: QueryCopy, name: str) -> DataFrame:
        """Return keys and values."""
        return copied.load(self.operator, {}).drop("partition_id")

    def settled(self, name: str, state: DataFrame) -> DataFrame:
        """Return it as it is."""
        return state

    def rows(self, name: str, state: DataFrame) -> dict[Place, DataFrame]:
        """Return it as it is."""
        return {(DEFAULT, DEFAULT): state}

    def unique(self, name: str) -> tuple[str, ...]:
        """Return the key."""
        return ("key",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A join of two streams; each row's key ends with its number among the rows of that key."""

    operator: int
    in_one_store: bool
    """Not in four, as before state format 3."""
    names: tuple[str, ...] = _SIDES

    def read(self, copied: QueryCopy, name: str) -> DataFrame:
        """Return the rows of a side that wait, with whether each has found a partner (``matched``)."""
        family = f"{name}-{_ROWS}"
        if not self.in_one_store:
            return copied.load(self.operator, {"storeName": family}).drop("partition_id")
        return _decoded_family(copied, self.operator, family, self.shown(copied, name))

    def shown(self, copied: QueryCopy, name: str) -> DataFrame:
        """Return a side's rows as Spark's own reader shows them: without ``matched`` and numbers."""
        return copied.load(self.operator, {"joinSide": name}).drop("partition_id")

    def is_whole(self, copied: QueryCopy) -> bool:
        """Return whether as many rows are found as Spark's own reader shows, on each side."""
        return all(self.read(copied, name).count() == self.shown(copied, name).count() for name in _SIDES)

    def settled(self, name: str, state: DataFrame) -> DataFrame:
        """Return the rows of each key numbered from 0 on, without a gap."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        *fields, index = _key_fields(state)
        key = F.col("key")
        ordered = Window.partitionBy(*[key.getField(field) for field in fields]).orderBy(key.getField(index))
        number = (F.row_number().over(ordered) - 1).cast("long")
        numbered = state.withColumn("number", number)
        parts = [*(key.getField(field).alias(field) for field in fields), F.col("number").alias(index)]
        return numbered.select(F.struct(*parts).alias("key"), "value")

    def rows(self, name: str, state: DataFrame) -> dict[Place, DataFrame]:
        """Return the rows, and how many each key has."""
        from pyspark.sql import functions as F

        *fields, _ = _key_fields(state)
        key = F.struct(*[F.col("key").getField(field).alias(field) for field in fields])
        counts = state.groupBy(key.alias("key")).agg(F.struct(F.count("*").alias("value")).alias("value"))
        found = {_ROWS: state, _COUNTS: counts}
        if not self.in_one_store:
            return {(f"{name}-{kind}", DEFAULT): rows for kind, rows in found.items()}
        return {(DEFAULT, f"{name}-{kind}"): rows for kind, rows in found.items()}

    def unique(self, name: str) -> tuple[str, ...]:
        """Return none: rows are numbered again."""
        return ()


def _key_fields(state: DataFrame) -> list[str]:
    return list(cast("StructType", state.schema["key"].dataType).fieldNames())


def _decoded_family(copied: QueryCopy, operator: int, family: str, shown: DataFrame) -> DataFrame:
    """Return the rows of a join's side, decoded here: Spark's reader leaves ``matched`` and numbers out."""
    from pyspark.sql.types import BooleanType, LongType, StructField, StructType

    more = {"key": StructField("index", LongType()), "value": StructField("matched", BooleanType())}
    fields = {name: cast("StructType", shown.schema[name].dataType).fields for name in more}
    kind = StructType(
        [StructField(name, number_fields(StructType([*fields[name], last]))) for name, last in more.items()]
    )
    raw = copied.load(operator, {"storeName": DEFAULT, RAW: "true"})
    rows = raw.where(raw.column_family_name == family).select("key_bytes", "value_bytes")
    return rows.mapInArrow(_decoder(kind), kind)


def _decoder(kind: StructType):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Return the function that decodes; executors need this package as drivers do."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(kind, timezone="UTC")  # a join beneath a watermark has timestamps

    def decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        from airflow_flinkstyle.state.rows import decode_rows

        for batch in batches:
            pairs = zip(batch.columns, schema, strict=True)
            columns = [decode_rows(column, field.type) for column, field in pairs]
            yield pyarrow.RecordBatch.from_arrays(columns, names=list(schema.names))

    return decoded
