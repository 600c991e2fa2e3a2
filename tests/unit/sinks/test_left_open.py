"""What of a batch is written again, and who is told of it. The brokers are in the integration test."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_flinkstyle.kafka.fingerprints import fingerprint
from airflow_flinkstyle.sinks.errors import ProducerFencedError, TransactionLeftOpenError
from airflow_flinkstyle.sinks.marker import NOTHING_YET, Completion, Marker
from airflow_flinkstyle.sinks.shard import missing
from airflow_flinkstyle.sinks.task import final_answer

HEADERS = [("id", b"1"), ("none", None)]
FULL = ("out", b"value", b"key", -1, None, None, 0, HEADERS)
SHORT = ("out", b"value", b"key")


def test_record_that_is_there_is_left_out_as_often_as_it_is_there():
    there = Counter({fingerprint(b"key", b"value", HEADERS, None): 2})
    assert list(missing([FULL, SHORT, FULL, FULL], there, "out")) == [SHORT, FULL]
    assert list(missing([FULL], there, "out")) == [FULL]  # nothing is left of it


def test_record_without_key_or_headers_is_the_one_that_a_consumer_gives_back():
    there = Counter({fingerprint(None, b"value", (), None): 1, fingerprint(b"key", None, (), None): 1})
    records = [("out", b"value"), ("out", None, b"key"), ("out", b"value", b"key")]
    assert list(missing(records, there, "out")) == records[2:]


def test_records_of_another_topic_are_all_written():
    there = Counter({fingerprint(b"key", b"value", (), None): 1})
    assert list(missing([("other", b"value", b"key"), SHORT], there, "out")) == [("other", b"value", b"key")]


def test_batch_that_is_written_for_the_first_time_is_not_looked_at():
    records = iter([SHORT])
    assert missing(records, Counter(), "out") is records


def test_task_hands_what_brokers_left_open_to_the_driver_and_is_tried_again_for_the_rest():
    def fails_with(error: Exception) -> list[object]:
        raise error

    left_open = TransactionLeftOpenError.of("control", [2, 1])
    assert final_answer(lambda: fails_with(left_open)) is left_open
    fenced = ProducerFencedError("fenced", state_after="", remedy="")
    with pytest.raises(ProducerFencedError):
        final_answer(lambda: fails_with(fenced))
    assert left_open.retryable, "the driver's own failure: the job is started again"
    assert "shards 1, 2" in str(left_open)


def test_stored_records_keep_what_is_unsure_and_where_the_output_ended():
    unsure = Marker(batch_id=3, records=5, digest=77, plan="4-x", run="run", unsure=True)
    assert Marker.from_bytes(unsure.to_bytes()) == unsure
    assert not Marker.from_bytes(NOTHING_YET.to_bytes()).unsure
    done = Completion(batch_id=3, records=5, shards=4, query_id="q", ends={0: 12, 11: 7})
    assert Completion.from_bytes(done.to_bytes()).ends == {0: 12, 11: 7}
