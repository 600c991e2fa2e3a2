"""A standalone cluster of two masters: the one that leads dies, the other one takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.running.client import Stopped
from airflow_flinkstyle.jobs.status import Dead, Running
from testbed.waiting import wait_until
from tests.integration.cluster_lab import Cluster, ClusterLab
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
_ELECTION_S = 300
"""ZooKeeper forgets a leader after 60 s; then the other one asks all workers."""


@pytest.mark.parametrize("place", ["standalone"])
def test_master_that_leads_and_dies_is_followed_by_the_other_and_the_job_runs_on(place: str, tmp_path: Path):
    with Cluster(place, tmp_path, masters=2) as cluster:
        assert cluster.standalone is not None
        lab = ClusterLab(tmp_path / "job", cluster)
        client = lab.client
        handle = client.start(lab.spec(), lab.target(), claim_key="start")
        client.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        batch, driver = lab.until_committed_beyond(1), lab.jvm()

        dead = cluster.standalone.leader
        dead.service.kill()
        assert isinstance(client.settled_status(), Running), "the driver needs no master"
        lab.until_committed_beyond(batch + 1)
        others = [one for one in cluster.standalone.masters if one is not dead]
        wait_until("another leads", lambda: others[0].status() == "ALIVE", timeout_s=_ELECTION_S)
        assert lab.jvm() == driver
        assert client.board.newest_submit(1) == 1

        lab.kill_9()  # what is asked of the cluster now is asked of the other master
        wait_until("it is dead", lambda: isinstance(client.status(), Dead), timeout_s=TIMEOUT_S)
        client.ensure_running()
        client.wait_running(1, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
        assert isinstance(client.stop("stop", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
        lab.judge()
