"""MirrorMaker's internal topics, decoded from what MirrorMaker 4.3.0 itself wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message

from airflow_flinkstyle.errors import MessageFormatError
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.topics import (
    Checkpoint,
    OffsetSync,
    decode_checkpoint,
    decode_offset_sync,
    decode_position,
)

if TYPE_CHECKING:
    from collections.abc import Callable

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[3] / "golden" / "mirrormaker-4.3.0.json").read_text()
)
"""Per kind and policy, records as hexadecimal key and value."""
MIRRORS = {
    "identity": MirrorSettings(source_alias="west", target_alias="east"),
    "default": MirrorSettings(source_alias="left", target_alias="right", replication_policy="default"),
}
POLICIES = pytest.mark.parametrize("policy", list(MIRRORS))


def a_record(key: bytes | None, value: bytes | None) -> Message:
    return Message(topic="notes", partition=0, offset=3, key=key, value=value, timestamp=(1, 5))


def golden(kind: str, policy: str) -> list[tuple[Message, dict[str, Any]]]:
    return [
        (a_record(bytes.fromhex(one["key"]), bytes.fromhex(one["value"])), one["means"])
        for one in GOLDEN[f"{kind}, {policy}"]
    ]


@POLICIES
def test_offset_syncs_name_the_topic_as_the_source_does(policy: str):
    for record, means in golden("offset syncs", policy):
        assert decode_offset_sync(record) == OffsetSync(**means, noted_at_ms=5)
        assert means["topic"].startswith(("once.", "least."))


@POLICIES
def test_checkpoints_name_the_topic_as_the_target_does(policy: str):
    for record, means in golden("checkpoints", policy):
        assert decode_checkpoint(record) == Checkpoint(**means, noted_at_ms=5)
        assert means["target_topic"].startswith("left.once." if policy == "default" else "least.")


@POLICIES
def test_positions_are_the_next_offsets_of_the_source_connector(policy: str):
    for record, means in golden("positions", policy):
        found = decode_position(record, MIRRORS[policy])
        assert found == (((means["topic"], means["partition"]), means["offset"] + 1) if means else None)
    assert any(means is None for _, means in golden("positions", policy)), "another connector's"


def test_the_topics_are_named_as_mirrormaker_names_them():
    mirror = MIRRORS["default"]
    assert mirror.syncs_topic == "mm2-offset-syncs.right.internal"
    assert mirror.checkpoints_topic == "left.checkpoints.internal"
    there = MirrorSettings(source_alias="left", target_alias="right", syncs_on="target")
    assert there.syncs_topic == "mm2-offset-syncs.left.internal"


def cut_short(content: bytes) -> bytes:
    return content[:-1]


def with_one_byte_more(content: bytes) -> bytes:
    return content + b"\0"


@pytest.mark.parametrize("spoil", [cut_short, with_one_byte_more])
@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize(
    ("kind", "decode"), [("offset syncs", decode_offset_sync), ("checkpoints", decode_checkpoint)]
)
def test_records_of_another_shape_are_refused_whole(
    kind: str, decode: Callable[[Message], object], side: str, spoil: Callable[[bytes], bytes]
):
    record, _ = golden(kind, "identity")[0]
    parts = {"key": record.key(), "value": record.value()}
    parts[side] = spoil(parts[side])
    with pytest.raises(MessageFormatError, match="Record 3 of notes-0 should be") as caught:
        decode(a_record(**parts))
    assert "Nothing was written" in caught.value.state_after
    assert "newer MirrorMaker" in caught.value.remedy


def test_checkpoint_of_an_unknown_version_is_refused_by_its_number():
    record, _ = golden("checkpoints", "identity")[0]
    with pytest.raises(MessageFormatError, match=r"checkpoint of version 0, but it has version 1"):
        decode_checkpoint(a_record(record.key(), b"\0\1" + record.value()[2:]))


@pytest.mark.parametrize(("key", "value"), [(None, b""), (b"", None), (b"\xff\xff", b"")])
def test_records_without_content_and_texts_without_length_are_refused(key: bytes | None, value: bytes | None):
    for decode in (decode_offset_sync, decode_checkpoint):
        with pytest.raises(MessageFormatError):
            decode(a_record(key, value))


@pytest.mark.parametrize("value", [b'{"offset":1e999}', b"[" * 5000, b'{"offset":null}', b"{}", b"7"])
def test_positions_without_a_number_are_refused(value: bytes):
    with pytest.raises(MessageFormatError, match=r'should be \["connector"'):
        decode_position(a_record(golden("positions", "identity")[0][0].key(), value), MIRRORS["identity"])
