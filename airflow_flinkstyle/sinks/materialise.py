"""The rows of a batch, stored in the checkpoint before they are written: a replay finds the same ones.

``materialised/<lineage>/<batch>-<hash of its plan>/<attempt>`` holds the rows; the file ``chosen`` beside it
names the attempt that counts, and is created once. An attempt that was killed on the way, or comes second, is
never read. A folder goes once Spark has committed its batch, which is sure when the next one begins.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_flinkstyle.sinks.running_query import RunningQuery

_FOLDER = "materialised"


def materialised(frame: DataFrame, query: RunningQuery, lineage: str, batch_id: int) -> DataFrame:
    """Return a batch's rows as they were stored when it was run first; they are stored if it is now.

    Args:
        frame: The rows as the plan makes them now; not looked at if they were stored before.
        query: Whose batch it is.
        lineage: Under which it is written.
        batch_id: The batch.
    """
    plan = hashlib.sha256(query.planned(batch_id).encode()).hexdigest()[:16]
    parent, kept = f"{_FOLDER}/{lineage}", f"{batch_id}-{plan}"
    for name in query.folders(parent):
        if int(name.partition("-")[0]) < batch_id:  # a driver that lags behind leaves the newer ones
            query.delete(f"{parent}/{name}")
    folder = f"{parent}/{kept}"
    if query.read(f"{folder}/chosen") is None:
        attempt = uuid.uuid4().hex
        frame.write.parquet(f"{query.checkpoint}/{folder}/{attempt}")
        query.create(f"{folder}/chosen", attempt)
    chosen = query.read(f"{folder}/chosen")
    return frame.sparkSession.read.schema(frame.schema).parquet(f"{query.checkpoint}/{folder}/{chosen}")
