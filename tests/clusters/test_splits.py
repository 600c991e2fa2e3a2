"""A network that splits: the driver from its store or its cluster, and a cluster's manager from everybody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.status import Dead, Running
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.process import process_started
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed.clusters import ON_KUBERNETES, Cluster
from testbed.drivers import s3_env, s3_settings
from testbed.faulty_link import Break, FaultyLink
from testbed.kubernetes.layout import API_PORT, HOST
from testbed.s3 import VersityGw
from testbed.scenario import BUCKET
from testbed.waiting import wait_until
from tests.integration.cluster_lab import ClusterLab
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.target import SubmitTarget
    from testbed.clusters import Place

pytestmark = pytest.mark.integration
BATCHES_BESIDE = 90
"""While the manager answers nobody: at one a second, longer than a cluster waits for a node or a driver."""
BATCHES_AFTER = 30
"""Once it answers again: what it has missed, it has dealt with by then."""
on_this_machines_network = pytest.mark.parametrize(
    "cluster", ["detached", "standalone", "yarn"], indirect=True, scope="module"
)
on_kubernetes = pytest.mark.parametrize("cluster", ON_KUBERNETES, indirect=True, scope="module")
with_a_manager = pytest.mark.parametrize(
    "cluster", ["standalone", "yarn", "kubernetes"], indirect=True, scope="module"
)


class SplitLab(ClusterLab):
    """One job whose drivers reach the store by a way that can break; the callers reach it anyhow."""

    def __init__(self, folder: Path, cluster: Cluster, server: VersityGw, way: str) -> None:
        super().__init__(folder, cluster, secret_env=s3_env(server, way=way))
        self._server = server
        store = open_store(f"s3://{BUCKET}", s3_settings(server))
        self.client = replace(
            self.client,
            view=replace(
                self.client.view,
                board=JobBoard(store, "counts"),
                repository=SavepointRepository(store, "counts"),
            ),
        )

    def let_drivers_start_elsewhere(self) -> None:
        """From now on drivers start where the network is whole."""
        self.client = replace(self.client, view=replace(self.client.view, secret_env=s3_env(self._server)))


@pytest.fixture
def link(tmp_path: Path) -> Iterator[tuple[VersityGw, FaultyLink]]:
    with VersityGw(tmp_path) as server, FaultyLink(server.port) as link:
        server.create_bucket(BUCKET)
        yield server, link


@on_this_machines_network
def test_driver_that_is_split_from_its_store_ends_and_another_one_loses_nothing(
    cluster: Cluster, link: tuple[VersityGw, FaultyLink]
):
    server, way = link
    lab = SplitLab(cluster.folder / "split", cluster, server, way.endpoint)
    try:
        client = lab.client
        handle = client.starts.start(lab.spec(), lab.target(), claim_key="split")
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(1)
        split = lab.jvm()
        way.break_at(Break(fault="stall", direction="sent", after_bytes=0))
        wait_until("the driver has ended, which nobody asked it to", lambda: process_started(split) is None)
        written = lab.out.read_text()
        wait_until("it counts as dead", lambda: isinstance(client.view.status(), Dead), timeout_s=TIMEOUT_S)
        lab.let_drivers_start_elsewhere()
        lab.client.drivers.ensure_running()
        lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        way.mend()
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 2)
        assert lab.out.read_text().startswith(written)
        assert lab.client.view.board.newest_submit(handle.generation) == 2
        lab.judge()
    finally:
        way.mend()
        lab.end()


@with_a_manager
def test_manager_that_answers_nobody_for_a_while_leaves_one_driver_which_loses_nothing(
    cluster: Cluster, lab: ClusterLab
):
    client = lab.client
    handle = client.starts.start(lab.spec(), lab.target(), claim_key="manager")
    client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    beyond = lab.until_committed_beyond(1) + BATCHES_BESIDE
    cluster.freeze_manager()
    try:
        beyond = lab.until_committed_beyond(beyond) + BATCHES_AFTER
    finally:
        cluster.thaw_manager()
    lab.until_looked_after_beyond(beyond, timeout_s=2 * TIMEOUT_S)
    assert isinstance(client.requests.stop("stop-manager", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
    lab.judge()


@on_kubernetes
def test_pod_that_is_split_from_its_store_ends_and_another_one_loses_nothing(
    cluster: Cluster, tmp_path: Path
):
    assert cluster.kubernetes is not None
    with VersityGw(tmp_path, host=HOST) as server:
        server.create_bucket(BUCKET)
        lab = SplitLab(cluster.folder / "split", cluster, server, server.endpoint)
        client = lab.client
        handle = client.starts.start(lab.spec(), lab.target(), claim_key="split")
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(1)
        split = lab.jvm()
        with cluster.kubernetes.without_way(lab.pod(), server.port):
            wait_until(
                "the driver has ended, which nobody asked it to", lambda: process_started(split) is None
            )
            written = lab.out.read_text()
            wait_until(
                "it counts as dead", lambda: isinstance(client.view.status(), Dead), timeout_s=TIMEOUT_S
            )
            client.drivers.ensure_running()  # its pod has another address
            client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 2)
        assert lab.out.read_text().startswith(written)
        assert client.view.board.newest_submit(handle.generation) == 2
        assert isinstance(client.requests.stop("stop-split", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
        lab.judge()


@on_kubernetes
def test_pod_that_is_split_from_the_api_server_alone_runs_on_and_stops_when_asked(
    cluster: Cluster,
):
    assert cluster.kubernetes is not None
    lab = ClusterLab(cluster.folder / "split-from-api", cluster)
    lab.client.starts.start(lab.spec(), lab.target(), claim_key="split-from-api")
    lab.client.drivers.wait_running(lab.newest_generation(), timeout_s=TIMEOUT_S)
    driver, batch = lab.jvm(), lab.until_committed_beyond(1)
    with cluster.kubernetes.without_way(lab.pod(), API_PORT):
        lab.until_committed_beyond(batch + BATCHES_BESIDE)
        assert lab.jvm() == driver
        assert isinstance(
            lab.client.requests.stop("stop-split", savepoint=True, timeout_s=TIMEOUT_S), Stopped
        )
        wait_until("its process has ended", lambda: process_started(driver) is None, timeout_s=TIMEOUT_S)
    lab.judge()


@pytest.mark.parametrize("place", ["standalone", "yarn"])
def test_driver_that_is_split_from_its_cluster_alone_is_followed_by_one_that_loses_nothing(
    place: Place, tmp_path: Path
):
    given_up = {"yarn.am.liveness-monitor.expiry-interval-ms": "20000"}
    with Cluster(place, tmp_path, yarn=given_up) as cluster, FaultyLink(_drivers_port(cluster)) as link:
        lab = ClusterLab(tmp_path / "job", cluster)
        target = lab.target(conf={"spark.flinkstyle.executorTimeout": "20s"})
        handle = lab.client.starts.start(lab.spec(), _by_way_of(link, cluster, target), claim_key="split")
        lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        beyond = lab.until_committed_beyond(1) + BATCHES_BESIDE
        link.break_at(Break(fault="stall", direction="sent", after_bytes=0))
        wait_until(
            "the driver has run on without its cluster, or was ended by it",
            lambda: (
                lab.has_committed_beyond(beyond) or not isinstance(lab.client.view.settled_status(), Running)
            ),
            timeout_s=TIMEOUT_S,
        )
        link.mend()  # a standalone master now takes the executors away for good
        lab.until_looked_after_beyond(beyond + BATCHES_AFTER, timeout_s=2 * TIMEOUT_S)
        assert isinstance(
            lab.client.requests.stop("stop-split", savepoint=True, timeout_s=TIMEOUT_S), Stopped
        )
        lab.judge()


def _drivers_port(cluster: Cluster) -> int:
    """Return where drivers report to the cluster's manager."""
    if cluster.yarn is not None:
        return cluster.yarn.drivers_port
    assert cluster.standalone is not None
    return cluster.standalone.masters[0].port


def _by_way_of(link: FaultyLink, cluster: Cluster, target: SubmitTarget) -> SubmitTarget:
    """Return a target whose drivers reach their cluster's manager over a link."""
    if cluster.yarn is None:
        return replace(target, master=f"spark://{link.address}")
    cluster.yarn.tell_drivers(link.address)
    return target
