from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.errors import (
    NOT_STARTED,
    SOURCES_CHANGED,
    UNSUPPORTED_MODE,
    QueryUnknownError,
)
from airflow_flinkstyle.agent.core.guards import checks
from airflow_flinkstyle.agent.core.run import admission, barrier, held_cut, taking
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.kafka.cluster import ClusterView
from airflow_flinkstyle.kafka.errors import (
    CLUSTER_MISMATCH,
    OFFSET_BEYOND_END,
    ClusterUnreachableError,
    TopicRecreatedError,
)
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.errors import CHECKPOINT_LOST
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import Loss, QueryStatus, SourceIdentity
from airflow_flinkstyle.protocol.records import TakeoverOrder
from airflow_flinkstyle.savepoint.blobs.references import references
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog, KafkaPosition, QuerySnapshot
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.manifests import a_manifest
from tests.small_spark import queries_at
from tests.unit.agent.conftest import a_heartbeat
from tests.unit.agent.job_queries import a_query, a_query_of_two_batches
from tests.unit.agent.views import a_topic, a_view
from tests.unit.clocks import SleptClock as Clock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.agent.core.spark import Describe


def an_order(**changes: Any) -> TakeoverOrder:
    values: dict[str, Any] = {"savepoint_id": None, "closed_at": None, "expected": {},
        "parent": BEGINNING,
    }  # fmt: skip
    return TakeoverOrder(**{**values, **changes})


def test_planned_batch_that_is_refused_is_left_as_it_is() -> None:
    """A sink may have seen it: a carried one, one at a barrier, or one whose records were lost since."""
    query = a_query_of_two_batches(committed=1)
    before = {info.key: query.checkpoint.read(info.key) for info in query.checkpoint.list("")}
    with refuses(OFFSET_BEYOND_END):
        checks.guard(lambda _: a_view({0: 4}), query, {})
    assert {info.key: query.checkpoint.read(info.key) for info in query.checkpoint.list("")} == before


def test_unfinished_first_write_of_a_killed_run_is_deleted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = a_query("orders")
    query.checkpoint.write("offsets/.0.67b1.tmp", b"")
    checks.clear(query)
    assert query.checkpoint.head("offsets/.0.67b1.tmp") is None
    (told,) = caplog.messages
    assert "Query orders: a killed run left offsets/.0.67b1.tmp, deleted" in told
    checks.clear(query)
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    ("look", "left"),
    [
        (lambda kafka, query: checks.guard(kafka, query, {}), "The query was not started"),
        (barrier.read_held, "the queries resume uncut"),
        (taking._kafka_logs, "No savepoint was made"),
        (
            lambda kafka, query: held_cut.guard_again(kafka, query, lease_s=0.0, clock=Clock()),
            "The query did not resume",
        ),
    ],
)
def test_kafka_that_cannot_be_reached_leaves_what_the_error_says(
    look: Callable[[Describe, JobQuery], object], left: str
) -> None:
    def out_of_reach(_: object) -> ClusterView:
        raise ClusterUnreachableError(
            "Timeout.", state_after="The query was not started.", remedy="Check it."
        )

    with pytest.raises(ClusterUnreachableError) as refused:
        look(out_of_reach, a_query_of_two_batches(committed=2))
    assert left in refused.value.state_after


def an_identity(cluster_id: str) -> SourceIdentity:
    return SourceIdentity(cluster_id=cluster_id, topic_ids={"t": "id"})


def a_snapshot(name: str, *sources: str) -> QuerySnapshot:
    position = KafkaPosition(
        cluster_id="of the savepoint",
        topic_ids={"t": "id"},
        offsets=Offsets.of({"t": {0: NextOffset(1)}}),
        log_range={},
    )
    return QuerySnapshot(
        name=name,
        query_id=f"id of {name}",
        batch_id=BatchId(7),
        checkpoint_location="file:///checkpoint",
        planned_offsets=None,
        pinned_confs={},
        kafka=dict.fromkeys(sources, position),
        files=(),
    )


def a_beat(**sources: SourceIdentity) -> QueryStatus:
    return QueryStatus(query_id="q", batch_id=None, batch_committed_at_ms=None, sources=sources)


def test_source_must_read_what_caller_savepoint_and_earlier_incarnation_have_recorded() -> None:
    order = an_order(expected={"a": {"x": an_identity("of the caller")}, "b": {"y": an_identity("of b")}})
    prior = a_heartbeat(
        queries={"a": a_beat(x=an_identity("of the heartbeat")), "c": a_beat(z=an_identity("of c"))}
    )
    manifest = a_manifest(a_snapshot("a", "x", "w"))
    assert admission.expected_identities(order, manifest, prior) == {
        "a": {
            "x": [
                an_identity("of the caller"),
                an_identity("of the savepoint"),
                an_identity("of the heartbeat"),
            ],
            "w": [an_identity("of the savepoint")],
        },
        "b": {"y": [an_identity("of b")]},
        "c": {"z": [an_identity("of c")]},
    }
    assert admission.expected_identities(an_order(), None, None) == {}


def test_queries_of_savepoint_predecessor_and_earlier_incarnation_go_on_where_their_checkpoints_are() -> None:
    there = {name: MemoryStore() for name in ("restored", "adopted", "own", "gone")}
    for name in ("restored", "adopted", "own"):
        there[name].write("metadata", b"{}")
    manifest = a_manifest(a_snapshot("restored"), a_snapshot("gone"))
    prior = a_heartbeat(queries={"own": a_beat()})
    found = checks.queries_to_continue(there.__getitem__, an_order(closed_at={"adopted": 7}), manifest, prior)
    assert found == {"restored", "adopted", "own"}


def test_guard_records_what_each_kafka_source_reads_and_looks_at_no_other() -> None:
    query = a_query_of_two_batches(committed=2)
    for batch in (0, 1):
        log = query.checkpoint.read(f"offsets/{batch}")
        query.checkpoint.write(f"offsets/{batch}", log + b"\n{}")
    query.sources = [*query.sources, StreamingSource(position=1, name=None, provider="rate", options={})]
    looked: list[int] = []

    def look(source: StreamingSource) -> ClusterView:
        looked.append(source.position)
        return a_view({0: 9})

    checks.guard(look, query, {"0": [an_identity("c")], "1": [an_identity("of no source")]})
    assert looked == [0]
    assert query.identities == {"0": an_identity("c")}


def test_guard_compares_with_what_others_and_the_query_itself_have_recorded() -> None:
    query = a_query_of_two_batches(committed=2)
    with refuses(CLUSTER_MISMATCH, match="Source 0 of query orders"):
        checks.guard(lambda _: a_view({0: 9}), query, {"0": [an_identity("c"), an_identity("another")]})
    assert query.identities == {}
    recreated = replace(an_identity("c"), topic_ids={"t": "id before"})
    query.identities = {"0": recreated}
    with pytest.raises(TopicRecreatedError):
        checks.guard(lambda _: a_view({0: 9}), query, {})
    assert query.identities == {"0": recreated}


def test_record_of_a_pattern_s_topics_follows_the_newest_batch_and_asks_for_ids_once() -> None:
    query = a_query_of_two_batches(committed=2)
    query.sources = [replace(query.sources[0], options={"subscribePattern": ".*"})]
    views = {"t": a_view({0: 9}), "both": a_view({0: 9}, us=a_topic({0: 4}, "id-us"))}
    checks.guard(lambda _: views["t"], query, {})
    looked: list[ClusterView] = []

    def look(name: str, *topics: str) -> SourceIdentity:
        line = json.dumps({topic: {"0": 4} for topic in topics}, separators=(",", ":"))
        log = query.checkpoint.read("offsets/0").decode().rpartition("\n")[0]
        query.checkpoint.write("offsets/1", f"{log}\n{line}".encode())

        def describe(_: StreamingSource) -> ClusterView:
            looked.append(views[name])
            return views[name]

        checks.follow(describe, query)
        return query.identities["0"]

    assert look("both", "t").topic_ids == {"t": "id"}
    assert looked == []
    assert look("both", "t", "us").topic_ids == {"t": "id", "us": "id-us"}
    assert look("both", "t", "us").topic_ids == {"t": "id", "us": "id-us"}
    assert looked == [views["both"]]
    assert look("both", "us").topic_ids == {"us": "id-us"}
    assert look("t", "us", "x").topic_ids == {"us": "id-us", "x": None}, "gone before it could be asked for"
    assert look("t").topic_ids == {}


def test_each_pattern_is_followed_and_no_other_source(caplog: pytest.LogCaptureFixture) -> None:
    query = a_query_of_two_batches(committed=2)
    (listed,) = query.sources
    patterns = [replace(listed, position=at, options={"subscribePattern": ".*"}) for at in (1, 2, 3)]
    query.sources = [listed, *patterns]
    same, first = an_identity("c"), "v1\n{}"
    query.identities = {"0": same, "2": same, "3": same, "4": same}
    lines = ['{"u":{"0":4}}', '{"u":{"0":4}}', '{"t":{"0":4}}', '{"t":{"0":4},"u":{"0":4}}']
    query.checkpoint.write("offsets/1", "\n".join([first, *lines]).encode())
    looked: list[int] = []

    def describe(source: StreamingSource) -> ClusterView:
        looked.append(source.position)
        return a_view({0: 9}, u=a_topic({0: 4}, "id-u"))

    checks.follow(describe, query)
    assert looked == [3], "the listed one, one without a record and one that is as it was are left alone"
    assert query.identities["3"].topic_ids == {"t": "id", "u": "id-u"}
    assert query.identities["0"] is query.identities["2"] is same
    query.checkpoint.write("offsets/1", first.encode())
    checks.follow(describe, query)
    assert looked == [3], "the log names none of them"
    query.checkpoint.write("offsets/1", b"v9")
    caplog.set_level("INFO")
    checks.follow(describe, query)
    assert "its newest batch could not be read" in caplog.text
    caplog.clear()
    query.sources = [listed]
    checks.follow(describe, query)
    assert caplog.text == "", "nothing is read for sources that follow nothing"


def test_start_says_what_its_guard_cannot_see(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    checks.guard(lambda _: a_view({0: 9}), a_query_of_two_batches(committed=2), {})
    assert caplog.text == ""
    view = ClusterView(cluster_id=None, topics={"t": a_topic({0: 9}, None)})
    checks.guard(lambda _: view, a_query_of_two_batches(committed=2), {})
    assert "Query orders, source 0: " in caplog.text


def test_source_that_cannot_be_read_again_is_refused() -> None:
    checks.require_replayable([StreamingSource(position=0, name=None, provider="kafka", options={})])
    for provider in ("socket", "org.apache.spark.sql.execution.streaming.sources.TextSocketSourceProvider"):
        source = StreamingSource(position=0, name=None, provider=provider, options={})
        with refuses(UNSUPPORTED_MODE, match="the source socket, which cannot") as refused:
            checks.require_replayable([source])
        assert refused.value.remedy.startswith("Write what comes over the socket to Kafka")


def test_topics_that_are_lost_one_after_the_other_are_all_named() -> None:
    query = a_query_of_two_batches(committed=2)
    options = {"subscribePattern": ".*", "failOnDataLoss": "false"}
    query.sources = [replace(query.sources[0], options=options)]

    def start(batch: int, *topics: str) -> Loss:
        line = json.dumps({topic: {"0": 4} for topic in topics}, separators=(",", ":"))
        query.checkpoint.write(f"offsets/{batch}", f"v1\n{{}}\n{line}".encode())
        query.checkpoint.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        checks.guard(lambda _: a_view({0: 9}), query, {})
        return query.lost["0"]

    assert start(2, "t", "us") == Loss(offsets=0, topics=("us",), batch_id=BatchId(2))
    assert start(3, "t", "eu") == Loss(offsets=0, topics=("eu", "us"), batch_id=BatchId(3))


def test_loss_that_a_script_accepts_is_counted_once_for_each_start_from_a_batch() -> None:
    query = a_query_of_two_batches(committed=2)
    query.sources = [replace(query.sources[0], options={"failOnDataLoss": "false"})]

    def start(begin: int) -> str:
        view = ClusterView(cluster_id="c", topics={"t": a_topic({0: 20}, start=begin)})
        checks.guard(lambda _: view, query, {})
        return str(query.lost.get("0"))

    assert start(5) == "None"
    assert start(8).startswith("3 offsets")
    assert start(9).startswith("4 offsets"), "the same start again"
    log = query.checkpoint.read("offsets/1").decode().replace(":5}", ":10}")
    query.checkpoint.write("offsets/2", log.encode())
    query.checkpoint.write("commits/2", b'v1\n{"nextBatchWatermarkMs":0}')
    assert start(9).startswith("4 offsets"), "nothing more was lost"
    assert start(12).startswith("6 offsets")
    assert query.status().notes() == [f"source 0: {query.lost['0']}"]


@pytest.mark.parametrize(
    ("provider", "is_kafka"),
    [
        ("kafka", True), ("KAFKA", True), ("org.apache.spark.sql.kafka010.KafkaSourceProvider", True),
        ("my-kafka", False), ("kafkaesque", False), ("com.acme.KafkaLikeSource", False), ("rate", False),
    ],
)  # fmt: skip
def test_source_is_kafka_s_by_the_name_of_its_provider(provider: str, *, is_kafka: bool) -> None:
    assert StreamingSource(position=0, name=None, provider=provider, options={}).is_kafka == is_kafka


def test_guard_asks_for_the_sources_before_it_asks_kafka() -> None:
    query = a_query_of_two_batches(committed=2)
    query.sources = [*query.sources, *query.sources]
    with refuses(SOURCES_CHANGED, match=r"Query orders .* read 1 sources .*, found 2"):
        checks.guard(lambda _: pytest.fail("Kafka was asked"), query, {})


def test_restore_prepares_or_completes_every_query_as_it_was_asked() -> None:
    live, repository = (
        a_query_of_two_batches(committed=1).checkpoint,
        SavepointRepository(MemoryStore(), "orders"),
    )
    live.write("offsets/1", live.read("offsets/1"))
    label = SavepointLabel(savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=1)
    kafka = {
        "0": KafkaLog(
            cluster_id="c", topic_ids={"t": "id"}, log_range={"t": {0: (NextOffset(0), NextOffset(9))}}
        )
    }
    manifest = take_savepoint(repository, [QuerySource(name="orders", checkpoint=live, kafka=kafka)], label)
    target = MemoryStore()

    def restore(**options: Any) -> set[str]:
        admission.restore(manifest, repository, lambda _: target, **options)
        return {info.key for info in target.list("offsets/") if b"unfinished" not in target.read(info.key)}

    assert restore(complete=False) == {"offsets/0"}  # the seal is on the planned one
    assert restore(complete=True) == {"offsets/0", "offsets/1"}
    assert references(repository) == {}, "a run that has committed nothing owns nothing"


def test_only_queries_whose_checkpoints_stand_in_the_location_go_on(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "metadata").write_text('{"id":"q"}')
    order = an_order(closed_at={"orders": 7, "dropped": 3})
    assert checks.queries_to_continue(queries_at(tmp_path).checkpoint, order, None, None) == {"orders"}
    elsewhere = queries_at(tmp_path / "fresh")
    assert checks.queries_to_continue(elsewhere.checkpoint, order, None, None) == set()


def test_checkpoint_that_is_gone_is_never_begun_anew(tmp_path: Path) -> None:
    beat = QueryStatus(query_id="q", batch_id=BatchId(7), batch_committed_at_ms=None, sources={})
    idle = replace(beat, batch_id=None)
    words = a_heartbeat(queries={"orders": beat, "idle": idle})
    opened = queries_at(tmp_path).checkpoint
    with refuses(CHECKPOINT_LOST, match="query orders at batch 7") as refused:
        checks.require_there(opened, words)
    assert f"{tmp_path}/orders was expected" in refused.value.problem
    assert "Bring the checkpoint back" in refused.value.remedy
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "metadata").write_text('{"id":"q"}')
    checks.require_there(opened, words)
    checks.require_there(opened, None)


def test_query_under_another_name_is_refused_while_the_old_ones_state_waits() -> None:
    with pytest.raises(QueryUnknownError) as refused:
        checks.require_known(a_query("orders2"), {"orders", "done", "a"}, {"orders2", "done"})
    assert "continue the queries a, done, orders, found orders2" in refused.value.problem
    assert "would start from nothing, without the state of a, orders." in refused.value.problem
    assert refused.value.state_after == NOT_STARTED
    assert "Keep the query's name" in refused.value.remedy


def test_known_queries_start_in_any_order_and_new_ones_after_them() -> None:
    checks.require_known(a_query("b"), {"a", "b"}, {"b"})
    checks.require_known(a_query("new"), {"a", "b"}, {"a", "b", "new"})
    checks.require_known(a_query("first"), set(), {"first"})
    # Its first batch was planned by a driver that died before the query committed one.
    checks.require_known(a_query_of_two_batches(committed=0), {"a"}, {"orders"})
