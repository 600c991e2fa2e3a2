"""What of a batch is written again, and who is told of it. The brokers are in the integration test."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks import left_open
from airflow_flinkstyle.sinks.errors import OUTPUT_UNKNOWN, ProducerFencedError, TransactionLeftOpenError
from airflow_flinkstyle.sinks.marker import Completion
from airflow_flinkstyle.sinks.readable_records import ReadableRecords
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.task import final_answer
from testbed.refusals import refuses

HEADERS = [("id", b"1"), ("none", None)]
FULL = ("out", b"value", b"key", -1, None, None, 0, HEADERS)
SHORT = ("out", b"value", b"key")


def there(*records: tuple[int, bytes | None, bytes | None, Any]) -> ReadableRecords:
    found = ReadableRecords()
    for partition, key, value, headers in records:
        found.add(partition, key, value, headers)
    return found


def test_record_that_is_there_is_left_out_as_often_as_it_is_there():
    found = there((0, b"key", b"value", HEADERS), (1, b"key", b"value", HEADERS))
    assert len(found) == 2
    assert list(found.missing([FULL, SHORT, FULL, FULL])) == [SHORT, FULL]
    assert list(found.missing([FULL])) == [FULL]  # nothing is left of it


def test_record_without_key_or_headers_is_the_one_that_a_consumer_gives_back():
    found = there((0, None, b"value", None), (0, b"key", None, None))
    records = [("out", b"value"), ("out", None, b"key"), ("out", b"value", b"key")]
    assert list(found.missing(records)) == records[2:]


def test_record_for_one_partition_is_not_taken_for_its_like_in_another():
    found = there((0, b"key", b"value", None))
    to_1, to_0 = ("out", b"value", b"key", 1), ("out", b"value", b"key", 0)
    assert list(found.missing([to_1, to_0, to_0])) == [to_1, to_0]


def test_task_hands_what_brokers_left_open_to_the_driver_and_is_tried_again_for_the_rest():
    def fails_with(error: Exception) -> list[object]:
        raise error

    unended = TransactionLeftOpenError.of("control", [2, 1])
    assert final_answer(lambda: fails_with(unended)) is unended
    fenced = ProducerFencedError("fenced", state_after="", remedy="")
    with pytest.raises(ProducerFencedError):
        final_answer(lambda: fails_with(fenced))
    assert unended.retryable, "the driver's own failure: the job is started again"
    assert "shards 1, 2" in str(unended)


def test_completion_keeps_where_the_output_ended_and_what_is_unsure():
    done = Completion(batch_id=3, records=5, shards=4, query_id="q", ends={0: 12, 11: -1}, unsure=True)
    assert Completion.from_bytes(done.to_bytes()) == done


@pytest.mark.parametrize(
    ("topic", "vary", "known"), [("out", False, "out"), ("out", True, None), (None, True, None)]
)
def test_topic_is_known_if_no_row_names_its_own(topic: str | None, *, vary: bool, known: str | None):
    cluster = KafkaCluster(name="out", config={"bootstrap.servers": "nowhere:1"})
    names = {"lineage": "line", "control_topic": "control", "run": "run"}
    assert SinkSettings(cluster=cluster, topic=topic, shards=1, topics_vary=vary, **names).only_topic == known


def test_output_whose_ends_brokers_do_not_tell_for_a_moment_is_not_taken_for_empty(
    monkeypatch: pytest.MonkeyPatch,
):
    """What readers have would be written to it again."""
    answers: list[dict[int, int] | None] = [None, {0: 7, 1: -1}, {0: 7, 1: 9}]
    monkeypatch.setattr(left_open, "output_ends", lambda _: answers.pop(0) if answers else None)
    cluster = KafkaCluster(name="out", config={"bootstrap.servers": "out:9092"})
    names = {"lineage": "orders", "control_topic": "control", "run": "r"}
    settings = SinkSettings(cluster=cluster, topic="out", shards=1, **names)
    assert left_open._ends_now(settings) == {0: 7, 1: 9}
    monkeypatch.setattr(left_open, "_TIMEOUT_S", 0.3)
    with refuses(OUTPUT_UNKNOWN, match="do not tell where it ends") as refused:
        left_open._ends_now(settings)
    assert refused.value.retryable
