"""The rows of a batch, stored in the checkpoint before they are written: a replay finds the same ones.

``materialised/<lineage>/<batch>-<hash of its plan>/<attempt>`` holds the rows; the file ``chosen`` beside it
names the attempt that counts, and is created once. An attempt that was killed on the way, or comes second, is
never read. A folder goes once Spark has committed its batch, which is sure when the next one begins.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING

from airflow_flinkstyle.sinks.errors import SINK_CONFIG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_flinkstyle.sinks.running_query import RunningQuery

_FOLDER = "materialised"
_STATE = "state"
"""Spark makes it when it plans the first batch of a query with state, and of no other."""


def materialised(frame: DataFrame, query: RunningQuery, lineage: str, batch_id: int) -> DataFrame:
    """Return a batch's rows as they were stored when it was run first; they are stored if it is now.

    Args:
        frame: The rows as the plan makes them now; not looked at if they were stored before.
        query: Whose batch it is.
        lineage: Under which it is written.
        batch_id: The batch.

    Raises:
        FlinkstyleError: ``SINK_CONFIG`` if the query has state.
    """
    _require_no_state(query)
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


def _require_no_state(query: RunningQuery) -> None:
    """Refuse a query with state: a batch that is read from what was stored does not run its plan.

    So Spark would miss what the plan tells it: the watermark does not move, and the state stores report no
    commit. Then 4.2 fails behind the batch's commit; with state checkpoint ids it can never commit it.
    """
    if query.folders(_STATE):
        raise SINK_CONFIG.with_text(
            f"materialise expected a query without state, found {query.checkpoint}/{_STATE}: a batch "
            "that is run again is read from what was stored, so its plan would not tell Spark the state's "
            "commits and the watermark.",
            state_after="Nothing was written.",
            remedy="Leave out materialise, and what is not deterministic; or write the totals to a topic "
            "first, and do the rest in a query of its own, with materialise.",
        )
