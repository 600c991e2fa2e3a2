"""The migration DAG in Airflow with the driver on a cluster, from one Kafka cluster to another, judged."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from testbed import paths
from testbed.airflow import Airflow
from testbed.clusters import ON_CLUSTERS, Cluster, Place
from testbed.drivers import state_reader
from testbed.kafka import Broker
from testbed.kubernetes.layout import HOST
from testbed.mirror import Mirror, MirrorSettings
from testbed.ports import LOOPBACK
from testbed.scenario import OrdersScenario
from testbed.waiting import wait_until
from tests.clusters.connections import connections_of
from tests.conftest import KafkaPair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.judge import StateReader

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]
DAG = "migrate_kafka_cluster"


class OnCluster(OrdersScenario):
    """The orders job with its drivers on a cluster."""

    def hold_drivers_on(self, cluster: Cluster) -> None:
        """Let a cluster run all drivers from now on."""
        self.target = cluster.target(self.target)
        self.client = replace(
            self.client, view=replace(self.client.view, base_env={**self.client.view.base_env, **cluster.env})
        )

    def connections(self) -> dict[str, str]:
        return {**super().connections(), **connections_of(self.target)}

    def end_drivers(self) -> None:
        for generation in self.board.generations():
            if self.client.view.run(generation).submit is not None:
                self.client.drivers.end_driver(generation)


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
def test_migration_by_the_dag_with_the_driver_on_a_cluster_loses_no_order_and_counts_none_twice(
    place: Place, tmp_path_factory: pytest.TempPathFactory, reader: StateReader
):
    folder = tmp_path_factory.mktemp(place)  # the kubelet's sockets have room for a short name only
    with (
        Cluster(place, folder) as cluster,
        mirrored_pair(folder, LOOPBACK if cluster.kubernetes is None else HOST) as (old_broker, new_broker),
        OnCluster(folder=folder / "job", old=old_broker, new=new_broker, topic=f"orders-on-{place}") as job,
    ):
        job.hold_drivers_on(cluster)
        job.create_topic(deleted={0: 100, 1: 40, 2: 250})
        job.start_producer()
        airflow = Airflow(
            folder / "airflow", paths.ROOT / "dags", connections=job.connections(), env=cluster.env
        )
        with airflow:
            api = airflow.api
            for dag in ("start_job", DAG):
                api.wait_for_dag(dag)
            started = api.trigger("start_job", job.start_form())
            assert api.wait_for_run("start_job", started) == "success", cluster.told()
            old = job.running().run.generation
            job.wait_commits(2)

            run = api.trigger(DAG, job.migration_form())
            api.wait_for_task(DAG, run, "approve", ("awaiting_input", "deferred"))
            api.respond(DAG, run, "approve", ["Approve"])
            assert api.wait_for_run(DAG, run) == "success", api.logs(DAG, run, "migrate")
            assert "refused" not in api.xcom(DAG, run, "migrate")["table"]
            wait_until("orders go to new", lambda: job.producer_is_at() == "new")
            job.wait_commits(2)
        new = job.running().run
        assert new.generation > old
        assert new.submit is not None
        assert new.submit.deployment == cluster.deployment
        judgement = job.judge(reader, job.new)
        assert judgement.right, judgement
