"""Which keys changed between two states of one operator."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final, cast

from airflow_flinkstyle.state.errors import STATE_READ_NOT_COMPARABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType, StructType

_PLACE: Final = "partition_id"
_KEYS: Final = frozenset({"key", "user_map_key"})
_WHOLE: Final = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options by which equal values, and only these, become the same text: Spark's own drop microseconds."""
_HALF: Final = 0xFFFF_FFFF
_EQUAL: Final = frozenset(
    ("boolean", "tinyint", "smallint", "int", "bigint", "string", "binary", "date", "timestamp")
)
"""Types whose values are equal, and have one hash, only if they are the same; of doubles -0.0 equals 0.0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a change did to an operator's keys."""

    added: int
    removed: int
    changed: int
    kept: int

    def __add__(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(
            added=self.added + other.added,
            removed=self.removed + other.removed,
            changed=self.changed + other.changed,
            kept=self.kept + other.kept,
        )


NO_KEYS: Final = Counts(added=0, removed=0, changed=0, kept=0)


def keys_of(state: DataFrame) -> list[str]:
    """Return the columns that identify a row."""
    return [name for name in state.columns if name in _KEYS]


def state_changes(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return a row for each key that was added, removed or changed.

    Args:
        before: What ``savepoint_state`` returned for the earlier savepoint.
        after: The same operator's state in the later one.

    Returns:
        The key's columns (``key``; of a map variable also ``user_map_key``), ``change`` (``added``,
        ``removed`` or ``changed``), ``before`` and ``after``: the key's rows without the key, in an array (a
        join or a list has several), null where there are none.

    Raises:
        FlinkstyleError: ``STATE_READ`` if the two have different keys.
    """
    from pyspark.sql import functions as F

    keys = keys_of(before)
    if [before.schema[name].dataType.simpleString() for name in keys] != [
        after.schema[name].dataType.simpleString() for name in keys if name in after.columns
    ]:
        raise STATE_READ_NOT_COMPARABLE.error(
            before=before.schema.simpleString(), after=after.schema.simpleString()
        )
    old, new = _by_key(before, keys, "before"), _by_key(after, keys, "after")
    pairs = [(F.col(f"before_{name}"), F.col(f"after_{name}"), name) for name in keys]
    joined = old.join(new, on=[mine.eqNullSafe(theirs) for mine, theirs, _ in pairs], how="full")
    change = (
        F.when(F.col("after").isNull(), F.lit("removed"))
        .when(F.col("before").isNull(), F.lit("added"))
        .when(F.col("before_text") != F.col("after_text"), F.lit("changed"))
    )
    shown = [F.coalesce(mine, theirs).alias(name) for mine, theirs, name in pairs]
    return joined.select(*shown, change.alias("change"), "before", "after").where("change IS NOT NULL")


def changes_of_any_key(before: DataFrame, after: DataFrame) -> DataFrame:
    """Return the same for keys whose schema may differ: then keys are compared as JSON, and all differ."""
    from pyspark.sql import functions as F

    if before.schema["key"].dataType.simpleString() != after.schema["key"].dataType.simpleString():
        text = F.to_json("key", {"ignoreNullFields": "false"})
        before, after = before.withColumn("key", text), after.withColumn("key", text)
    return state_changes(before, after)


def can_be_counted(before: DataFrame, after: DataFrame) -> bool:
    """Return whether ``counts_of`` can compare their keys: of one type, equal only if they are the same."""
    kinds = [[state.schema[name].dataType for name in keys_of(state)] for state in (before, after)]
    names = [[kind.simpleString() for kind in of] for of in kinds]
    return names[0] == names[1] and all(map(_is_equal, kinds[0]))


def counts_of(before: DataFrame, after: DataFrame, missing: Column) -> tuple[Counts, bool]:
    """Count which keys changed, where both have a row for each, and return whether something is missing.

    A key that is there twice counts twice. Each state is read once. Keys and values are compared by two
    hashes of 64 bits each: no more than these is kept and sorted of a row, on disk where it does not fit.

    Args:
        before: Keys and values.
        after: The same, later.
        missing: Whether a row of ``after`` lacks a value that it must have.
    """
    from pyspark.sql import functions as F

    def hashes(state: DataFrame, row: list[Column], side: str, *more: Column) -> DataFrame:
        parts = {"key": _key_parts(state), "row": row}
        named = [
            one.alias(f"{side}_{what}_{number}")
            for what, columns in parts.items()
            for number, one in enumerate(_digest(columns))
        ]
        return state.select(*named, *more)

    def same(what: str) -> list[Column]:
        return [F.col(f"before_{what}_{number}") == F.col(f"after_{what}_{number}") for number in (0, 1)]

    old_row, new_row = _compared(before, after)
    old, new = hashes(before, old_row, "before"), hashes(after, new_row, "after", missing.alias("missing"))
    was, is_now = F.col("before_key_0").isNotNull(), F.col("after_key_0").isNotNull()
    kinds = {"added": ~was, "removed": ~is_now, "changed": was & is_now & ~reduce(and_, same("row"))}
    sums = [F.count("*").alias("all"), *(F.count_if(kind).alias(name) for name, kind in kinds.items())]
    joined = old.join(new, on=same("key"), how="full")
    [found] = joined.agg(*sums, F.max("missing").alias("missing")).collect()
    number = {name: int(found[name]) for name in kinds}
    return Counts(**number, kept=int(found["all"]) - sum(number.values())), bool(found["missing"])


def digest_of(state: DataFrame) -> Row:
    """Return how many rows a state has, and sums that differ where any row does; their order does not count.

    Of each row two hashes of 64 bits are added up in halves, which is exact for two thousand million rows.
    """
    from pyspark.sql import functions as F

    row, _ = _compared(state, state)
    halves = [
        half
        for one in _digest([*_key_parts(state), *row])
        for half in (one.bitwiseAND(_HALF), F.shiftright(one, 32))
    ]
    [found] = state.agg(F.count("*"), *map(F.sum, halves)).collect()
    return found


def _key_parts(state: DataFrame) -> list[Column]:
    from pyspark.sql import functions as F

    return [part for name in keys_of(state) for part in _parts(F.col(name), state.schema[name].dataType)]


def _compared(before: DataFrame, after: DataFrame) -> tuple[list[Column], list[Column]]:
    """Return the columns of each that are compared; texts where their types differ."""
    from pyspark.sql import functions as F

    values, others = (
        {name: state.schema[name].dataType for name in state.columns if name not in {*_KEYS, _PLACE}}
        for state in (before, after)
    )
    if {name: kind.simpleString() for name, kind in values.items()} != {
        name: kind.simpleString() for name, kind in others.items()
    }:
        return [as_text(*values)], [as_text(*others)]
    row = [one for name, kind in values.items() for one in _parts(F.col(name), kind)]
    return row, row


def _digest(columns: list[Column]) -> tuple[Column, Column]:
    """Return two hashes that differ where the columns do, also by which are null: Spark's skips nulls."""
    from pyspark.sql import functions as F

    nulls = [one.isNull() for one in columns]
    return F.xxhash64(*columns, *nulls), F.xxhash64(F.lit(1), *nulls, *columns)


def _parts(column: Column, kind: DataType) -> list[Column]:
    """Return the parts of a column that are compared: its fields, each as it is or as a text."""
    if kind.typeName() != "struct":
        return [_comparable(column, kind)]
    fields = cast("StructType", kind).fields
    return [column.isNull(), *(_comparable(column.getField(one.name), one.dataType) for one in fields)]


def _comparable(column: Column, kind: DataType) -> Column:
    """Return it as it is if values of its type have one hash only if they are the same, else as a text."""
    if kind.typeName() != "struct" and _is_equal(kind):
        return column
    if kind.typeName() in ("float", "double"):
        return column.cast("string")
    return as_text(column.alias("c"))


def as_text(*columns: Column | str) -> Column:
    """Return columns as one text: the same for equal values, and for these only."""
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*columns), _WHOLE)


def _is_equal(kind: DataType) -> bool:
    """Return whether two values of a type are equal for Spark only if they are the same."""
    if kind.typeName() == "struct":
        return all(_is_equal(field.dataType) for field in cast("StructType", kind).fields)
    return kind.simpleString() in _EQUAL or kind.typeName() in ("decimal", "timestamp_ntz")


def _by_key(state: DataFrame, keys: list[str], side: str) -> DataFrame:
    """Return a row per key, with its rows as they are and as one text to compare by: maps do not compare."""
    from pyspark.sql import functions as F

    values = [name for name in state.columns if name not in {*keys, _PLACE}]
    row: Column = F.struct(*values)
    rows = state.groupBy(*[F.col(name).alias(f"{side}_{name}") for name in keys])
    text = F.concat_ws(",", F.array_sort(F.collect_list(as_text(*values))))
    return rows.agg(F.collect_list(row).alias(side), text.alias(f"{side}_text"))
