"""Start positions on a real broker: what is found, counted in records, and what is refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import describe, first_offsets_since
from airflow_flinkstyle.kafka.errors import (
    CLUSTER_MISMATCH,
    GROUP_COMMIT,
    GROUP_IN_USE,
    GROUP_MISSING,
    ClusterUnreachableError,
    PartitionSetError,
    TopicMissingError,
    TopicRecreatedError,
)
from airflow_flinkstyle.kafka.groups import group_offsets, set_group_offsets
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.start.kinds import AtOffsets, Earliest, LogIdentity, StartRules
from airflow_flinkstyle.kafka.start.resolve import resolve
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.verdict import Chosen, Refused
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.route import ClusterPair
from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules
from airflow_flinkstyle.rewrite.strategies import plan_migration
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.refusals import refuses
from tests.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.kafka.settings import Isolation
    from airflow_flinkstyle.types import TopicPartition
    from testbed.kafka import Broker

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

PLAIN, TXN = "positions.plain", "positions.txn"
BEGAN_MS = int(time.time() * 1000) - 3_600_000
"""Timestamp of the first record; the next ones follow each second."""
WIDTH = 24
"""Partitions of the transactional topic: all alike, each with a position of its own."""


@pytest.fixture(scope="module")
def cluster(old_broker: Broker) -> KafkaCluster:
    """Partition 0: offsets 10 to 99; 1: empty; 2: emptied at 5; 3: times out of order."""
    old_broker.create_topic(PLAIN, partitions=4)
    old_broker.create_topic(TXN, partitions=WIDTH)
    producer = Producer({"bootstrap.servers": old_broker.bootstrap})
    for partition, seconds in ((0, range(100)), (2, range(5)), (3, [0, 100, 10, 20, 30])):
        for second in seconds:
            moment = BEGAN_MS + second * 1000
            producer.produce(PLAIN, value=str(second), partition=partition, timestamp=moment)
    assert producer.flush(30) == 0
    old_broker.delete_records(PLAIN, {0: 10, 2: 5})
    produce_transactions(old_broker.bootstrap, "cacc")
    return KafkaCluster(name="old", config={"bootstrap.servers": old_broker.bootstrap})


def produce_transactions(bootstrap: str, outcomes: str) -> None:
    """Per letter a transaction of three records on every partition: c commits, a aborts."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "positions", "log_level": 2})
    producer.init_transactions(30)
    for number, outcome in enumerate(outcomes):
        producer.begin_transaction()
        for partition in range(WIDTH):
            for i in range(3):
                producer.produce(TXN, value=f"{number}-{i}", partition=partition)
        producer.flush(30)
        (producer.commit_transaction if outcome == "c" else producer.abort_transaction)(30)


def picked(cluster: KafkaCluster, value: object, topic: str = PLAIN, **context: Any) -> dict[int, Any]:
    """The offset or the reason per partition."""
    partitions = describe(cluster, [topic]).partitions
    found = resolve(cluster, partitions, parse_rules(value), **context)
    return {
        number: verdict.offset if isinstance(verdict, Chosen) else verdict.reason
        for (_, number), verdict in found.items()
    }


def test_starts_are_mixed_per_topic_and_partition(cluster: KafkaCluster):
    rules = parse_rules(
        {
            "default": "latest",
            "topics": {PLAIN: "earliest"},
            "partitions": {
                PLAIN: {"0": f"timestamp:{BEGAN_MS + 49_001}", "3": {"offsets": {PLAIN: {"3": 4}}}}
            },
        }
    )
    before = Offsets({(PLAIN, 0): 60, (PLAIN, 3): 2})
    found = resolve(cluster, describe(cluster, [PLAIN, TXN]).partitions, rules, before=before)
    assert [found[PLAIN, number] for number in range(4)] == [
        *(Chosen(50, 0, 10), Chosen(0, None, None), Chosen(5, None, None), Chosen(4, 2, 0)),
    ]
    assert {found[TXN, number] for number in range(WIDTH)} == {Chosen(16, None, None)}


def test_timestamp_finds_the_first_record_of_the_log_that_is_not_older(cluster: KafkaCluster):
    at = {0: 49, 3: 1}  # the second record of partition 3 is the newest, later ones are older
    found = picked(cluster, f"timestamp:{BEGAN_MS + 49_000}")
    assert {number: found[number] for number in at} == at
    assert (found[1], found[2]) == (0, 5)  # without a record there is nothing to leave out


def test_timestamp_after_the_last_record_is_refused_unless_latest_is_chosen(cluster: KafkaCluster):
    late = BEGAN_MS + 99_500
    found = picked(cluster, f"timestamp:{late}")
    newest = datetime.fromtimestamp((BEGAN_MS + 99_000) / 1000, UTC).isoformat(timespec="milliseconds")
    assert found[3] == 1
    assert f"the last one is of {newest}" in found[0]
    assert picked(cluster, f"timestamp:{late}:after_last=latest") == {0: 100, 1: 0, 2: 5, 3: 1}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_timestamp_is_a_records_not_that_of_a_marker_far_before_it(
    cluster: KafkaCluster, old_broker: Broker, isolation: Isolation
):
    """As on an exactly-once mirror: records keep their times, markers carry the time of mirroring."""
    topic = f"positions.mirrored.{isolation}"
    old_broker.create_topic(topic, partitions=1)
    producer = Producer(
        {"bootstrap.servers": old_broker.bootstrap, "transactional.id": topic, "log_level": 2}
    )
    producer.init_transactions(30)
    for first in range(0, 200, 20):
        producer.begin_transaction()
        for second in range(first, first + 20):
            producer.produce(topic, value=b"x", partition=0, timestamp=BEGAN_MS + second * 1000)
        producer.commit_transaction(30)
    moment = BEGAN_MS + 149_500
    assert first_offsets_since(cluster, {(topic, 0): moment}) == {(topic, 0): 20}  # the first marker
    assert picked(cluster, f"timestamp:{moment}", topic, isolation=isolation) == {0: 150 + 150 // 20}
    before = Offsets({(topic, 0): 150 + 150 // 20})
    assert picked(cluster, "shift:-50s", topic, before=before, isolation=isolation) == {0: 100 + 100 // 20}
    late = f"timestamp:{BEGAN_MS + 199_500}"
    last = datetime.fromtimestamp((BEGAN_MS + 199_000) / 1000, UTC).isoformat(timespec="milliseconds")
    assert f"the last one is of {last}" in picked(cluster, late, topic, isolation=isolation)[0]
    assert picked(cluster, f"{late}:after_last=latest", topic, isolation=isolation) == {0: 210}


def records_from(
    cluster: KafkaCluster, positions: Mapping[TopicPartition, int], isolation: Isolation
) -> dict[TopicPartition, int]:
    """How many records a reader gets from each position to the end."""
    counts = dict.fromkeys(positions, 0)

    def add(tp: TopicPartition, _: object) -> None:
        counts[tp] += 1

    view = describe(cluster, {topic for topic, _ in positions})
    ends = {tp: view.topics[tp[0]].partitions[tp[1]].end for tp in positions}
    scan(cluster, {tp: ReadRange(low=at, high=ends[tp]) for tp, at in positions.items()}, add, isolation)
    return counts


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("shift", [-4, -1, 1, 4])
def test_shift_counts_the_records_of_the_jobs_reader_and_no_markers(
    cluster: KafkaCluster, isolation: Isolation, shift: int
):
    before = Offsets({(TXN, number): min(number, 16) for number in range(WIDTH)})
    rules = parse_rules(f"shift:{shift}")
    found = resolve(cluster, before.keys(), rules, before=before, isolation=isolation)
    old = records_from(cluster, before, isolation)
    total = max(old.values())
    chosen = {tp: verdict.offset for tp, verdict in found.items() if isinstance(verdict, Chosen)}
    new = records_from(cluster, chosen, isolation)
    assert {tp: old[tp] - new[tp] for tp in chosen} == dict.fromkeys(chosen, shift)
    short = {tp for tp in before if not 0 <= total - old[tp] + shift <= total}
    assert found.keys() - chosen.keys() == short
    assert short
    assert all(" records stand " in found[tp].reason for tp in short)


def test_shift_by_a_time_counts_from_the_record_at_the_position(cluster: KafkaCluster):
    before = Offsets({(PLAIN, 0): 50, (PLAIN, 1): 0, (PLAIN, 2): 5, (PLAIN, 3): 5})
    assert picked(cluster, "shift:-5s", before=before) == {0: 45, 1: 0, 2: 5, 3: 1}
    assert picked(cluster, "shift:+5s", before={**before, (PLAIN, 3): 0}) == {0: 55, 1: 0, 2: 5, 3: 1}
    assert picked(cluster, "shift:0s", before=before) == {0: 50, 1: 0, 2: 5, 3: 5}


def test_shift_by_a_time_at_the_end_counts_from_the_last_record(cluster: KafkaCluster):
    assert picked(cluster, "shift:-5s", before={(PLAIN, 0): 100})[0] == 94
    assert "no record is at or after" in picked(cluster, "shift:5s", before={(PLAIN, 0): 100})[0]


def test_shift_on_that_would_lead_back_is_refused(cluster: KafkaCluster):
    found = picked(cluster, "shift:5s", before={(PLAIN, 3): 3})
    assert "timestamps are not in order" in found[3]


@pytest.mark.parametrize(
    ("position", "words"),
    [(None, "no position so far"), (4, "deleted"), (101, "behind the log's end")],
)
def test_position_that_is_not_in_the_log_cannot_be_shifted(
    cluster: KafkaCluster, position: int | None, words: str
):
    before = None if position is None else {(PLAIN, 0): position}
    assert words in picked(cluster, "shift:-1", before=before)[0]


def test_latest_of_a_read_committed_job_leaves_out_no_open_transaction(
    cluster: KafkaCluster, old_broker: Broker
):
    old_broker.create_topic("positions.open", partitions=1)
    config = {"bootstrap.servers": old_broker.bootstrap, "transactional.id": "positions-open", "log_level": 2}
    producer = Producer(config)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("positions.open", value="not yet", partition=0)
    producer.flush(30)
    try:
        assert picked(cluster, "latest", "positions.open") == {0: 0}
        assert picked(cluster, "latest", "positions.open", isolation="read_uncommitted") == {0: 1}
        before = Offsets({("positions.open", 0): 1})
        assert "a transaction is open" in picked(cluster, "shift:-1", "positions.open", before=before)[0]
    finally:
        producer.abort_transaction(30)


def test_group_starts_where_it_committed_and_its_rule_says_the_rest(cluster: KafkaCluster):
    set_group_offsets(cluster, "positions-g", Offsets({(PLAIN, 0): 70, (PLAIN, 2): 3}))
    assert group_offsets(cluster, "positions-g", [PLAIN]) == {(PLAIN, 0): 70, (PLAIN, 2): 3}
    found = picked(cluster, "group:positions-g")
    assert found[0] == 70
    assert "has committed no offset" in found[1]
    assert "those records are deleted" in found[2]
    assert picked(cluster, "group:positions-g:missing=latest")[3] == 5
    assert picked(cluster, "group:positions-g:missing=earliest")[3] == 0
    assert "has committed no offset" in picked(cluster, "group:positions-g", TXN)[0]


def test_unknown_group_is_an_error_whatever_its_rule(cluster: KafkaCluster):
    with refuses(GROUP_MISSING, match="positions-nobody"):
        picked(cluster, "group:positions-nobody:missing=earliest")


def test_group_offsets_are_set_forth_and_back(cluster: KafkaCluster):
    first = set_group_offsets(cluster, "positions-lag", Offsets({(PLAIN, 0): 90}))
    assert first.before == {}
    again = set_group_offsets(cluster, "positions-lag", Offsets({(PLAIN, 0): 20, (PLAIN, 3): 1}))
    assert again.before == {(PLAIN, 0): 90}
    assert group_offsets(cluster, "positions-lag", [PLAIN]) == {(PLAIN, 0): 20, (PLAIN, 3): 1}
    of_job = Offsets({(PLAIN, 0): 10, (PLAIN, 3): 4})
    assert set_group_offsets(cluster, "positions-lag", of_job, only_forward=True).offsets == {(PLAIN, 3): 4}
    assert group_offsets(cluster, "positions-lag", [PLAIN]) == {(PLAIN, 0): 20, (PLAIN, 3): 4}


def test_group_with_members_keeps_its_offsets(cluster: KafkaCluster):
    set_group_offsets(cluster, "positions-live", Offsets({(PLAIN, 0): 15}))
    member = Consumer({**cluster.config, "group.id": "positions-live", "enable.auto.commit": "false"})
    try:
        member.subscribe([PLAIN])
        deadline = time.monotonic() + 20
        while not member.assignment():
            assert time.monotonic() < deadline
            member.poll(0.1)
        with refuses(GROUP_IN_USE, match="positions-live"):
            set_group_offsets(cluster, "positions-live", Offsets({(PLAIN, 0): 99}))
    finally:
        member.close()
    assert group_offsets(cluster, "positions-live", [PLAIN]) == {(PLAIN, 0): 15}


def test_partition_that_does_not_exist_is_named_though_others_are_committed(cluster: KafkaCluster):
    with refuses(GROUP_COMMIT, match=f"those of {PLAIN}-9 were refused") as refused:
        set_group_offsets(cluster, "positions-part", Offsets({(PLAIN, 0): 15, (PLAIN, 9): 1}))
    assert refused.value.state_after == "1 other partitions are committed."
    with refuses(GROUP_COMMIT) as refused:
        set_group_offsets(cluster, "positions-part", Offsets({(PLAIN, 9): 1}))
    assert refused.value.state_after == "No other partitions are committed."
    assert group_offsets(cluster, "positions-part", [PLAIN]) == {(PLAIN, 0): 15}


def test_table_of_another_log_is_refused(cluster: KafkaCluster):
    view = describe(cluster, [PLAIN])

    def table(cluster_id: str, topic_id: str) -> StartRules:
        logs = {PLAIN: LogIdentity(cluster_id, topic_id)}
        return StartRules(default=AtOffsets(Offsets({(PLAIN, 0): 50}), logs=logs))

    with refuses(CLUSTER_MISMATCH):
        resolve(cluster, view.partitions, table("elsewhere", view.topics[PLAIN].topic_id))
    with pytest.raises(TopicRecreatedError):
        resolve(cluster, view.partitions, table(view.cluster_id, "older"))
    found = resolve(cluster, view.partitions, table(view.cluster_id, view.topics[PLAIN].topic_id))
    assert found[PLAIN, 0] == Chosen(50, None, None)
    assert isinstance(found[PLAIN, 1], Refused)
    assert "the table (offsets) has no offset" in found[PLAIN, 1].reason


def test_topics_partitions_and_clusters_that_are_not_there_are_named(cluster: KafkaCluster):
    rules = StartRules(default=Earliest())
    with pytest.raises(TopicMissingError, match="nowhere"):
        resolve(cluster, [("nowhere", 0)], rules)
    with pytest.raises(PartitionSetError, match=f"{PLAIN}-1"):
        resolve(cluster, [(PLAIN, 0)], rules)
    gone = KafkaCluster(name="gone", config={"bootstrap.servers": "127.0.0.1:1"}, request_timeout_s=2)
    with pytest.raises(ClusterUnreachableError, match="gone"):
        resolve(gone, [(PLAIN, 0)], rules)


def a_savepoint(cluster: KafkaCluster, offsets: Mapping[int, int]) -> Manifest:
    """One query that reads ``PLAIN``."""
    live = describe(cluster, [PLAIN])
    position = KafkaPosition(
        cluster_id=live.cluster_id,
        topic_ids={PLAIN: live.topics[PLAIN].topic_id},
        offsets=Offsets.of({PLAIN: {number: NextOffset(offset) for number, offset in offsets.items()}}),
        log_range={},
    )
    query = QuerySnapshot(
        name="totals",
        query_id="q",
        batch_id=BatchId(7),
        checkpoint_location="/checkpoints/totals",
        planned_offsets=None,
        pinned_confs={},
        kafka={"0": position},
        files=(),
    )
    return a_manifest(query)


def test_job_is_shifted_on_the_cluster_that_it_reads(cluster: KafkaCluster):
    savepoint = a_savepoint(cluster, {0: 50, 1: 0, 2: 5, 3: 4})
    start = parse_rules({"default": "shift:0", "partitions": {PLAIN: {"0": "shift:-3", "3": "shift:1"}}})
    here = ClusterPair(source=cluster, target=cluster)
    rules = StrategyRules(default=SourceRule(strategy="new_identity", start=start))
    plan = plan_migration(savepoint, here, ProofRequest(), rules)
    assert [move.after for move in plan.moves] == [
        *(Chosen(47, 0, 3), Chosen(0, 0, 0), Chosen(5, 0, 0), Chosen(5, 1, 0)),
    ]
    misspelt = SourceRule(
        strategy="new_identity", start=parse_rules({"default": "latest", "topics": {"x": "earliest"}})
    )
    with pytest.raises(BadInputError, match="there are some for x"):
        plan_migration(savepoint, here, ProofRequest(), StrategyRules(default=misspelt))
