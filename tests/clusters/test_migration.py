"""A migration between two Kafka clusters with the driver on a cluster, judged order by order."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from testbed.drivers import state_reader
from testbed.kafka import Broker
from testbed.kubernetes.layout import HOST
from testbed.mirror import Mirror, MirrorSettings
from testbed.ports import LOOPBACK
from testbed.scenario import OrdersScenario
from testbed.waiting import wait_until
from tests.conftest import KafkaPair
from tests.integration.cluster_lab import ON_CLUSTERS, Cluster, Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.judge import StateReader

pytestmark = pytest.mark.e2e


class OnCluster(OrdersScenario):
    """The orders job with its drivers on a cluster."""

    def hold_drivers_on(self, cluster: Cluster) -> None:
        """Let a cluster run all drivers from now on."""
        self.target = cluster.target(self.target)
        self.client = replace(self.client, base_env={**self.client.base_env, **cluster.env})

    def end_drivers(self) -> None:
        for generation in self.board.generations():
            if self.client.run(generation).submit is not None:
                self.client.end_driver(generation)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateReader]:
    with state_reader(tmp_path_factory.mktemp("judge")) as reader:
        reader.start()
        yield reader


@contextmanager
def mirrored_pair(folder: Path, host: str) -> Iterator[KafkaPair]:
    """Two brokers and their mirror, where drivers of the cluster reach them."""
    with Broker("old", folder / "old", host=host) as old, Broker("new", folder / "new", host=host) as new:
        settings = MirrorSettings(
            source_bootstrap=old.bootstrap, target_bootstrap=new.bootstrap, topics="orders.*"
        )
        with Mirror(folder / "mirror", settings):
            yield KafkaPair(old, new)


@pytest.mark.parametrize("place", ON_CLUSTERS)
def test_migration_with_the_driver_on_a_cluster_loses_no_order_and_counts_none_twice(
    place: Place, tmp_path_factory: pytest.TempPathFactory, reader: StateReader
):
    folder = tmp_path_factory.mktemp(place)  # the kubelet's sockets have room for a short name only
    with (
        Cluster(place, folder) as cluster,
        mirrored_pair(folder, LOOPBACK if cluster.kubernetes is None else HOST) as (old_broker, new_broker),
        OnCluster(
            folder=folder / "job", old=old_broker, new=new_broker, topic=f"orders-on-{place}"
        ) as scenario,
    ):
        scenario.hold_drivers_on(cluster)
        scenario.create_topic(deleted={0: 100, 1: 40, 2: 250})
        scenario.start_producer()
        old = scenario.start()
        report = scenario.cutover(hot=scenario.hot_savepoint()).run()
        assert report.generation != old
        assert not report.plan.refused
        wait_until("orders go to new", lambda: scenario.producer_is_at() == "new")
        scenario.wait_commits(2)
        submit = scenario.board.submit(report.generation)
        assert submit is not None
        assert submit.value.deployment == place
        judgement = scenario.judge(reader, scenario.new)
        assert judgement.right, judgement
