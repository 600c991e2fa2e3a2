"""Plans of every way between two real clusters; records are copied by hand where a way needs copies."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import (
    ClusterUnreachableError,
    MirrorPositionMissingError,
    TopicMissingError,
)
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.verdict import Chosen, Exact, Refused
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.rewrite.route import ClusterPair
from airflow_flinkstyle.rewrite.rules import SourceRule, StrategyRules
from airflow_flinkstyle.rewrite.strategies import plan_migration
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.types import BatchId, NextOffset
from tests.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.integration, pytest.mark.kafka]

DATED_MS = int(time.time() * 1000)
"""One timestamp for both copies of a record; not an old one, retention would delete it."""
LATEST, EARLIEST = parse_rules("latest"), parse_rules("earliest")


def produce(cluster: KafkaCluster, topic: str, counts: Mapping[int, int], prefix: str = "") -> None:
    from confluent_kafka import Producer

    producer = Producer(dict(cluster.config))
    for number, count in counts.items():
        for i in range(count):
            producer.produce(topic, value=f"{prefix}{number}-{i}", partition=number, timestamp=DATED_MS)
    assert producer.flush(30) == 0


@dataclass(frozen=True, kw_only=True)
class Bed:
    old: KafkaCluster
    new: KafkaCluster

    @property
    def clusters(self) -> ClusterPair:
        return ClusterPair(source=self.old, target=self.new)

    def savepoint(self, *sources: Mapping[str, Mapping[int, int]]) -> Manifest:
        """Return a savepoint of one query that reads these topics of the old cluster to these offsets."""
        view = describe(self.old, {topic for offsets in sources for topic in offsets})
        query = QuerySnapshot(
            name="totals",
            query_id="q",
            batch_id=BatchId(3),
            checkpoint_location="x",
            planned_offsets=None,
            pinned_confs={},
            kafka={
                str(position): KafkaPosition(
                    cluster_id=view.cluster_id,
                    topic_ids={topic: view.topics[topic].topic_id for topic in offsets},
                    offsets=Offsets.of(
                        {t: {p: NextOffset(at) for p, at in parts.items()} for t, parts in offsets.items()}
                    ),
                    log_range={},
                )
                for position, offsets in enumerate(sources)
            },
            files=(),
        )
        return a_manifest(query)

    def plan(
        self,
        manifest: Manifest,
        rule: SourceRule,
        sources: Mapping[str, SourceRule] | None = None,
        **request: Any,
    ) -> OffsetRewritePlan:
        rules = StrategyRules(default=rule, sources=sources or {})
        return plan_migration(manifest, self.clusters, ProofRequest(**request), rules)


def moved_to(cluster: KafkaCluster, manifest: Manifest) -> Manifest:
    """Return a savepoint that stands on another cluster already."""
    cluster_id = describe(cluster, ()).cluster_id
    (query,) = manifest.queries
    there = {source: replace(position, cluster_id=cluster_id) for source, position in query.kafka.items()}
    return a_manifest(replace(query, kafka=there))


def verdicts(plan: OffsetRewritePlan) -> dict[tuple[str, int], Any]:
    return {(move.target_topic, move.partition): move.after for move in plan.moves}


@pytest.fixture(scope="module")
def bed(kafka_pair: KafkaPair) -> Bed:
    old = KafkaCluster(name="old", config={"bootstrap.servers": kafka_pair.old.bootstrap})
    new = KafkaCluster(name="new", config={"bootstrap.servers": kafka_pair.new.bootstrap})
    for topic, there in (("w.same", 2), ("w.more", 3), ("w.empty", 2)):
        kafka_pair.old.create_topic(topic, partitions=2)
        kafka_pair.new.create_topic(topic, partitions=there)
    for topic in ("w.eu", "w.us"):
        kafka_pair.new.create_topic(topic, partitions=1)
    for cluster in (old, new):
        produce(cluster, "w.same", {0: 30, 1: 30})
    produce(old, "w.more", {0: 10, 1: 10})
    produce(new, "w.more", {0: 4, 1: 4, 2: 4})
    produce(old, "w.empty", {0: 5, 1: 5})
    return Bed(old=old, new=new)


def test_new_identity_drops_the_old_position_and_takes_the_targets_partitions(bed: Bed):
    savepoint = bed.savepoint({"w.more": {0: 7, 1: 2}})
    plan = bed.plan(savepoint, SourceRule(strategy="new_identity", start=LATEST))
    assert {tp: verdict.offset for tp, verdict in verdicts(plan).items()} == {
        ("w.more", 0): 4, ("w.more", 1): 4, ("w.more", 2): 4,
    }  # fmt: skip
    assert all(isinstance(verdict, Chosen) for verdict in verdicts(plan).values())
    (strategy,) = plan.strategies
    assert "11 offsets are unread on the old cluster, 0 offsets follow" in strategy.consequence
    assert "about as many are left out" in strategy.consequence


def test_new_identity_beside_a_proved_source_leaves_the_proof_alone(bed: Bed):
    savepoint = bed.savepoint({"w.same": {0: 20, 1: 15}}, {"w.more": {0: 7, 1: 2}})
    anew = SourceRule(strategy="new_identity", start=EARLIEST)
    plan = bed.plan(savepoint, SourceRule(), {"totals/1": anew})
    found = verdicts(plan)
    assert (found["w.same", 0], found["w.same", 1]) == (Exact(NextOffset(20)), Exact(NextOffset(15)))
    assert [found["w.more", number].offset for number in range(3)] == [0, 0, 0]
    assert [one.strategy for one in plan.strategies] == ["proved", "new_identity"]


def test_source_whose_cluster_is_gone_can_only_begin_anew(bed: Bed):
    savepoint, clusters = bed.savepoint({"w.same": {0: 20, 1: 15}}), ClusterPair(source=None, target=bed.new)
    rules = StrategyRules(
        default=SourceRule(
            strategy="new_identity", start=parse_rules("offsets:" + '{"w.same": {"0": 3, "1": 4}}')
        )
    )
    plan = plan_migration(savepoint, clusters, ProofRequest(), rules)
    assert [move.after.offset for move in plan.moves if not isinstance(move.after, Refused)] == [3, 4]
    assert plan.source_cluster_id is None
    with pytest.raises(BadInputError, match="old cluster was expected"):
        plan_migration(savepoint, clusters, ProofRequest())


def test_cluster_that_does_not_answer_is_named(bed: Bed):
    gone = KafkaCluster(name="gone", config={"bootstrap.servers": "127.0.0.1:1"}, request_timeout_s=1)
    savepoint = bed.savepoint({"w.same": {0: 20, 1: 15}})
    for clusters in (ClusterPair(source=gone, target=bed.new), ClusterPair(source=bed.old, target=gone)):
        with pytest.raises(ClusterUnreachableError, match="gone"):
            plan_migration(savepoint, clusters, ProofRequest())


def test_rule_for_a_source_that_does_not_exist_names_those_that_do(bed: Bed):
    savepoint = bed.savepoint({"w.same": {0: 20, 1: 15}})
    with pytest.raises(BadInputError, match=r"\(totals/0\), but there are some for totals/9"):
        bed.plan(savepoint, SourceRule(), {"totals/9": SourceRule()})


def test_target_topic_that_does_not_exist_is_named(bed: Bed):
    with pytest.raises(TopicMissingError, match=r"w\.nowhere"):
        bed.plan(bed.savepoint({"w.same": {0: 1, 1: 1}}), SourceRule(), rename={"w.same": "w.nowhere"})


def test_other_partition_count_is_refused_with_the_reason_and_can_begin_anew(bed: Bed):
    savepoint = bed.savepoint({"w.same": {0: 20, 1: 15}, "w.more": {0: 7, 1: 2}})
    refused = verdicts(bed.plan(savepoint, SourceRule()))
    assert isinstance(refused["w.same", 0], Exact)
    assert "has 2 partitions, its copy 3" in refused["w.more", 0].reason
    plan = bed.plan(savepoint, SourceRule(topology="repartitioned", start=EARLIEST))
    assert not plan.refused
    assert [verdicts(plan)["w.more", number].offset for number in range(3)] == [0, 0, 0]
    assert isinstance(verdicts(plan)["w.same", 1], Exact)
    assert "w.more: the old positions are dropped, begins at earliest" in plan.strategies[0].consequence
    assert "11 offsets are unread on the old cluster, 12 offsets follow" in plan.strategies[0].consequence


def test_split_topic_is_refused_and_can_begin_anew_in_both_halves(bed: Bed):
    savepoint, rename = bed.savepoint({"w.same": {0: 20, 1: 15}}), {"w.same": "w.eu,w.us"}
    (first, *_) = bed.plan(savepoint, SourceRule(), rename=rename).refused
    assert isinstance(first.after, Refused)
    assert "topic w.same is split into w.eu and w.us" in first.after.reason
    plan = bed.plan(savepoint, SourceRule(topology="repartitioned", start=EARLIEST), rename=rename)
    assert {tp: verdict.offset for tp, verdict in verdicts(plan).items()} == {("w.eu", 0): 0, ("w.us", 0): 0}


def test_merged_topics_are_refused_and_can_begin_anew(bed: Bed):
    savepoint = bed.savepoint({"w.same": {0: 20, 1: 15}, "w.more": {0: 7, 1: 2}})
    rename = dict.fromkeys(("w.same", "w.more"), "w.eu")
    assert len(bed.plan(savepoint, SourceRule(), rename=rename).refused) == 4
    plan = bed.plan(savepoint, SourceRule(topology="repartitioned", start=LATEST), rename=rename)
    assert [move.topic for move in plan.moves] == ["w.more + w.same"]


def test_drained_source_begins_with_the_first_record_of_an_empty_target(bed: Bed):
    plan = bed.plan(bed.savepoint({"w.empty": {0: 5, 1: 5}}), SourceRule(strategy="producers_first"))
    assert verdicts(plan) == {("w.empty", 0): Exact(NextOffset(0)), ("w.empty", 1): Exact(NextOffset(0))}
    assert plan.strategies[0].consequence.endswith("every record is read once")


def test_source_that_is_not_read_to_its_end_is_refused_with_what_is_unread(bed: Bed):
    plan = bed.plan(bed.savepoint({"w.empty": {0: 5, 1: 3}}), SourceRule(strategy="producers_first"))
    (refused,) = plan.refused
    assert refused.partition == 1
    assert refused.after == Refused(
        "the job is at 3 and the old topic ends at 5: it is not read to its end",
        (NextOffset(3), NextOffset(5)),
    )


def test_drained_source_does_not_read_again_what_a_mirror_has_copied(bed: Bed):
    savepoint = bed.savepoint({"w.same": {0: 30, 1: 30}})
    plan = bed.plan(savepoint, SourceRule(strategy="producers_first"))
    assert len(plan.refused) == 2
    assert "holds 30 offsets already" in plan.refused[0].describe()
    chosen = bed.plan(savepoint, SourceRule(strategy="producers_first", start=LATEST))
    assert [verdict.offset for verdict in verdicts(chosen).values()] == [30, 30]


def test_old_topic_with_an_open_transaction_is_not_drained(bed: Bed, kafka_pair: KafkaPair):
    from confluent_kafka import Producer

    for broker in kafka_pair:
        broker.create_topic("w.open", partitions=1)
    producer = Producer({**bed.old.config, "transactional.id": "w-open", "log_level": 2})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("w.open", value="undecided", partition=0)
    producer.flush(30)
    try:
        plan = bed.plan(bed.savepoint({"w.open": {0: 1}}), SourceRule(strategy="producers_first"))
        assert "a transaction is open on the old topic from offset 0 on" in plan.refused[0].describe()
    finally:
        producer.abort_transaction(30)


def test_offsets_of_a_group_on_the_target_are_taken_and_called_unproved(bed: Bed):
    from airflow_flinkstyle.kafka.groups import set_group_offsets

    set_group_offsets(bed.new, "w-group", Offsets({("w.same", 0): 12, ("w.same", 1): 13}))
    rule = SourceRule(strategy="new_identity", start=parse_rules("group:w-group"))
    plan = bed.plan(bed.savepoint({"w.same": {0: 20, 1: 15}}), rule)
    assert [verdict.offset for verdict in verdicts(plan).values()] == [12, 13]
    assert "unproved" in plan.as_markdown()


def test_mirror_is_only_asked_about_topics_whose_positions_are_proved(bed: Bed):
    anew = SourceRule(strategy="new_identity", start=LATEST)
    kafka = LiveKafka(
        old=bed.old,
        new=bed.new,
        mirror=MirrorSettings(source_alias="none", target_alias="there"),
        strategies=StrategyRules(
            default=SourceRule(topology="repartitioned", start=EARLIEST), sources={"totals/1": anew}
        ),
    )
    assert kafka.to_prove({"totals/0": ["w.same", "w.more"], "totals/1": ["w.empty"]}) == {"w.same"}
    kafka.await_mirrored({"totals/1": ["w.empty"]}, timeout_s=1)
    with pytest.raises(MirrorPositionMissingError):
        kafka.await_mirrored({"totals/0": ["w.same"]}, timeout_s=1)


def test_source_that_has_read_nothing_moves_with_the_others_and_needs_no_position(bed: Bed):
    rule = SourceRule(strategy="new_identity", start=EARLIEST)
    plan = bed.plan(bed.savepoint({"w.same": {0: 1, 1: 0}}, {}), rule)
    assert [str(ref) for ref in plan.sources] == ["totals/0", "totals/1"]
    assert plan.unread == ("totals/1",)
    assert OffsetRewritePlan.from_json(plan.to_json()) == plan
    assert "begins on the target: totals/1" in plan.as_markdown()
    alone = bed.plan(bed.savepoint({}), SourceRule(strategy="proved", start=None))
    assert (alone.unread, alone.moves) == (("totals/0",), ())
    assert "no source has read anything yet" in alone.as_markdown()


def test_plan_that_would_move_nothing_is_refused(bed: Bed):
    rules = StrategyRules(default=SourceRule(strategy="new_identity", start=EARLIEST))
    clusters = ClusterPair(source=None, target=bed.new)
    there = moved_to(bed.new, bed.savepoint({"w.same": {0: 1, 1: 0}}))
    with pytest.raises(BadInputError, match=r"to move, found that all read cluster .* already"):
        plan_migration(there, clusters, ProofRequest(), rules)
    with pytest.raises(BadInputError, match="to move, found no Kafka source at all"):
        plan_migration(bed.savepoint(), clusters, ProofRequest(), rules)


def test_topic_that_joined_and_partitions_that_came_meanwhile_are_in_the_plan(
    bed: Bed,
):
    savepoint = bed.savepoint(
        {"w.same": {0: 20}}
    )  # partition 1 came, nobody has asked for the topic's id yet
    (query,) = savepoint.queries
    joined = replace(query.kafka["0"], topic_ids={"w.same": None})
    plan = bed.plan(a_manifest(replace(query, kafka={"0": joined})), SourceRule())
    assert verdicts(plan)["w.same", 0] == Exact(NextOffset(20))
    (came,) = plan.refused  # from its first record on: only a mirror could tell that the copy has all of them
    assert (came.partition, came.before) == (1, None)
    assert "nothing proves that the mirror is in sync" in came.describe()
