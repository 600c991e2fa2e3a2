"""What was approved is planned again on real clusters, after its file was edited and deleted."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.approval import approved_or_read, require_clusters
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.hooks.keys import run_key
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.verdict import Chosen
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.operators import PlanMigrationOperator
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, QuerySnapshot
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.keys import SIGNING_KEY
from testbed.refusals import refuses
from tests.manifests import a_manifest
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.kafka import Broker
    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.airflow]
TOPIC = "approved"


def connect(
    monkeypatch: pytest.MonkeyPatch, name: str, conn_type: str, extra: dict[str, Any], **fields: str
) -> None:
    value = json.dumps({"conn_type": conn_type, "extra": extra, **fields})
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", value)


def fill(broker: Broker, records: int) -> None:
    from confluent_kafka import Producer

    broker.create_topic(TOPIC, partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(records):
        producer.produce(TOPIC, value=str(number), partition=0)
    assert producer.flush(30) == 0


def a_savepoint(broker: Broker) -> Manifest:
    view = describe(KafkaCluster(name="old", config={"bootstrap.servers": broker.bootstrap}), {TOPIC})
    position = KafkaPosition(
        cluster_id=view.cluster_id,
        topic_ids={TOPIC: view.topics[TOPIC].topic_id},
        offsets=Offsets.of({TOPIC: {0: NextOffset(5)}}),
        log_range={},
    )
    query = QuerySnapshot(
        name="totals",
        query_id="q",
        batch_id=BatchId(3),
        checkpoint_location="x",
        planned_offsets=None,
        pinned_confs={},
        kafka={"0": position},
        files=(),
    )
    return a_manifest(query)


def starts(plan: OffsetRewritePlan) -> list[int]:
    return [move.after.offset for move in plan.moves if isinstance(move.after, Chosen)]


def test_file_edited_and_deleted_after_the_plan_leaves_the_positions_that_were_shown(
    kafka_pair: KafkaPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fill(kafka_pair.old, 10)
    fill(kafka_pair.new, 20)
    root = {"savepoint_root": str(tmp_path / "root")}
    connect(monkeypatch, "flinkstyle_default", "flinkstyle", root, password=SIGNING_KEY)
    connect(monkeypatch, "kafka_old", "kafka", {"bootstrap.servers": kafka_pair.old.bootstrap})
    connect(monkeypatch, "kafka_new", "kafka", {"bootstrap.servers": kafka_pair.new.bootstrap})
    hook, manifest, file = StreamingJobHook(), a_savepoint(kafka_pair.old), tmp_path / "starts.csv"
    repository = hook.repository(manifest.job)
    repository.publish(manifest)
    file.write_text(f"topic,partition,offset\n{TOPIC},0,7\n")
    operator = PlanMigrationOperator(
        task_id="plan",
        savepoint_id=manifest.savepoint_id,
        job=manifest.job,
        migration={
            "source_kafka_conn_id": "kafka_old",
            "target_kafka_conn_id": "kafka_new",
            "way": "new_identity",
            "start": f"file:{file}",
        },
    )
    context = a_context("plan")
    operator.execute(context)
    shown = context["ti"].xcoms["markdown"]
    assert kafka_pair.new.cluster_id in shown
    assert "| 5 | 7 chosen" in shown

    file.write_text(f"topic,partition,offset\n{TOPIC},0,11\n")
    approved = approved_or_read(hook, operator.form(), run_key(context))
    assert starts(hook.live_kafka(approved.migration).plan(manifest)) == [7]
    file.unlink()
    approved = approved_or_read(hook, operator.form(), run_key(context))
    kafka = hook.live_kafka(approved.migration)
    assert starts(kafka.plan(manifest)) == [7]
    require_clusters(approved, SimpleNamespace(kafka=kafka))  # type: ignore[arg-type]

    connect(monkeypatch, "kafka_new", "kafka", {"bootstrap.servers": kafka_pair.old.bootstrap})
    elsewhere = StreamingJobHook().live_kafka(approved.migration)
    with refuses(CLUSTER_MISMATCH, match=f"kafka_new, as approved.*{kafka_pair.new.cluster_id}"):
        require_clusters(approved, SimpleNamespace(kafka=elsewhere))  # type: ignore[arg-type]
    operator.migration = {**operator.migration, "start": "latest"}
    with pytest.raises(AirflowFailException, match=f"start: approved 'file:{file}', found 'latest'"):
        operator.execute(context)
