"""Common changes of state, for ``transform_state``.

A field is named by its path: ``sum`` or ``value.sum``, ``key.customer``, ``groupState.total``.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from airflow_flinkstyle.state.errors import (
    STATE_TRANSFORM_DROPPED_AND_CHANGED,
    STATE_TRANSFORM_FIELD_THERE,
    STATE_TRANSFORM_NOT_READY_MADE,
    STATE_TRANSFORM_NOT_WIDER,
    STATE_TRANSFORM_TABLE,
    state_read_bad_condition,
    transform_no_field,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

    Fields = list[tuple[str, Column]]
    """The fields of a struct, in their order: name and value."""

Change = Callable[["DataFrame"], "DataFrame"]
"""From an operator's state to its new one: columns ``key`` and ``value``, structs."""

OperatorChange = Change | Mapping[str, Change]
"""Of all states of an operator, or by the side of a join, or the variable of a transformWithState."""
Given = Change | Sequence[Change] | Mapping[str, Change | Sequence[Change]]
"""The same as users write it: several changes are applied one after the other."""


@dataclass(frozen=True, slots=True)
class DropKeys:
    """Forget keys: the query treats them as new when they come again."""

    where: str
    """Condition in SQL over ``key`` and ``value``: what is dropped, such as ``key.customer = 'c1'``."""

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return the state without them; a condition that is null drops nothing."""
        from pyspark.sql import functions as F

        return state.where(~F.coalesce(_condition(state, self.where), F.lit(False)))


@dataclass(frozen=True, slots=True)
class SetValues:
    """Give fields other values."""

    values: Mapping[str, str]
    """Field -> expression in SQL over ``key`` and ``value``, such as ``value.sum * 100``."""
    where: str = "true"
    """Condition in SQL: for which keys."""

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return the state with these values, cast to the types that the fields have."""
        from pyspark.sql import functions as F

        chosen = _condition(state, self.where)
        given = {
            path: F.when(chosen, _condition(state, text).cast(_kind(state, path))).otherwise(
                _column(state, path)
            )
            for path, text in self.values.items()
        }
        # New columns first: no expression may read what another one sets.
        beside = [(f"set {number}", ".".join(_split(state, path))) for number, path in enumerate(given)]
        columns = [value.alias(name) for value, (name, _) in zip(given.values(), beside, strict=True)]
        new = state.select("*", *columns)
        for column, path in beside:
            new = _with(new, path, F.col(f"`{column}`"))
        return new.drop(*[column for column, _ in beside])


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a field to keys or values, for a query that keeps more than before.

    Spark finds the fields of a state by their places: put it where the new version has it.
    """

    name: str
    """Field."""
    default: str
    """Expression in SQL over ``key`` and ``value``, such as ``CAST(0 AS BIGINT)``; its type is used."""
    before: str | None = None
    """The field goes before this one; None: it is the last."""
    new_schema: ClassVar[bool] = True

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return the state with the field."""
        value = _condition(state, self.default)

        def put(name: str, fields: Fields) -> Fields:
            known = [known for known, _ in fields]
            if name in known:
                raise STATE_TRANSFORM_FIELD_THERE.error(name=name)
            at = len(fields) if self.before is None else _place(known, self.before)
            return [*fields[:at], (name, value), *fields[at:]]

        return _edited(state, self.name, put)


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Remove a field, for a query that keeps less than before."""

    name: str
    """Field."""
    new_schema: ClassVar[bool] = True

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return the state without the field."""
        return _edited(state, self.name, lambda name, fields: _replaced(fields, name, []))


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Give a field another name."""

    name: str
    """Field."""
    to: str
    """Its new name, without a path."""
    new_schema: ClassVar[bool] = True

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return the state with the name."""
        value = _column(state, self.name)

        def put(name: str, fields: Fields) -> Fields:
            if self.to in [known for known, _ in fields]:
                raise STATE_TRANSFORM_FIELD_THERE.error(name=self.to)
            return _replaced(fields, name, [(self.to, value)])

        return _edited(state, self.name, put)


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """Give a field a type that holds every value it has: an integer of more bytes, a longer decimal."""

    name: str
    """Field."""
    to: str
    """Type as SQL writes it, such as ``BIGINT`` or ``DECIMAL(38,2)``."""
    new_schema: ClassVar[bool] = True

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return the state with the type."""
        old, value = _kind(state, self.name), _column(state, self.name)
        new = _type(state, self.to)
        if not _is_wider(old, new):
            raise STATE_TRANSFORM_NOT_WIDER.error(
                name=self.name, old=old.simpleString(), new=new.simpleString()
            )
        return _with(state, self.name, value.cast(new))


@dataclass(frozen=True, slots=True)
class NewSchema:
    """A user's function whose result has another schema, which becomes the operator's."""

    change: Change
    new_schema: ClassVar[bool] = True

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return what the function does."""
        return self.change(state)


@dataclass(frozen=True, slots=True)
class FromTable:
    """Take the state from a table instead, for a job that begins with what another system has counted."""

    table: DataFrame
    """A column for each field of key and value, by its name; or columns ``key`` and ``value``, structs."""

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return the table's rows, cast to the types of the state.

        Raises:
            FlinkstyleError: ``STATE_TRANSFORM`` if the table has other columns than the state has fields.
        """
        from pyspark.sql import functions as F

        sides = {name: cast("StructType", state.schema[name].dataType).fields for name in state.columns}
        in_structs = sorted(self.table.columns) == sorted(state.columns)
        given = self.table.select(*[f"{name}.*" for name in sides]) if in_structs else self.table
        known = sorted(field.name for fields in sides.values() for field in fields)
        if sorted(given.columns) != known:
            raise STATE_TRANSFORM_TABLE.error(
                expected=", ".join(known), found=", ".join(sorted(given.columns))
            )
        # Field by field: Spark casts no struct to one with fields that may not be null.
        types = {
            side: cast("StructType", self.table.schema[side].dataType) if in_structs else given.schema
            for side in sides
        }
        columns = [
            F.struct(
                *[
                    _cast_whole(
                        F.col(side).getField(field.name) if in_structs else F.col(field.name),
                        types[side][field.name].dataType,
                        field,
                    ).alias(field.name)
                    for field in fields
                ]
            )
            for side, fields in sides.items()
        ]
        return self.table.select(*[one.alias(name) for one, name in zip(columns, sides, strict=True)])

    def __repr__(self) -> str:
        """Return it without the rows."""
        return f"FromTable({self.table.schema.simpleString()})"


def _cast_whole(given: Column, kind: DataType, field: StructField) -> Column:
    """Cast a column to the type of a field; fails at a value that the type does not hold whole.

    Spark's own cast drops fractions, and without ANSI wraps numbers and makes null of what it cannot read.
    """
    from pyspark.sql import functions as F

    names = (kind.simpleString(), field.dataType.simpleString())
    if names[0] == names[1]:
        return given
    held = given.cast(field.dataType)
    if kind.typeName() in ("string", "map"):  # the text of a value is not the only one; maps do not compare
        is_whole = given.isNull() | held.isNotNull()
    else:
        is_whole = given.eqNullSafe(held.cast(kind))
    value = F.concat(F.lit(f"{field.name} of the table, {names[0]} "), given.cast("string"))
    text = F.concat(value, F.lit(f", is no {names[1]}, as the state has: cast it yourself if that is meant"))
    return F.when(is_whole, held).otherwise(F.raise_error(text))


@dataclass(frozen=True, slots=True)
class DropOperatorState:
    """Remove an operator from the savepoint, for a query without it; later ones get the next lower number."""

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return no rows."""
        return state.limit(0)


@dataclass(frozen=True, slots=True)
class InTurn:
    """Several changes of one operator, one after the other."""

    steps: tuple[Change, ...]

    @property
    def new_schema(self) -> bool:
        """Whether one of them changes the schema."""
        return any(may_change_schema(step) for step in self.steps)

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return what the last returns."""
        for step in self.steps:
            state = step(state)
        return state


READY_MADE: Final = {
    kind.__name__: kind
    for kind in (DropKeys, SetValues, AddColumn, DropColumn, RenameColumn, WidenColumn, DropOperatorState)
}
"""Name -> change that can be given as data."""


def may_change_schema(change: Change) -> bool:
    """Return whether the result of a change may have another schema."""
    return bool(getattr(change, "new_schema", False))


def as_change(given: Change | Sequence[Change]) -> Change:
    """Return one change for several, which are applied one after the other.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if an operator is to be removed, and changed too.
    """
    if not isinstance(given, Sequence):
        return given
    if any(isinstance(step, DropOperatorState) for step in given) and len(given) > 1:
        raise STATE_TRANSFORM_DROPPED_AND_CHANGED.error()
    return given[0] if len(given) == 1 else InTurn(tuple(given))


def as_operator_change(given: Given) -> OperatorChange:
    """Return what users write as one change for each state; raises as ``as_change`` does."""
    if isinstance(given, Mapping):
        return {name: as_change(one) for name, one in given.items()}
    return as_change(given)


def as_data(change: Change) -> dict[str, Any]:
    """Return a ready-made change as JSON has it: its name under ``does``, and its fields."""
    return {"does": type(change).__name__, **asdict(cast("Any", change))}


def from_data(given: Mapping[str, Any]) -> Change:
    """Return the ready-made change that ``as_data`` wrote.

    Raises:
        FlinkstyleError: ``STATE_TRANSFORM`` if none has this name, or these fields.
    """
    fields = {name: value for name, value in given.items() if name != "does"}
    try:
        return cast("Change", READY_MADE[given["does"]](**fields))
    except (KeyError, TypeError) as error:
        raise STATE_TRANSFORM_NOT_READY_MADE.error(
            known=", ".join(READY_MADE), found=json.dumps(dict(given))
        ) from error


def described(change: OperatorChange) -> str:
    """Return a ready-made change as it is written, or a function's name and the digest of its source."""
    if isinstance(change, Mapping):
        return "; ".join(f"{name}: {described(one)}" for name, one in change.items())
    if isinstance(change, InTurn):
        return ", ".join(map(described, change.steps))
    if isinstance(change, NewSchema):
        return f"NewSchema({described(change.change)})"
    if not inspect.isfunction(change):
        return repr(change)
    try:
        source = inspect.getsource(change)
    except (OSError, TypeError):  # typed into a shell
        return change.__qualname__
    return f"{change.__qualname__} sha256:{hashlib.sha256(source.encode()).hexdigest()}"


def _split(state: DataFrame, path: str) -> tuple[str, ...]:
    """Return the path from a column of the state on; without a column, from the last one, the values."""
    parts, columns = tuple(path.split(".")), [name for name in state.columns if name != "partition_id"]
    return parts if parts[0] in columns and len(parts) > 1 else (columns[-1], *parts)


def _kind(state: DataFrame, path: str) -> DataType:
    """Return a field's type."""
    from pyspark.sql.types import StructType

    kind: DataType = state.schema
    for name in _split(state, path):
        fields = kind.fields if isinstance(kind, StructType) else []
        found = next((field for field in fields if field.name == name), None)
        if found is None:
            raise transform_no_field(path, [field.name for field in fields])
        kind = found.dataType
    return kind


def _column(state: DataFrame, path: str) -> Column:
    """Return a field's value."""
    from pyspark.sql import functions as F

    _ = _kind(state, path)
    first, *others = _split(state, path)
    found = F.col(first)
    for name in others:
        found = found.getField(name)
    return found


def _edited(state: DataFrame, path: str, edit: Callable[[str, Fields], Fields]) -> DataFrame:
    """Return the state with the fields that ``edit`` makes of those of the struct that holds the field."""
    from pyspark.sql import functions as F

    side, *around, name = _split(state, path)

    def rebuilt(value: Column, kind: StructType, around: Sequence[str]) -> Column:
        from pyspark.sql.types import StructType as Struct

        fields = [(field.name, value.getField(field.name)) for field in kind.fields]
        if not around:
            fields = edit(name, fields)
        else:
            at = _place([known for known, _ in fields], around[0])
            inner = kind.fields[at].dataType
            if not isinstance(inner, Struct):
                raise transform_no_field(path, [])
            fields[at] = (around[0], rebuilt(fields[at][1], inner, around[1:]))
        made = F.struct(*[column.alias(known) for known, column in fields])
        return F.when(value.isNotNull(), made)

    kind = cast("StructType", state.schema[side].dataType)
    return state.withColumn(side, rebuilt(F.col(side), kind, around))


def _with(state: DataFrame, path: str, value: Column) -> DataFrame:
    return _edited(state, path, lambda name, fields: _replaced(fields, name, [(name, value)]))


def _replaced(fields: Fields, name: str, by: Fields) -> Fields:
    at = _place([known for known, _ in fields], name)
    return [*fields[:at], *by, *fields[at + 1 :]]


def _place(known: list[str], name: str) -> int:
    if name not in known:
        raise transform_no_field(name, known)
    return known.index(name)


def _is_wider(old: DataType, new: DataType) -> bool:
    """Return whether a type holds every value of another: Spark's own rules of widening."""
    from pyspark.sql import types as T

    whole: dict[type[DataType], int] = {T.ByteType: 3, T.ShortType: 5, T.IntegerType: 10, T.LongType: 20}
    digits = whole.get(type(old))
    if isinstance(new, T.DecimalType):
        before, scale = (digits, 0) if digits is not None else (-1, 0)
        if isinstance(old, T.DecimalType):
            before, scale = old.precision - old.scale, old.scale
        return before >= 0 and new.precision - new.scale >= before and new.scale >= scale
    if digits is not None and isinstance(new, T.DoubleType):
        return not isinstance(old, T.LongType)
    if digits is not None:
        return whole.get(type(new), 0) > digits
    return isinstance(old, T.FloatType) and isinstance(new, T.DoubleType)


def _type(state: DataFrame, text: str) -> DataType:
    """Return the type that a text in SQL names."""
    from pyspark.sql import functions as F

    expression = f"CAST(NULL AS {text})"
    _ = _condition(state, expression)
    return state.select(F.expr(expression).alias("it")).schema["it"].dataType


def _condition(state: DataFrame, text: str) -> Column:
    """Return an expression that Spark understands over this state.

    Raises:
        FlinkstyleError: ``STATE_READ`` if it does not.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    try:
        state.select(F.expr(text))
    except PySparkException as error:
        raise state_read_bad_condition(text, str(error), state.schema.simpleString()) from error
    return F.expr(text)
