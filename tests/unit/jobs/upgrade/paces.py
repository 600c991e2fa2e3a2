"""What a heartbeat says of a query's pace."""

from __future__ import annotations

from airflow_flinkstyle.protocol.query_records import Pace, SourcePace
from airflow_flinkstyle.types import BatchId

KAFKA = "KafkaV2[Subscribe[orders]]"


def a_pace(batch: int = 1, *, rate: float | None = 100.0, lag: int | None = 0) -> Pace:
    return Pace(
        batch_id=BatchId(batch),
        begun_at_ms=1000 * batch,
        batch_ms=100,
        rows=100,
        input_rows_per_s=rate,
        processed_rows_per_s=1000.0,
        watermark_ms=None,
        state_rows=0,
        sources=(SourcePace(description=KAFKA if lag is not None else "Rate", lag_records=lag),),
    )
