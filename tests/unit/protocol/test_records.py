from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.cuts import Cut, Positions
from airflow_flinkstyle.protocol.line import Parent, Turn
from airflow_flinkstyle.protocol.query_records import (
    CommittedGroup,
    Loss,
    QueryStatus,
    SinkLineage,
    Sinks,
    SourceIdentity,
)
from airflow_flinkstyle.protocol.records import (
    Claim,
    Command,
    Current,
    End,
    Heartbeat,
    IncarnationRecord,
    KafkaOverride,
    Progress,
    Request,
    RequestState,
    Submit,
    TakeoverOrder,
)
from airflow_flinkstyle.types import Alignment, BatchId, Generation, Incarnation, NextOffset

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.record import Record

IDENTITY = SourceIdentity(cluster_id="abc", topic_ids={"orders": "t1"})

FROM_SAVEPOINT = Parent(generation=Generation(1), batches_run=7, savepoint_id="sp-1")

RECORDS: list[Record] = [
    Current(generation=Generation(2), incarnation=Incarnation(1)),
    Claim(
        claim_key="run-1/start",
        follows=None,
        checkpoint_location="s3://bucket/checkpoints/1",
        prepare_savepoint_id=None,
        overrides=(
            KafkaOverride(role="source", servers="old:9092", options={"startingOffsets": "earliest"}),
        ),
        lease_s=30.0,
        launch={"spec": {"args": ["a"]}},
        claimed_at_ms=1,
    ),
    TakeoverOrder(
        savepoint_id="sp-1",
        parent=FROM_SAVEPOINT,
        turns=(Turn(generation=Generation(2), parent=FROM_SAVEPOINT, rewind="fork"),),
        closed_at={"orders": 7},
        expected={"orders": {"0": IDENTITY}},
    ),
    Submit(key="k", deployment="detached", state="submitted", asked_at_ms=1, native_id={"pid": "12"}),
    IncarnationRecord(host="h", pid=1, jvm_pid=2, pid_started="3", started_at_ms=4),
    Heartbeat(
        incarnation=Incarnation(1),
        state="failed",
        beat=3,
        written_at_ms=5,
        spark_version="4.2.0",
        application_id="app-1",
        queries={
            "orders": QueryStatus(
                query_id="q",
                batch_id=BatchId(4),
                batch_committed_at_ms=6,
                sources={"0": IDENTITY},
                sink="kafka",
                sinks=Sinks(
                    lineages=(
                        SinkLineage(
                            lineage="totals.2",
                            shards=2,
                            control_topic="flinkstyle-totals.2.internal",
                            cluster_id="out",
                            completed_batch=4,
                            markers={0: 4, 1: 4},
                        ),
                    ),
                    begins="3",
                ),
                groups={
                    "0": CommittedGroup(
                        group="billing",
                        batch_id=BatchId(3),
                        offsets=Offsets.of({"orders": {0: 7}}),
                        lag={"orders": 2},
                        commits_succeeded=3,
                        commits_failed=0,
                        commits_superseded=0,
                        failure=None,
                    )
                },
            )
        },
        error=("GUARD", "text"),
    ),
    Request(
        request_id="r-1",
        incarnation=Incarnation(1),
        command="stop_with_savepoint",
        state="sent",
        savepoint_id="sp-2",
        sent_at_ms=7,
        alignment="aligned",
        drain=True,
        cut_id="cut-1",
        hold_s=9.0,
    ),
    Positions.of({("abc", "orders", 0): NextOffset(3)}),
    Cut(cut_id="cut-1", verdict="complete", members={"orders": "sp-1"}, reason="", decided_at_ms=2),
    Progress(request_id="r-1", files_done=1, files_total=2, bytes_done=3, bytes_total=4, at_ms=5),
    End(
        request_id="r-1",
        outcome="done",
        savepoint_id="sp-2",
        detail="ok",
        ended_at_ms=8,
        batches={"orders": 4},
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_record_survives_a_round_trip(record: Record) -> None:
    assert type(record).from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_another_protocol_version_is_refused_naming_both(record: Record) -> None:
    values = {**json.loads(record.to_bytes()), "version": 7}
    with pytest.raises(ProtocolVersionError, match=r"speaks protocol 7, this package speaks 1"):
        type(record).from_bytes(json.dumps(values).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"not json", b'"text"', b"7", b"null"])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(MessageFormatError, match=r"current\.json of protocol version 1 was expected"):
        Current.from_bytes(data)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_unknown_and_missing_fields_are_refused(record: Record) -> None:
    values = json.loads(record.to_bytes())
    with pytest.raises(MessageFormatError, match=r"no further fields, found .'surprise'"):
        type(record).from_bytes(json.dumps({**values, "surprise": 1}).encode())
    for name in values.keys() - {"version"}:
        lacking = {other: value for other, value in values.items() if other != name}
        with pytest.raises(MessageFormatError, match=f"a field '{name}'"):
            type(record).from_bytes(json.dumps(lacking).encode())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_field_of_another_type_is_refused_with_its_name(record: Record) -> None:
    values = json.loads(record.to_bytes())
    for name in values.keys() - {"version"}:
        with pytest.raises(MessageFormatError, match=f"{name}.*expected"):
            type(record).from_bytes(json.dumps({**values, name: [["x"]]}).encode())


def test_heartbeat_names_only_the_queries_that_have_committed() -> None:
    heartbeat = Heartbeat(
        incarnation=Incarnation(1),
        state="running",
        beat=1,
        written_at_ms=1,
        spark_version="4.2.0",
        application_id="a",
        queries={
            "new": QueryStatus(query_id="q1", batch_id=None, batch_committed_at_ms=None, sources={}),
            "old": QueryStatus(query_id="q2", batch_id=BatchId(0), batch_committed_at_ms=1, sources={}),
        },
    )
    assert heartbeat.batches() == {"old": 0}


@pytest.mark.parametrize(
    ("command", "alignment", "state", "may"),
    [
        ("stop", "none", "sent", True),
        ("stop", "none", "accepted", False),
        ("stop_with_savepoint", "aligned", "accepted", True),
        ("stop_with_savepoint", "aligned", "closing", False),
        ("savepoint", "none", "accepted", True),
        ("savepoint", "aligned", "cancelled", False),
    ],
)
def test_accepted_request_may_be_cancelled_while_it_can_be_undone(
    command: Command, alignment: Alignment, state: RequestState, *, may: bool
) -> None:
    request = Request(
        request_id="r-1",
        incarnation=Incarnation(1),
        command=command,
        state=state,
        savepoint_id=None,
        sent_at_ms=7,
        alignment=alignment,
    )
    assert request.may_be_cancelled is may


def test_record_that_could_not_be_read_again_is_refused_where_it_is_written():
    """Else whoever asks a job for anything finds a record that nobody can read."""
    beat = next(record for record in RECORDS if isinstance(record, Heartbeat))
    good = QueryStatus(query_id=None, batch_id=None, batch_committed_at_ms=None, sources={})
    for bad in (
        replace(good, query_id=""),
        replace(good, batch_id=-1),
        replace(good, sources={"0": SourceIdentity(cluster_id="", topic_ids={})}),
        replace(good, sources={"0": SourceIdentity(cluster_id="c", topic_ids={"t": "A" * 22})}),
        replace(good, lost={"0": Loss(offsets=-1, topics=(), batch_id=None)}),
    ):
        with pytest.raises(MessageFormatError, match="to be written, found that it could not be read back"):
            replace(beat, queries={"orders": bad}).to_bytes()
    told = replace(good, sources={"0": SourceIdentity(cluster_id=None, topic_ids={"t": None, "u": "x"})})
    written = replace(beat, queries={"orders": told})
    assert Heartbeat.from_bytes(written.to_bytes()) == written
