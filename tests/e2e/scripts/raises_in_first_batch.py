"""A new version whose first batch raises."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import orders_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_batch(totals: DataFrame, batch_id: int, output: str) -> None:
    raise RuntimeError(f"the new version is broken: batch {batch_id} raised")


orders_job.write_batch = write_batch
orders_job.main()
