"""Drivers on clusters: a story on each, with real daemons; the whole contract is ``make test-clusters``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.errors import JobRunningError
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.status import Dead
from testbed.clusters import Cluster, Place
from testbed.waiting import wait_until
from tests.integration.cluster_lab import ClusterLab
from tests.integration.detached_lab import TIMEOUT_S
from tests.nightly import matrix_but

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.mark.nightly
@pytest.mark.parametrize("place", matrix_but("standalone".__eq__, ["standalone", "yarn"]))
def test_driver_on_a_cluster_is_started_once_saved_killed_relaunched_and_stopped(
    place: Place, tmp_path: Path
):
    with Cluster(place, tmp_path) as cluster:
        lab = ClusterLab(tmp_path / "job", cluster)
        client = lab.client
        handle = client.starts.start(lab.spec(), lab.target(), claim_key="start")
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        assert handle.deployment == place
        with pytest.raises(JobRunningError):
            client.starts.start(lab.spec(), lab.target(), claim_key="another")
        batch = lab.until_committed_beyond(1)
        _, hot = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=TIMEOUT_S)
        assert hot.outcome == "done", hot.detail

        lab.kill_9()
        wait_until(
            "the driver counts as dead", lambda: isinstance(client.view.status(), Dead), timeout_s=TIMEOUT_S
        )
        client.drivers.ensure_running()
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(batch + 1)
        stopped = client.requests.stop("stop", savepoint=True, timeout_s=TIMEOUT_S)
        assert isinstance(stopped, Stopped)
        lab.judge()


@pytest.mark.matrix
def test_driver_whose_executors_are_gone_for_good_ends_and_the_next_one_goes_on(tmp_path: Path):
    with Cluster("standalone-client", tmp_path) as cluster:
        lab = ClusterLab(tmp_path / "job", cluster)
        client, target = lab.client, lab.target(conf={"spark.flinkstyle.executorTimeout": "5s"})
        handle = client.starts.start(lab.spec(), target, claim_key="start")
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        batch = lab.until_committed_beyond(1)

        [node] = cluster.nodes
        node.lose()
        wait_until("it counts as dead", lambda: isinstance(client.view.status(), Dead), timeout_s=TIMEOUT_S)
        assert "Spark's jobs have had no executor for" in lab.logs()
        node.daemon.start()
        lab.until_looked_after_beyond(batch + 2)
        assert isinstance(client.requests.stop("stop", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
        lab.judge()
