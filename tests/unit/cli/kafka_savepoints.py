"""Savepoints of a query that reads Kafka, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.storage.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

_HEADER = '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}'


def take_on_kafka(
    repository: SavepointRepository,
    checkpoint: Path,
    savepoint_id: str,
    offsets: Mapping[str, Mapping[int, int]],
    *,
    cluster_id: str = "c-1",
    topic_id: str = "id-1",
    taken_at_ms: int = 1,
    generation: int = 1,
) -> None:
    """Take a savepoint of query ``totals``, whose only source stands at these offsets."""
    files = {
        "metadata": '{"id":"0b0b0b0b-0000-4000-8000-000000000000"}',
        "offsets/0": f"v1\n{_HEADER}\n{json.dumps(offsets)}",
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, content in files.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(content)
    log = KafkaLog(cluster_id=cluster_id, topic_ids=dict.fromkeys(offsets, topic_id), log_range={})
    label = SavepointLabel(
        savepoint_id=savepoint_id,
        taken_at_ms=taken_at_ms,
        spark_version="4.2.0",
        taken_from_generation=generation,
    )
    source = QuerySource(name="totals", checkpoint=LocalStore(checkpoint), kafka={"0": log})
    take_savepoint(repository, [source], label)
