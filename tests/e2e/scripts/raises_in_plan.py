"""A new version whose plan raises on the executors, before its sink is reached."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import orders_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

find_orders = orders_job.orders_in


def refuse(customer: str) -> str:
    raise RuntimeError("the new version is broken: a row raised")


def orders_in(records: DataFrame) -> DataFrame:
    return find_orders(records).withColumn("customer", F.udf(refuse)("customer"))


orders_job.orders_in = orders_in
orders_job.main()
