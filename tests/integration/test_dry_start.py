"""What a dry run says of a savepoint's positions, asked of a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from airflow_flinkstyle.jobs.start.dry import NotJudged, Passes, Refuses, check_positions
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import Reading
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.types import BatchId
from tests.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testbed.kafka import Broker

pytestmark = [pytest.mark.integration, pytest.mark.kafka]
TOPIC = "dry.start"


@pytest.fixture(scope="module")
def cluster(old_broker: Broker) -> KafkaCluster:
    """Partition 0 has offsets 10 to 99, partition 1 is empty."""
    old_broker.create_topic(TOPIC, partitions=2)
    producer = Producer({"bootstrap.servers": old_broker.bootstrap})
    for number in range(100):
        producer.produce(TOPIC, value=str(number), partition=0)
    assert producer.flush(30) == 0
    old_broker.delete_records(TOPIC, {0: 10})
    return KafkaCluster(name="old", config={"bootstrap.servers": old_broker.bootstrap})


def saved(cluster: KafkaCluster, at: Mapping[int, int], **changes: Any) -> Manifest:
    view = describe(cluster, [TOPIC])
    values: dict[str, Any] = {
        "cluster_id": view.cluster_id,
        "topic_ids": {TOPIC: view.topics[TOPIC].topic_id},
        "offsets": Offsets.of({TOPIC: at}),  # type: ignore[dict-item]
        "log_range": {},
    }
    planned = changes.pop("planned", None)
    query = QuerySnapshot(
        name="totals", query_id="q", batch_id=BatchId(4), checkpoint_location="x", planned_offsets=planned,
        pinned_confs={}, kafka={"0": KafkaPosition(**{**values, **changes})}, files=(),
    )  # fmt: skip
    return a_manifest(query)


def verdict(manifest: Manifest, *clusters: KafkaCluster) -> Any:  # noqa: ANN401  # any of the three
    (check,) = check_positions(manifest, clusters)
    assert check.about == "positions of query totals, source 0"
    return check.verdict


def test_positions_in_their_logs_pass_with_what_is_left_and_how_near_they_are_to_deletion(
    cluster: KafkaCluster,
):
    found = verdict(saved(cluster, {0: 40, 1: 0}), cluster)
    assert isinstance(found, Passes)
    assert "60 offsets before their ends" in found.says
    assert f"{TOPIC}-1, is 0 offsets" in found.says


@pytest.mark.parametrize(
    ("at", "changes", "code"),
    [
        ({0: 9, 1: 0}, {}, "OFFSET_BEFORE_START"),
        ({0: 101, 1: 0}, {}, "OFFSET_BEYOND_END"),
        ({0: 40, 1: 0}, {"topic_ids": {TOPIC: "another"}}, "TOPIC_RECREATED"),
        ({0: 40, 1: 0}, {"offsets": Offsets.of({"gone": {0: 1}}), "topic_ids": {}}, "TOPIC_MISSING"),  # type: ignore[dict-item]
        (
            {0: 40, 1: 0},
            {"planned": f'v1\n{{"conf":{{}}}}\n{{"{TOPIC}":{{"0":101,"1":0}}}}'},
            "OFFSET_BEYOND_END",
        ),
    ],
    ids=["deleted", "beyond", "recreated", "missing", "planned beyond"],
)
def test_positions_that_the_guard_refuses_are_refused(
    cluster: KafkaCluster, at: dict[int, int], changes: dict[str, Any], code: str
):
    found = verdict(saved(cluster, at, **changes), cluster)
    assert isinstance(found, Refuses)
    assert found.code == code
    assert found.remedy


def reading(**rules: bool) -> dict[str, dict[str, Reading]]:
    return {"totals": {"0": Reading(servers="a:9092", isolation="read_uncommitted", **rules)}}


GONE = {
    "offsets": Offsets.of({TOPIC: {0: 40, 1: 0}, "gone": {0: 1}}),  # type: ignore[dict-item]
    "topic_ids": {"gone": "an id"},
}


@pytest.mark.parametrize(
    ("at", "changes", "rules", "code"),
    [
        ({0: 9, 1: 0}, {}, {"accepts_loss": True}, None),
        ({0: 9, 1: 0}, {}, {"follows_pattern": True}, "OFFSET_BEFORE_START"),
        ({0: 101, 1: 0}, {}, {"accepts_loss": True}, "OFFSET_BEYOND_END"),
        ({}, GONE, {"follows_pattern": True, "accepts_loss": True}, None),
        ({}, GONE, {"follows_pattern": True}, "TOPIC_MISSING"),
        ({}, GONE, {"accepts_loss": True}, "TOPIC_MISSING"),
    ],
)
def test_what_the_script_itself_accepts_refuses_no_start(
    cluster: KafkaCluster,
    at: dict[int, int],
    changes: dict[str, Any],
    rules: dict[str, bool],
    code: str | None,
):
    (check,) = check_positions(saved(cluster, at, **changes), [cluster], reading(**rules))
    if code is not None:
        assert check.verdict.code == code  # type: ignore[union-attr]
    else:
        assert isinstance(check.verdict, Passes)
        assert "as failOnDataLoss=false accepts, although" in check.verdict.says


def test_a_partition_more_is_read_from_its_beginning_as_spark_does(cluster: KafkaCluster):
    assert isinstance(verdict(saved(cluster, {0: 40}), cluster), Passes)


def test_another_cluster_says_nothing_and_is_named(cluster: KafkaCluster, new_broker: Broker):
    new = KafkaCluster(name="new", config={"bootstrap.servers": new_broker.bootstrap})
    found = verdict(saved(cluster, {0: 40, 1: 0}), new)
    assert isinstance(found, NotJudged)
    assert f"new reaches {new_broker.cluster_id}" in found.why
    assert isinstance(verdict(saved(cluster, {0: 40, 1: 0}), new, cluster), Passes)
