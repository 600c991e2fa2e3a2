"""Leaders die while a job runs and moves between clusters of three brokers; `make test-kafka-leaders`."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from testbed.broker_cluster import BrokerCluster
from testbed.mirror import Mirror, MirrorSettings
from testbed.scenario import OrdersScenario
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.jobs.migration.fence_phase import FenceWatch
    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
    from testbed.judge import StateReader

pytestmark = [pytest.mark.e2e, pytest.mark.versions]

TOPIC = "orders-leaders"
REPLICATED = {
    "replication.factor": "3",
    **{f"{topic}.topic.replication.factor": "3" for topic in ("checkpoints", "heartbeats", "offset-syncs")},
    **{f"{storage}.storage.replication.factor": "3" for storage in ("offset", "status", "config")},
}


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[OrdersScenario]:
    """A job between two clusters of three brokers, and a mirror."""
    with BrokerCluster("old", tmp_path / "old") as old, BrokerCluster("new", tmp_path / "new") as new:
        mirrored = MirrorSettings(
            source_bootstrap=old.bootstrap,
            target_bootstrap=new.bootstrap,
            topics="orders.*",
            more=REPLICATED,
        )
        with (
            Mirror(tmp_path / "mirror", mirrored),
            OrdersScenario(folder=tmp_path / "job", old=old, new=new, topic=TOPIC) as scenario,
        ):
            scenario.create_topic(deleted={0: 100, 1: 40})
            yield scenario


@dataclass
class Strikes:
    """Kills leaders, one of a cluster at a time, and starts each again once another broker leads."""

    struck: list[tuple[str, str]] = field(default_factory=list)
    """When, and which broker."""
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2))
    _back: dict[str, Future[None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def strike(self, cluster: BrokerCluster, when: str) -> None:
        """Kill the leader of partition 0, once all are in sync; return before another one leads."""
        with self._lock:
            if cluster.name in self._back:
                self._back[cluster.name].result()
            node = cluster.kill_leader(TOPIC, 0)
            self._back[cluster.name] = self._pool.submit(cluster.restart, node, TOPIC)
            self.struck.append((when, cluster.brokers[node].name))

    def wait_all_back(self) -> None:
        for restarted in self._back.values():
            restarted.result()


def struck(kafka: LiveKafka, old: BrokerCluster, new: BrokerCluster, strikes: Strikes) -> LiveKafka:
    """Return the same clusters; a leader has just died whenever they are asked something."""

    class Struck(LiveKafka):
        def who_writes(self, topics: Collection[str], window_s: float) -> str | None:
            strikes.strike(old, "hold")
            return LiveKafka.who_writes(self, topics, window_s)

        def await_mirrored(self, sources: Mapping[str, Collection[str]], timeout_s: float) -> None:
            strikes.strike(new, "caught-up")
            LiveKafka.await_mirrored(self, sources, timeout_s)

        def plan(self, manifest: Manifest, *, preview: bool = False) -> OffsetRewritePlan:
            strikes.strike(old, "translate")
            strikes.strike(new, "translate")
            return LiveKafka.plan(self, manifest, preview=preview)

        def apply(
            self, plan: OffsetRewritePlan, manifest: Manifest, repository: SavepointRepository
        ) -> Manifest:
            strikes.strike(new, "rewrite")
            return LiveKafka.apply(self, plan, manifest, repository)

        @property
        def watch(self) -> FenceWatch:
            strikes.strike(old, "watch")
            return LiveKafka.watch.__get__(self)

    return Struck(**{name: getattr(kafka, name) for name in LiveKafka.__slots__})


def test_job_moves_while_leaders_of_both_clusters_die_and_counts_each_order_once(
    clusters: OrdersScenario, reader: StateReader
):
    old, new = clusters.old, clusters.new
    assert isinstance(old, BrokerCluster)
    assert isinstance(new, BrokerCluster)
    clusters.start_producer()
    clusters.start()
    strikes = Strikes()
    strikes.strike(old, "running")
    clusters.wait_commits(3)
    hot = clusters.hot_savepoint()
    new.wait_for_topic(TOPIC)
    report = clusters.cutover(hot=hot, kafka=struck(clusters.kafka_side(), old, new, strikes)).run()
    assert not report.plan.refused
    wait_until("orders go to new", lambda: clusters.producer_is_at() == "new")
    strikes.strike(new, "moved")
    clusters.wait_commits(3)
    strikes.wait_all_back()
    said = [when for when, _ in strikes.struck]
    assert {"running", "hold", "watch", "caught-up", "translate", "rewrite", "moved"} == set(said)
    print(f"{report.downtime_s} s of downtime; {strikes.struck}")  # noqa: T201
    judgement = clusters.judge(reader, new)
    assert judgement.right, judgement
