"""A savepoint root as the Savepoints page finds it: jobs in every state, and names that want to be markup."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.history import History, Sample
from airflow_flinkstyle.protocol.query_records import Pace, SourcePace
from airflow_flinkstyle.savepoint.blobs.pins import pin
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.types import BatchId
from tests.seeming_jobs import SeemingJob
from tests.unit.cli.kafka_savepoints import take_on_kafka

if TYPE_CHECKING:
    from pathlib import Path

MARKUP = "<img src=x onerror=globalThis.hacked=1><script>globalThis.hacked=1</script>"
HOSTILE_FOLDER = "<script>globalThis.hacked=1<&script>"
"""A folder below the root that looks like a job's; a slash would end its name."""
_MINUTE_MS = 60_000


def fill(folder: Path) -> SeemingJob:
    """Leave three jobs below ``folder/root``; return the one that runs, with three savepoints."""
    begun_at_ms = now_ms() - 90 * _MINUTE_MS
    orders = SeemingJob(folder, begun_at_ms=begun_at_ms, host="worker-7", claim_key="start_job/manual")
    for number in (1, 2, 3):
        take_on_kafka(
            orders.repository,
            folder / f"checkpoint-{number}",
            f"sp-{number}",
            {"orders": {0: 1000 * number, 1: 900 * number}},
            taken_at_ms=begun_at_ms + 25 * number * _MINUTE_MS,
        )
    check_savepoint(orders.repository, "sp-3", level="quick", by="a test")
    pin(orders.repository, "sp-1", reason=MARKUP, by="a test", at_ms=begun_at_ms)
    orders.board.write_history(_history(begun_at_ms // 1000), seen="")
    orders.seem_running(pace=_pace(now_ms()))
    failed = SeemingJob(folder, "payments", begun_at_ms, host=MARKUP, claim_key=MARKUP)
    failed.seem_running(state="failed", error=("SCRIPT_FAILED", MARKUP))
    SeemingJob(folder, "closed-job", begun_at_ms).seem_running(state="closed")
    (folder / "root" / HOSTILE_FOLDER / "runs").mkdir(parents=True)
    (folder / "root" / HOSTILE_FOLDER / "runs" / "x.json").write_text("{}")
    return orders


def _pace(at_ms: int) -> Pace:
    return Pace(
        batch_id=BatchId(4),
        begun_at_ms=at_ms,
        batch_ms=840,
        rows=1200,
        input_rows_per_s=1234.5,
        processed_rows_per_s=2345.6,
        watermark_ms=None,
        state_rows=5000,
        sources=(SourcePace(description=f"KafkaV2[Subscribe[{MARKUP[:40]}]]", lag_records=321),),
    )


def _history(begun_at_s: int) -> History:
    """An hour and a half with a backlog that was worked off."""
    return History().with_samples(
        Sample(
            at_s=begun_at_s + 60 * minute,
            input_rows_per_s=1000.0 + 10 * (minute % 7),
            processed_rows_per_s=1500.0 + 20 * (minute % 5),
            batch_ms=700 + 40 * (minute % 4),
            lag_records=max(0, 9000 - 150 * minute),
        )
        for minute in range(90)
    )
