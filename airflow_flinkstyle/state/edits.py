"""Changes of state that are asked for again and again, for ``transform_state``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.state.errors import state_read_bad_condition, transform_no_field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame


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
    """Give fields of values other values."""

    values: Mapping[str, str]
    """Field of ``value`` -> expression in SQL over ``key`` and ``value``, such as ``value.sum * 100``."""
    where: str = "true"
    """Condition in SQL: for which keys."""

    def __call__(self, state: DataFrame) -> DataFrame:
        """Return the state with these values, cast to the types that the fields have."""
        from pyspark.sql import functions as F

        chosen, value = _condition(state, self.where), F.col("value")
        kinds = {field.name: field.dataType for field in state.select("value.*").schema.fields}
        for name, expression in self.values.items():
            if name not in kinds:
                raise transform_no_field(name, sorted(kinds))
            _condition(state, expression)
            new = F.expr(expression).cast(kinds[name])
            value = value.withField(name, F.when(chosen, new).otherwise(F.col("value").getField(name)))
        return state.withColumn("value", value)


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
