"""Spark's progress as heartbeats repeat it; the text is what Spark 4.2 renders."""

# ruff: noqa: ANN401
from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from airflow_flinkstyle.agent.spark.starts import newest_pace, pace_of
from airflow_flinkstyle.kafka.login import VARIABLE
from airflow_flinkstyle.protocol.query_records import MOST_CHARACTERS, MOST_PARTS, MOST_SOURCES

KAFKA = {
    "description": "KafkaV2[Subscribe[orders]]",
    "startOffset": {"orders": {"0": 5, "1": 9}},
    "endOffset": {"orders": {"0": 15, "1": 9}},
    "latestOffset": {"orders": {"0": 40, "1": 12}},
    "numInputRows": 10,
}
RATE = {"description": "RateStreamV2[rowsPerSecond=20]", "endOffset": 7, "latestOffset": 8}


def a_progress(**changes: Any) -> dict[str, Any]:
    said = {
        "batchId": 7,
        "timestamp": "2026-11-23T10:00:00.000Z",
        "durationMs": {"triggerExecution": 420, "addBatch": 300},
        "numInputRows": 10,
        "inputRowsPerSecond": 20.04,
        "processedRowsPerSecond": 23.8095,
        "eventTime": {"watermark": "2026-11-23T09:59:00.000Z"},
        "stateOperators": [{"numRowsTotal": 7}, {"numRowsTotal": 3}],
        "sources": [KAFKA, RATE],
    }
    return {**said, **changes}


def test_lag_is_what_the_batch_left_unread_in_kafka_and_unknown_elsewhere():
    pace = pace_of(a_progress())
    assert [source.lag_records for source in pace.sources] == [25 + 3, None]
    assert pace.lag_records == 28
    assert (pace.batch_id, pace.batch_ms, pace.rows, pace.state_rows) == (7, 420, 10, 10)
    assert pace.parts_ms == {"addBatch": 300}
    assert (pace.input_rows_per_s, pace.processed_rows_per_s) == (20.0, 23.8)
    assert pace.begun_at_ms - (pace.watermark_ms or 0) == 60_000


def test_what_spark_cannot_say_is_left_out():
    said = a_progress(
        inputRowsPerSecond="NaN", eventTime={"watermark": "1970-01-01T00:00:00.000Z"}, sources=[RATE]
    )
    del said["processedRowsPerSecond"], said["stateOperators"]
    pace = pace_of(said)
    assert (pace.input_rows_per_s, pace.processed_rows_per_s) == (None, None)
    assert (pace.watermark_ms, pace.state_rows, pace.lag_records) == (None, 0, None)


def test_a_query_of_many_sources_does_not_make_the_heartbeat_grow():
    long = {"triggerExecution": 900} | {f"part {number:02}": number for number in range(100)}
    pace = pace_of(a_progress(sources=[{**KAFKA, "description": "x" * 5000}] * 100, durationMs=long))
    assert len(pace.parts_ms) == MOST_PARTS
    assert len(pace.sources) == MOST_SOURCES
    assert {len(source.description) for source in pace.sources} == {MOST_CHARACTERS}


def test_no_secret_is_repeated(monkeypatch: Any):
    login = {"kafka.sasl.jaas.config": 'x required password="s3cret-word";'}
    monkeypatch.setenv(VARIABLE, json.dumps({"old": login}))
    pace = pace_of(a_progress(sources=[{**RATE, "description": "Custom[password=s3cret-word]"}]))
    assert pace.sources[0].description == "Custom[password=********]"


def test_no_heartbeat_fails_for_a_progress_that_cannot_be_read():
    def query(text: str) -> Any:
        return a_query(SimpleNamespace(json=lambda: text))

    def a_query(progress: Any) -> Any:
        return SimpleNamespace(_jsq=SimpleNamespace(lastProgress=lambda: progress))

    assert newest_pace(query(json.dumps(a_progress()))) == pace_of(a_progress())
    assert newest_pace(a_query(None)) is None
    for text in ("", "[]", "{}", '{"batchId": "x"}', json.dumps(a_progress(durationMs=3))):
        assert newest_pace(query(text)) is None
