"""What a heartbeat says of a query's pace."""

from __future__ import annotations

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import CommittedGroup, Pace, QueryStatus, SourcePace
from airflow_flinkstyle.protocol.records import Heartbeat
from airflow_flinkstyle.types import BatchId, Incarnation

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


def a_beat(pace: Pace | None = None, *, topics: dict[str, int] | None = None, at_ms: int = 0) -> Heartbeat:
    group = CommittedGroup(
        group="g",
        batch_id=None,
        offsets=Offsets({}),
        lag=topics or {},
        commits_succeeded=0,
        commits_failed=0,
        commits_superseded=0,
        failure=None,
    )
    orders = QueryStatus(
        query_id="q",
        batch_id=BatchId(1),
        batch_committed_at_ms=0,
        sources={},
        groups={"0": group} if topics is not None else {},
        pace=pace,
    )
    return Heartbeat(
        incarnation=Incarnation(1),
        state="running",
        beat=1,
        written_at_ms=at_ms,
        spark_version="4.2.0",
        application_id="app",
        queries={"orders": orders},
    )
