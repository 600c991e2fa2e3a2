"""Two masters or ResourceManagers: the one that leads dies, the other one takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.status import Dead, Running
from testbed.clusters import Cluster, Place
from testbed.waiting import wait_until
from tests.integration.cluster_lab import ClusterLab
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
_ELECTION_S = 300
"""ZooKeeper forgets a master after 60 s; then the other one asks all workers."""


def let_the_other_lead(cluster: Cluster) -> None:
    """Kill the leader, and wait until the other one leads: by election, or by YARN's administrator."""
    if cluster.standalone is not None:
        masters = cluster.standalone.masters
        dead = cluster.standalone.leader
        dead.service.kill()
        wait_until(
            "another leads",
            lambda: any(one.status() == "ALIVE" for one in masters if one is not dead),
            timeout_s=_ELECTION_S,
        )
    if cluster.yarn is not None:
        gone = cluster.yarn.leader
        gone.service.kill()
        cluster.yarn.let_lead(next(one for one in cluster.yarn.managers if one is not gone))


@pytest.mark.parametrize("place", ["standalone", "yarn", "yarn-kerberos"])
def test_leader_of_the_cluster_that_dies_is_followed_by_another_and_the_job_runs_on(
    place: Place, tmp_path: Path
):
    with Cluster(place, tmp_path, leaders=2) as cluster:
        lab = ClusterLab(tmp_path / "job", cluster)
        client = lab.client
        handle = client.starts.start(lab.spec(), lab.target(), claim_key="start")
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        batch, driver = lab.until_committed_beyond(1), lab.jvm()

        let_the_other_lead(cluster)
        assert isinstance(client.view.settled_status(), Running), "the driver needs no leader"
        client.drivers.ensure_running()
        lab.until_committed_beyond(batch + 1)
        assert lab.jvm() == driver
        assert client.view.board.newest_submit(1) == 1

        lab.kill_9()  # what is asked of the cluster now is asked of the other one
        wait_until("it is dead", lambda: isinstance(client.view.status(), Dead), timeout_s=TIMEOUT_S)
        client.drivers.ensure_running()
        client.drivers.wait_running(1, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
        assert isinstance(client.requests.stop("stop", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
        lab.judge()
