"""The pre-flight against two real clusters and MirrorMaker, for a job that is only recorded."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.errors import PREFLIGHT
from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from airflow_flinkstyle.jobs.migration.preflight import Preflight, run_preflight
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget, launch_of
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import QueryStatus, SinkLineage, Sinks, SourceIdentity
from airflow_flinkstyle.protocol.records import Claim, Current, Heartbeat, IncarnationRecord, TakeoverOrder
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.types import Generation
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests import hearts

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.mirror import Mirror
    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.integration, pytest.mark.kafka]
HOUR_MS = 3_600_000


class Bench:
    """Two clusters, and the records of a job that reads one topic of the old one."""

    def __init__(self, pair: KafkaPair, folder: Path) -> None:
        self.topic = f"orders-preflight-{uuid.uuid4().hex[:8]}"
        pair.old.create_topic(self.topic, partitions=2)
        self.old = KafkaCluster(name="old", config={"bootstrap.servers": pair.old.bootstrap})
        self.new = KafkaCluster(name="new", config={"bootstrap.servers": pair.new.bootstrap})
        self.store, self.folder = MemoryStore(), folder
        self.switch = StoreProducerSwitch(self.store, "job/switch.json")
        self.client = JobClient(
            view=JobView(
                board=JobBoard(self.store, "job"),
                repository=SavepointRepository(self.store, "job"),
                deployment=DetachedDeployment(),
                signer=SIGNER,
            )
        )

    def job_reads(
        self, *, topic_id: str | None = None, cluster_id: str | None = None, sinks: Sinks | None = None
    ) -> None:
        view, now_ms = describe(self.old, [self.topic]), time.time_ns() // 1_000_000
        spec = JobSpec(name="job", script="x.py", checkpoint_root=str(self.folder))
        target = SubmitTarget(master="local[1]", python="/usr/bin/python3", log_dir=str(self.folder))
        board = self.client.view.board
        claim = Claim(
            claim_key="k", follows=None, checkpoint_location="x", prepare_savepoint_id=None, overrides=(),
            lease_s=30, launch=launch_of(spec, target), claimed_at_ms=now_ms,
        )  # fmt: skip
        board.create_claim(1, SIGNER.sign(claim, board.claim_place(1)))
        board.create_takeover_order(
            1,
            TakeoverOrder(savepoint_id=None, closed_at=None, expected={}, parent=BEGINNING),
        )
        elsewhere = IncarnationRecord(
            host="another-machine", pid=2, jvm_pid=1, pid_started="1@boot", started_at_ms=now_ms
        )
        board.create_incarnation(1, 1, elsewhere)
        board.take_current(Current(generation=1, incarnation=1), seen=None)
        source = SourceIdentity(
            cluster_id=cluster_id or view.cluster_id,
            topic_ids={self.topic: topic_id or view.topics[self.topic].topic_id},
        )
        beat = QueryStatus(
            query_id="q", batch_id=1, batch_committed_at_ms=now_ms, sources={"0": source}, sinks=sinks
        )
        heartbeat = Heartbeat(
            incarnation=1, state="running", beat=1, written_at_ms=now_ms, spark_version="4.2.0",
            application_id="app", queries={"orders": beat},
        )  # fmt: skip
        hearts.begin(board, Generation(1), heartbeat)

    def read_up_to(self, offset: int) -> Manifest:
        """Return a savepoint of the job that has read so many records of partition 0."""
        view = describe(self.old, [self.topic])
        position = KafkaPosition(
            cluster_id=view.cluster_id, topic_ids={self.topic: view.topics[self.topic].topic_id},
            offsets=Offsets.of({self.topic: {0: offset, 1: 0}}), log_range={},
        )  # fmt: skip
        query = QuerySnapshot(
            name="orders", query_id="q", batch_id=1, checkpoint_location="x", planned_offsets=None,
            pinned_confs={}, kafka={"0": position}, files=(),
        )  # fmt: skip
        return Manifest(
            savepoint_id="sp-1", job="job", parent=None, alignment="aligned", taken_at_ms=1,
            taken_from_generation=1, batches_run=1, spark_version="4.2.0", evidence={}, queries=(query,),
        )  # fmt: skip

    def run(self, *, manifest: Manifest | None = None, **changes: KafkaCluster) -> Preflight:
        kafka = LiveKafka(**{
            "old": self.old, "new": self.new,
            "mirror": MirrorSettings(source_alias="old", target_alias="new"), **changes,
        })  # fmt: skip
        return run_preflight(self.client.view, kafka, self.switch, manifest=manifest)


@pytest.fixture
def bench(kafka_pair: KafkaPair, tmp_path: Path) -> Bench:
    return Bench(kafka_pair, tmp_path)


def test_everything_in_order_is_ok(bench: Bench, kafka_pair: KafkaPair, mirror: Mirror):
    kafka_pair.new.wait_for_topic(bench.topic)
    bench.job_reads()
    found = bench.run()
    assert {finding.check: finding.level for finding in found.findings} == {
        "job": "ok", "spark": "ok", "standby": "ok", "clusters": "ok", "topics": "ok", "mirror": "ok",
        "retention": "ok",
        "fence": "ok", "control topics": "ok", "producer switch": "ok",
    }  # fmt: skip
    found.require_ok()


def test_all_that_is_wrong_is_named_at_once(bench: Bench, kafka_pair: KafkaPair):
    kafka_pair.new.create_topic(bench.topic, partitions=3)
    bench.job_reads(topic_id="another-id")
    bench.switch.apply("hold", 1)
    with refuses(PREFLIGHT) as refused:
        bench.run().require_ok()
    for part in ("re-created", "2 partitions, its copy 3", "held already"):
        assert part in str(refused.value)


def test_both_connections_to_one_cluster_are_refused(bench: Bench):
    bench.job_reads()
    assert "two clusters were expected" in bench.run(new=bench.old).as_markdown()


def test_job_that_reads_another_cluster_is_refused(bench: Bench):
    bench.job_reads(cluster_id="a-third-cluster")
    assert "a-third-cluster" in bench.run().as_markdown()


def test_target_that_would_delete_unread_mirrored_records_is_refused(bench: Bench, kafka_pair: KafkaPair):
    from confluent_kafka import Producer

    bench.topic = f"{bench.topic}-short"  # on the target first: the mirror makes what it finds missing there
    kafka_pair.new.create_topic(bench.topic, partitions=2, config={"retention.ms": str(2 * HOUR_MS)})
    kafka_pair.old.create_topic(bench.topic, partitions=2)
    producer = Producer({"bootstrap.servers": kafka_pair.old.bootstrap})
    for _ in range(3):
        long_ago_ms = time.time_ns() // 1_000_000 - 5 * HOUR_MS
        producer.produce(bench.topic, b"order", partition=0, timestamp=long_ago_ms)
    producer.flush(30)
    bench.job_reads()
    refused = {finding.check: finding for finding in bench.run(manifest=bench.read_up_to(1)).refusals}
    detail = refused["retention"].detail
    assert f"retention.ms={2 * HOUR_MS} on the target" in detail
    assert "has not read (offsets by partition: 0: 2)" in detail
    assert "Raise retention.ms on both clusters" in detail
    with refuses(PREFLIGHT, match=r"Nothing was changed; the job keeps running\. Correct them"):
        bench.run(manifest=bench.read_up_to(1)).require_ok()
    assert "retention" not in {f.check for f in bench.run(manifest=bench.read_up_to(3)).refusals}


def test_control_topic_that_the_mirror_copies_is_refused(bench: Bench, kafka_pair: KafkaPair, mirror: Mirror):
    from confluent_kafka import Producer

    control = f"mirrored-{bench.topic}-ctl"
    kafka_pair.old.create_topic(control, partitions=2, config={"cleanup.policy": "compact"})
    lineage = SinkLineage(
        lineage="out", shards=1, control_topic=control, completed_batch=1, markers={0: 1},
        cluster_id=describe(bench.old, ()).cluster_id,
    )  # fmt: skip
    bench.job_reads(sinks=Sinks(lineages=(lineage,)))
    kafka_pair.new.wait_for_topic(bench.topic)
    assert "None of 1 is mirrored" in bench.run().as_markdown()
    kafka_pair.new.wait_for_topic(control)  # MirrorMaker has found it

    producer = Producer({"bootstrap.servers": kafka_pair.old.bootstrap})
    producer.produce(control, b"a marker", b"out-0", partition=1)
    producer.flush(30)
    deadline_s = time.monotonic() + 120
    while (table := bench.run().as_markdown()) and "is mirrored to" not in table:
        assert time.monotonic() < deadline_s, table
        time.sleep(0.5)
    assert (
        f"| control topics | refusal | {control}, the control topic of lineage out, is mirrored to" in table
    )
    assert f"topics.exclude={control}" in table


def test_job_that_does_not_run_is_refused(bench: Bench):
    assert [finding.check for finding in bench.run().refusals] == ["job"]


def test_unreachable_target_is_a_finding_not_a_crash(bench: Bench):
    bench.job_reads()
    gone = KafkaCluster(name="gone", config={"bootstrap.servers": "127.0.0.1:1"}, request_timeout_s=2)
    assert any("127.0.0.1:1" in finding.detail for finding in bench.run(new=gone).refusals)
