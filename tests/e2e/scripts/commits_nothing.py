"""A new version that runs and never commits a batch."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import orders_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_batch(totals: DataFrame, batch_id: int, output: str) -> None:
    while True:
        time.sleep(1)


orders_job.write_batch = write_batch
orders_job.main()
