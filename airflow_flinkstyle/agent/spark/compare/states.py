"""Two runs of a query compared: their rows, then their states at the end.

States are compared key by key, by Spark's own reader of state.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.agent.spark.compare.rows import compare_rows
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.comparison_records import ComparedState
from airflow_flinkstyle.state.changes import as_text, state_changes
from airflow_flinkstyle.state.query_copy import QueryCopy, reads_state
from airflow_flinkstyle.state.reader import every_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from airflow_flinkstyle.agent.core.spark import RunOfQuery, RunsToCompare
    from airflow_flinkstyle.protocol.comparison_records import Compare, ComparedQuery

_SHOWN_CHARACTERS: Final = 1000
log = logging.getLogger(__name__)


def compare_states(
    spark: SparkSession, runs: RunsToCompare
) -> tuple[tuple[ComparedState, ...], tuple[str, ...]]:
    """Return each state of each operator, compared, and what could not be, one sentence each.

    Raises:
        Exception: Spark's or ours, if they cannot be read or compared: nothing is known of the state then.
    """
    if not any(entry.path.startswith("state/") for entry in runs.query.files):
        return (), ()
    if not reads_state(spark):
        return (), (f"Its state: Spark {spark.version} cannot read it.",)
    _ = spark.streams.active  # starts what Spark 4.2's reader reports to
    return tuple(_compared(spark, runs)), ()


def _compared(spark: SparkSession, runs: RunsToCompare) -> Iterator[ComparedState]:
    old, new = _copy(spark, runs, runs.old), _copy(spark, runs, runs.new)
    again = _copy(spark, runs, runs.again) if runs.again is not None else None
    states, theirs = every_state(old), every_state(new)
    if not states:
        raise ValueError("Spark's reader shows no operator of it.")
    for number, which in [*states, *(one for one in theirs if one not in states)]:
        name = " ".join(which.values())
        if (number, which) not in theirs:
            yield ComparedState(operator=number, which=name, removed=old.load(number, which).count())
        elif (number, which) not in states:
            yield ComparedState(operator=number, which=name, added=new.load(number, which).count())
        else:
            sides = [one.load(number, which) for one in (old, new, again) if one is not None]
            yield _of_three(sides, runs.asked, number, name)


def _of_three(sides: Sequence[DataFrame], asked: Compare, number: int, name: str) -> ComparedState:
    """Compare one state of the old and the new version, and of the old one once more, if that has run.

    Raises:
        ValueError: If two runs of the old version differ in more than the digits of floating-point numbers.
    """
    mine, new, *again = sides

    def compared(other: DataFrame, asked: Compare) -> ComparedState:
        return compared_state(mine, other, asked, operator=number, which=name)

    found = compared(new, asked)
    if not found.differs or not again or not compared(again[0], asked).differs:
        return found
    coarse = replace(asked, tolerance={"any": math.inf})
    if compared(again[0], coarse).differs:
        raise ValueError(f"Two runs of the old version differ in operator {number}, in more than digits.")
    found = compared(new, coarse)
    return found if found.differs else replace(found, not_deterministic=True)


def _copy(spark: SparkSession, runs: RunsToCompare, run: RunOfQuery) -> QueryCopy:
    return QueryCopy(
        spark=spark,
        savepoint_id=runs.savepoint_id,
        query=runs.query,
        location=run.copy,
        is_format_2=run.is_format_2,
    )


def compared_state(
    before: DataFrame, after: DataFrame, asked: Compare, *, operator: int, which: str = ""
) -> ComparedState:
    """Compare one state of two runs, as Spark's reader shows it; the largest tolerance counts for its values.

    What Spark calls a value's columns is its own (``sum``, ``avg``), so that no column of ``tolerance`` names
    one; whole numbers are equal or not.
    """
    from pyspark import StorageLevel

    changes = state_changes(before, after)
    if amount := max(asked.tolerance.values(), default=0.0):
        changes = _beyond(changes, amount)
    changes = changes.persist(StorageLevel.DISK_ONLY)
    try:
        counts = {row["change"]: row["count"] for row in changes.groupBy("change").count().collect()}
        return ComparedState(
            operator=operator,
            which=which,
            **{kind: counts.get(kind, 0) for kind in ("added", "removed", "changed")},
            samples=_samples(changes, asked.samples) if counts else (),
        )
    finally:
        changes.unpersist()


def _beyond(changes: DataFrame, amount: float) -> DataFrame:
    """Leave out the keys whose rows differ by no more than an amount."""
    from pyspark.sql import functions as F

    kind, other = (changes.schema[side].dataType for side in ("before", "after"))
    if kind.simpleString() != other.simpleString():
        return changes
    has_order = "map<" not in kind.simpleString()
    before, after = (F.array_sort(side) if has_order else F.col(side) for side in ("before", "after"))
    close = F.coalesce(_within(before, after, kind, amount), F.lit(False))
    return changes.where((F.col("change") != "changed") | ~close)


def _within(one: Column, other: Column, kind: DataType, amount: float) -> Column:
    """Return whether floating-point numbers differ by no more than an amount, and nothing else does."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, StructType

    match kind:
        case DoubleType() | FloatType():
            return one.eqNullSafe(other) | F.coalesce(F.abs(one - other) <= F.lit(amount), F.lit(False))
        case StructType():
            close = F.lit(True)
            for field in kind.fields:
                close = close & _within(one[field.name], other[field.name], field.dataType, amount)
        case ArrayType():
            pairs = F.zip_with(one, other, lambda mine, its: _within(mine, its, kind.elementType, amount))
            close = (F.size(one) == F.size(other)) & F.forall(pairs, lambda pair: pair)
        case _:
            # As JSON, as the changes were found: maps do not compare.
            mine, its = (as_text(side.alias("v")) for side in (one, other))
            return mine == its
    return F.when(one.isNull() | other.isNull(), one.isNull() & other.isNull()).otherwise(close)


def _samples(changes: DataFrame, samples: int) -> tuple[str, ...]:
    from pyspark.sql import functions as F

    # Not toJSON, which Spark 4 warns of.
    texts = changes.limit(samples).select(F.to_json(F.struct("*"))).collect()
    return tuple(text[:_SHOWN_CHARACTERS] for (text,) in texts)


_LEAST_PARTITIONS: Final = 4


def compare(spark: SparkSession, runs: RunsToCompare) -> ComparedQuery:
    """Compare rows and state of two runs of a query.

    Args:
        spark: A session that only this uses; its settings are changed.
        runs: Where they are. With a third one, what differs between both runs of the old version is not
            counted as a difference.
    """
    # Its default of 200 makes each step of a small comparison wait for 200 tasks.
    partitions = max(_LEAST_PARTITIONS, 2 * spark.sparkContext.defaultParallelism)
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spark.conf.set("spark.sql.caseSensitive", "true")
    found = compare_rows(spark, runs)
    if not runs.asked.state:
        return found
    try:
        states, untested = compare_states(spark, runs)
    except Exception as error:
        log.warning("The state of query %s was not compared", runs.query.name, exc_info=True)
        said = error.problem if isinstance(error, FlinkstyleError) else str(error)
        why = f"Its state: {said.partition(chr(10))[0]}"
        if found.verdict == "differs":
            return replace(found, untested=(*found.untested, why))
        # Equal rows alone are not "the same": what the state does shows in rows of later batches.
        return replace(found, not_comparable=why)
    return replace(found, states=states, untested=(*found.untested, *untested))
