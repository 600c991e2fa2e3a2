"""A network that splits: the driver from its store, and a cluster's manager from everybody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.status import Dead
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.process import process_started
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed.drivers import s3_env, s3_settings
from testbed.faulty_link import Break, FaultyLink
from testbed.s3 import VersityGw
from testbed.scenario import BUCKET
from testbed.waiting import wait_until
from tests.integration.cluster_lab import ClusterLab
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.integration.cluster_lab import Cluster

pytestmark = pytest.mark.integration
BATCHES_BESIDE = 90
"""While the manager answers nobody: at one a second, longer than a cluster waits for a node or a driver."""
BATCHES_AFTER = 30
"""Once it answers again: what it has missed, it has dealt with by then."""
on_this_machines_network = pytest.mark.parametrize(
    "cluster", ["detached", "standalone", "yarn"], indirect=True, scope="module"
)
with_a_manager = pytest.mark.parametrize(
    "cluster", ["standalone", "yarn", "kubernetes"], indirect=True, scope="module"
)


class SplitLab(ClusterLab):
    """One job whose drivers reach the store over a link that can break; the callers reach it anyhow."""

    def __init__(self, folder: Path, cluster: Cluster, server: VersityGw, link: FaultyLink) -> None:
        super().__init__(folder, cluster, secret_env=s3_env(server, way=link.endpoint))
        self._server = server
        store = open_store(f"s3://{BUCKET}", s3_settings(server))
        self.client = replace(
            self.client, board=JobBoard(store, "counts"), repository=SavepointRepository(store, "counts")
        )

    def let_drivers_start_elsewhere(self) -> None:
        """From now on drivers start where the network is whole."""
        self.client = replace(self.client, secret_env=s3_env(self._server))


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
    lab = SplitLab(cluster.folder / "split", cluster, server, way)
    try:
        client = lab.client
        handle = client.start(lab.spec(), lab.target(), claim_key="split")
        client.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(1)
        split = lab.jvm()
        way.break_at(Break(fault="stall", direction="sent", after_bytes=0))
        wait_until("the driver has ended, which nobody asked it to", lambda: process_started(split) is None)
        written = lab.out.read_text()
        wait_until("it counts as dead", lambda: isinstance(client.status(), Dead), timeout_s=TIMEOUT_S)
        lab.let_drivers_start_elsewhere()
        lab.client.ensure_running()
        lab.client.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        way.mend()
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 2)
        assert lab.out.read_text().startswith(written)
        assert lab.client.board.newest_submit(handle.generation) == 2
        lab.judge()
    finally:
        way.mend()
        lab.end()


@with_a_manager
def test_manager_that_answers_nobody_for_a_while_leaves_one_driver_which_loses_nothing(
    cluster: Cluster, lab: ClusterLab
):
    client = lab.client
    handle = client.start(lab.spec(), lab.target(), claim_key="manager")
    client.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    beyond = lab.until_committed_beyond(1) + BATCHES_BESIDE
    cluster.freeze_manager()
    try:
        beyond = lab.until_committed_beyond(beyond) + BATCHES_AFTER
    finally:
        cluster.thaw_manager()
    lab.until_looked_after_beyond(beyond, timeout_s=2 * TIMEOUT_S)
    lab.judge()
