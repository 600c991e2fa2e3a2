"""The state that a function returned for an operator: called once, checked, and kept.

What is written and what is compared must be the same rows, and a plan that is run again may return others.
"""

from __future__ import annotations

import operator as operators
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, cast

from airflow_flinkstyle.state.edits import may_change_schema
from airflow_flinkstyle.state.errors import (
    STATE_TRANSFORM_NO_STRUCTS,
    STATE_TRANSFORM_NULL,
    STATE_TRANSFORM_PREFIX,
    STATE_TRANSFORM_SCHEMA,
    STATE_TRANSFORM_SCHEMA_OF_SEVERAL,
    STATE_TRANSFORM_TWICE,
    transform_failed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from airflow_flinkstyle.state.edits import Change
    from airflow_flinkstyle.state.query_copy import QueryCopy
    from airflow_flinkstyle.state.stores import Operator, States

COLUMNS: Final = ["key", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a function has returned for a state."""

    state: DataFrame
    schema: Mapping[str, StructType]
    """By column, nullable as in the store; the nullability of the DataFrame depends on the plan."""
    has_new_schema: bool

    @classmethod
    def of(cls, before: QueryCopy, operator: Operator, states: States, name: str, change: Change) -> Kept:
        """Call a function once, and check what it returns."""
        from pyspark import StorageLevel

        state = states.read(before, name)
        new, where = change(state), (before.query.name, operator.number)
        if not hasattr(new, "columns"):
            raise STATE_TRANSFORM_NO_STRUCTS.error(query=where[0], operator=where[1], found=repr(new))
        if not may_change_schema(change):
            _require_types(state, new, *where)
        elif name:
            raise STATE_TRANSFORM_SCHEMA_OF_SEVERAL.error(query=where[0], operator=operator.number)
        else:
            _require_structs(new, *where)
        old = {column: cast("StructType", state.schema[column].dataType) for column in state.columns}
        schema = {column: _fields(state, new, column) for column in old} if may_change_schema(change) else old
        if operator.prefix and schema["key"] != old["key"]:
            raise STATE_TRANSFORM_PREFIX.error(
                query=where[0],
                operator=operator.number,
                name=operator.name,
                prefix=operator.prefix,
                found=schema["key"].simpleString(),
            )
        try:
            # A block that is lost fails the job: a plan that is run again could return other rows. Blocks are
            # on disk: writing and comparing them needs the heap.
            rows = states.settled(name, new.select(*state.columns))
            kept = rows.localCheckpoint(eager=True, storageLevel=StorageLevel.DISK_ONLY)
        except Exception as error:  # Spark raises several kinds for an error in a user's function
            raise transform_failed(*where, str(error)) from error
        return cls(state=kept, schema=schema, has_new_schema=schema != old)

    def missing(self) -> Column:
        """Return whether a value of a row is null that may not be."""
        return reduce(operators.or_, _nulls(self).values())

    def require_whole(self, unique: tuple[str, ...], query: str, operator: int) -> None:
        """Require that no value is null that may not be, and that no key is there twice.

        Raises:
            FlinkstyleError: ``STATE_TRANSFORM``, naming a key.
        """
        for field, is_null in _nulls(self).items():
            found = self.state.where(is_null).head()
            if found is not None:
                key = str(found if field == " and ".join(self.state.columns) else found["key"])
                raise STATE_TRANSFORM_NULL.error(query=query, operator=operator, field=field, key=key)
        twice = self.state.groupBy(*unique).count().where("count > 1").head() if unique else None
        if twice is not None:
            raise STATE_TRANSFORM_TWICE.error(
                query=query, operator=operator, key=str(twice["key"]), count=twice["count"]
            )


def _require_types(state: DataFrame, new: DataFrame, query: str, operator: int) -> None:
    if sorted(new.columns) != sorted(state.columns) or any(
        new.schema[name].dataType.simpleString() != state.schema[name].dataType.simpleString()
        for name in state.columns
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
    """Return the schema of key or value: a field that stays is as nullable as before, a new one is nullable.

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
                inner: DataType = merged(before.dataType, kind)
                fields.append(StructField(field.name, inner, before.nullable, before.metadata))
            else:
                same = before.dataType.simpleString() == kind.simpleString()
                inner = before.dataType if same else kind
                fields.append(StructField(field.name, inner, before.nullable, before.metadata))
        return StructType(fields)

    old, found = (cast("StructType", one.schema[name].dataType) for one in (state, new))
    return merged(old, found)


def _nulls(kept: Kept) -> dict[str, Column]:
    """Return by field, or all columns together, when one is null that may not be."""
    from pyspark.sql import functions as F

    columns = kept.state.columns
    missing = {" and ".join(columns): reduce(operators.or_, [F.col(name).isNull() for name in columns])}
    for column, kind in kept.schema.items():
        # Of select("value.*") every field may be null as soon as the struct may be.
        for field in kind.fields:
            if not (field.nullable or field.dataType.typeName() == "void"):
                missing[f"{column}.{field.name}"] = F.col(column).getField(field.name).isNull()
    return missing
