"""What a function made of an operator's state: called once, checked, and kept.

What is written and what is compared must be the same rows, and a plan that is run again may give others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from airflow_flinkstyle.state.edits import may_change_schema
from airflow_flinkstyle.state.errors import (
    STATE_TRANSFORM_NO_STRUCTS,
    STATE_TRANSFORM_NULL,
    STATE_TRANSFORM_PREFIX,
    STATE_TRANSFORM_SCHEMA,
    STATE_TRANSFORM_TWICE,
    transform_failed,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.types import StructType

    from airflow_flinkstyle.state.edits import Change
    from airflow_flinkstyle.state.query_copy import QueryCopy

COLUMNS: Final = ["key", "value"]
PREFIX: Final = "_numColsPrefixKey"
"""Hidden column of Spark: how many of a key's first fields it looks keys up by; 0 for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a function has returned."""

    state: DataFrame
    key: StructType
    """With what may be null as in the store's schema; that of the DataFrame depends on the plan."""
    value: StructType
    has_new_schema: bool

    @classmethod
    def of(cls, before: QueryCopy, store: Row, operator: int, change: Change) -> Kept:
        """Call a function once, and check what it returns."""
        state = before.load(operator, {}).select(*COLUMNS)
        new = change(state)
        where = before.query.name, operator
        if may_change_schema(change):
            _require_structs(new, *where)
        else:
            _require_types(state, new, *where)
        key, value = (_fields(state, new, name) for name in COLUMNS)
        has_new_schema = (key, value) != tuple(state.schema[name].dataType for name in COLUMNS)
        if store[PREFIX] and key != state.schema["key"].dataType:
            raise STATE_TRANSFORM_PREFIX.error(
                query=where[0],
                operator=operator,
                name=store["operatorName"],
                prefix=store[PREFIX],
                found=key.simpleString(),
            )
        try:
            # A block that is lost fails the job, where a plan that is run again could give other rows.
            kept = new.select(*COLUMNS).localCheckpoint(eager=True)
        except Exception as error:  # what Spark makes of an error in a user's function depends on its kind
            raise transform_failed(*where, str(error)) from error
        found = cls(state=kept, key=key, value=value, has_new_schema=has_new_schema)
        _require_keys(kept, *where)
        _require_no_null(found, *where)
        return found


def _require_types(state: DataFrame, new: DataFrame, query: str, operator: int) -> None:
    if sorted(new.columns) != COLUMNS or any(
        new.schema[name].dataType.simpleString() != state.schema[name].dataType.simpleString()
        for name in COLUMNS
    ):
        raise STATE_TRANSFORM_SCHEMA.error(
            query=query,
            operator=operator,
            expected=state.schema.simpleString(),
            found=new.schema.simpleString(),
        )


def _require_structs(new: DataFrame, query: str, operator: int) -> None:
    if sorted(new.columns) != COLUMNS or any(
        new.schema[name].dataType.typeName() != "struct" for name in COLUMNS
    ):
        raise STATE_TRANSFORM_NO_STRUCTS.error(
            query=query, operator=operator, found=new.schema.simpleString()
        )


def _fields(state: DataFrame, new: DataFrame, name: str) -> StructType:
    """Return the schema of key or value: a field that stays is null as before, a new one may be.

    Spark accepts a store's field that may be null where the query's may not.
    """
    from pyspark.sql.types import StructField, StructType

    def merged(old: StructType, found: StructType) -> StructType:
        known = {field.name: field for field in old.fields}
        fields = []
        for field in found.fields:
            kind, before = field.dataType, known.get(field.name)
            if before is None or type(before.dataType) is not type(kind):
                fields.append(StructField(field.name, kind, nullable=True))
            elif isinstance(kind, StructType) and isinstance(before.dataType, StructType):
                fields.append(StructField(field.name, merged(before.dataType, kind), before.nullable))
            else:
                same = before.dataType.simpleString() == kind.simpleString()
                fields.append(StructField(field.name, before.dataType if same else kind, before.nullable))
        return StructType(fields)

    old, found = (cast("StructType", one.schema[name].dataType) for one in (state, new))
    return merged(old, found)


def _require_keys(kept: DataFrame, query: str, operator: int) -> None:
    if (nothing := kept.where("key IS NULL OR value IS NULL").head()) is not None:
        raise STATE_TRANSFORM_NULL.error(
            query=query, operator=operator, field="key and value", key=str(nothing)
        )
    if (twice := kept.groupBy("key").count().where("count > 1").head()) is not None:
        raise STATE_TRANSFORM_TWICE.error(
            query=query, operator=operator, key=str(twice["key"]), count=twice["count"]
        )


def _require_no_null(kept: Kept, query: str, operator: int) -> None:
    from pyspark.sql import functions as F

    for column, kind in (("key", kept.key), ("value", kept.value)):
        # Of select("value.*") every field may be null as soon as the struct may be.
        for field in kind.fields:
            if field.nullable or field.dataType.typeName() == "void":
                continue
            found = kept.state.where(F.col(column).getField(field.name).isNull()).head()
            if found is not None:
                raise STATE_TRANSFORM_NULL.error(
                    query=query, operator=operator, field=f"{column}.{field.name}", key=str(found["key"])
                )
