"""Two runs of one query, compared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.agent.spark.compare.rows import compare_rows
from airflow_flinkstyle.agent.spark.compare.states import compare_states

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_flinkstyle.agent.core.spark import RunsToCompare
    from airflow_flinkstyle.protocol.comparison_records import ComparedQuery

_LEAST_PARTITIONS: Final = 4


def compare(spark: SparkSession, runs: RunsToCompare) -> ComparedQuery:
    """Compare rows and state of two runs of a query.

    Args:
        spark: A session of nobody else; its settings are changed.
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
    states, untested = compare_states(spark, runs)
    return replace(found, states=states, untested=(*found.untested, *untested))
