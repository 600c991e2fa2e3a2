"""No second attempt of a task beside the first: each would fence the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.sinks.errors import SINK_CONFIG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def require_no_speculation(session: SparkSession) -> None:
    """Check that Spark does not run tasks speculatively.

    Raises:
        FlinkstyleError: ``SINK_CONFIG`` if it does.
    """
    if session.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise SINK_CONFIG.with_text(
            "spark.speculation was expected to be off, found that it is on: two attempts of a shard "
            "would fence each other for ever.",
            state_after="Nothing was written.",
            remedy="Set spark.speculation=false.",
        )
