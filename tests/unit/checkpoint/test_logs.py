from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.checkpoint import commit_log, metadata, offset_log
from airflow_flinkstyle.checkpoint.errors import CHECKPOINT_UNSUPPORTED, LogFormatError
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset
from testbed.refusals import refuses

HEADER = (
    '{"batchWatermarkMs":1700000000000,"batchTimestampMs":1795261830861,'
    '"conf":{"spark.sql.shuffle.partitions":"2","spark.sql.streaming.multipleWatermarkPolicy":"min"}}'
)
V1 = f'v1\n{HEADER}\n{{"orders":{{"2":5,"1":950,"3":0,"0":1050}}}}\n-\n{{"logOffset":4}}'
V2 = f'v2\n{HEADER}\nzeta:{{"logOffset":1}}\norders in:{{"orders":{{"0":7}},"returns":{{"0":9}}}}'


@pytest.mark.parametrize("text", [V1, V2])
def test_unchanged_log_renders_to_its_own_bytes(text: str):
    assert offset_log.parse(text).render() == text


def test_header_gives_confs_and_times():
    log = offset_log.parse(V1)
    assert log.confs["spark.sql.shuffle.partitions"] == "2"
    assert (log.watermark_ms, log.timestamp_ms) == (1700000000000, 1795261830861)


def test_v1_names_sources_by_position_and_v2_by_id():
    assert list(offset_log.parse(V1).sources) == ["0", "1", "2"]
    assert list(offset_log.parse(V2).sources) == ["zeta", "orders in"]
    assert offset_log.parse(V1).kafka_sources == ("0",)
    assert offset_log.parse(V2).kafka_sources == ("orders in",)


def test_kafka_offsets_are_numbers_by_topic_and_partition():
    assert offset_log.parse(V1).kafka_offsets("0").by_topic == {"orders": {0: 1050, 1: 950, 2: 5, 3: 0}}
    assert offset_log.parse(V1).kafka_offsets("1") == {}


def test_edit_keeps_the_order_and_every_other_byte():
    moved = Offsets({("orders", partition): NextOffset(100 + partition) for partition in range(4)})
    expected = V1.replace('{"2":5,"1":950,"3":0,"0":1050}', '{"2":102,"1":101,"3":103,"0":100}')
    assert offset_log.parse(V1).with_kafka_offsets("0", moved).render() == expected


def test_edit_of_v2_touches_only_the_named_source():
    moved = Offsets.of({"orders": {0: NextOffset(8)}, "returns": {0: NextOffset(9), 1: NextOffset(0)}})
    expected = V2.replace(
        '{"orders":{"0":7},"returns":{"0":9}}', '{"orders":{"0":8},"returns":{"0":9,"1":0}}'
    )
    assert offset_log.parse(V2).with_kafka_offsets("orders in", moved).render() == expected


@pytest.mark.parametrize("text", [V1, V2])
def test_next_batch_carries_everything_but_its_times(text: str):
    control = text.replace('"conf":', '"controlBatchInfo":{"type":"repartition"},"conf":')
    planned = offset_log.parse(control).planned_next(watermark_ms=1700000000005, timestamp_ms=1795261830999)
    expected = text.replace("1700000000000", "1700000000005").replace("1795261830861", "1795261830999")
    assert planned.render() == expected


def test_renamed_topic_replaces_the_old_one():
    moved = Offsets.of({"new.orders": {0: NextOffset(1), 10: NextOffset(3), 2: NextOffset(2)}})
    log = offset_log.parse(V1).with_kafka_offsets("0", moved)
    assert log.sources["0"] == '{"new.orders":{"0":1,"2":2,"10":3}}'


@given(
    st.dictionaries(
        st.text(min_size=1), st.dictionaries(st.integers(0, 50), st.integers(0), min_size=1), min_size=1
    )
)
def test_whatever_offsets_are_set_are_read_back(offsets: dict[str, dict[int, NextOffset]]):
    if any("\n" in topic for topic in offsets):
        return  # no topic name has one
    log = offset_log.parse(V1).with_kafka_offsets("0", Offsets.of(offsets))
    assert offset_log.parse(log.render()).kafka_offsets("0").by_topic == offsets


def test_unknown_or_other_source_is_refused_by_name():
    with pytest.raises(BadInputError, match=r"source '7'.*found \['0', '1', '2'\]"):
        offset_log.parse(V1).kafka_offsets("7")
    with pytest.raises(BadInputError, match="Kafka source under '2'"):
        offset_log.parse(V1).kafka_offsets("2")


@pytest.mark.parametrize(
    ("parse", "text", "name"),
    [
        (offset_log.parse, V1.replace("v1", "v3", 1), "Offset log v3 .* knows .v1, v2."),
        (commit_log.parse, 'v4\n{"nextBatchWatermarkMs":0}', "Commit log v4 .* knows .v1, v2, v3."),
    ],
)
def test_newer_versions_are_refused_by_name(parse: object, text: str, name: str):
    with refuses(CHECKPOINT_UNSUPPORTED, match=name):
        parse(text)  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    ["", "v1", "v1\n", f"v1\n{HEADER}", f"v1\n{HEADER}\n", "{}\n{}", "1\n{}\n-", f"v1\n{HEADER[:-9]}\n-"],
)
def test_incomplete_offset_log_is_refused(text: str):
    with pytest.raises(LogFormatError):
        offset_log.parse(text)


@pytest.mark.parametrize("text", [f"v2\n{HEADER}\nzeta", f"v2\n{HEADER}\na:1\na:2", f"v2\n{HEADER}\n:1"])
def test_malformed_v2_lines_are_refused(text: str):
    with pytest.raises(LogFormatError, match="Offset log v2"):
        offset_log.parse(text)


@pytest.mark.parametrize("text", ["", "v1", "v1\n", "v1\n{", "v1\n[]", 'v2\n{"stateUniqueIds":[]}'])
def test_incomplete_commit_log_is_refused(text: str):
    with pytest.raises(LogFormatError):
        commit_log.parse(text)


def test_commit_log_versions_render_to_their_own_bytes():
    ids = '{"nextBatchWatermarkMs":5,"stateUniqueIds":{"0":[["a"],["b"]]},"sinkMetadataMap":{}}'
    for text in ('v1\n{"nextBatchWatermarkMs":0}', f"v2\n{ids}", f"v3\n{ids}"):
        assert commit_log.parse(text).render() == text
    log = commit_log.parse(f"v3\n{ids}")
    assert (log.next_watermark_ms, log.state_unique_ids) == (5, {"0": (("a",), ("b",))})
    assert commit_log.parse('v1\n{"nextBatchWatermarkMs":0}').state_unique_ids == {}


def test_metadata_keeps_unknown_fields():
    text = '{"id":"x-1","controlBatchInfo":{"a":1},"sourceMetadataInfo":{}}'
    parsed = metadata.parse(text)
    assert (parsed.query_id, parsed.render()) == ("x-1", text)
    assert parsed.fields["controlBatchInfo"] == {"a": 1}


@pytest.mark.parametrize("text", ["", "{}", '{"id":""}', '{"id":3}', "[]"])
def test_metadata_without_query_id_is_refused(text: str):
    with pytest.raises(LogFormatError):
        metadata.parse(text)
