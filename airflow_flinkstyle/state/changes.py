"""Which keys changed between two states of one operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.state.errors import STATE_READ_NOT_COMPARABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_PLACE: Final = "partition_id"
_KEYS: Final = frozenset({"key", "user_map_key"})


def keys_of(state: DataFrame) -> list[str]:
    """Return the columns that a row is found by."""
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
    """Return the same where the key's schema may differ: keys are compared as JSON then, and all differ."""
    from pyspark.sql import functions as F

    if before.schema["key"].dataType.simpleString() != after.schema["key"].dataType.simpleString():
        text = F.to_json("key", {"ignoreNullFields": "false"})
        before, after = before.withColumn("key", text), after.withColumn("key", text)
    return state_changes(before, after)


def _by_key(state: DataFrame, keys: list[str], side: str) -> DataFrame:
    """Return a row per key, with its rows as they are and as one text to compare by: maps do not compare."""
    from pyspark.sql import functions as F

    values = [name for name in state.columns if name not in {*keys, _PLACE}]
    row: Column = F.struct(*values)
    rows = state.groupBy(*[F.col(name).alias(f"{side}_{name}") for name in keys])
    text = F.concat_ws(",", F.array_sort(F.collect_list(F.to_json(row, {"ignoreNullFields": "false"}))))
    return rows.agg(F.collect_list(row).alias(side), text.alias(f"{side}_text"))
