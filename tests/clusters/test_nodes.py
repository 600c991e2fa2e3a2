"""A node that is lost for good, with the driver that ran on it and all else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.request import Stopped
from testbed.clusters import Cluster, Place
from tests.integration.cluster_lab import ClusterLab
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
_GIVEN_UP_S = 600


@pytest.mark.parametrize("place", ["standalone", "yarn"])
def test_node_that_is_lost_with_its_driver_leaves_the_job_to_another_which_loses_nothing(
    place: Place, tmp_path: Path
):
    with Cluster(place, tmp_path, nodes=2) as cluster:
        lab = ClusterLab(tmp_path / "job", cluster)
        handle = lab.client.starts.start(lab.spec(), lab.target(), claim_key="node")
        lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        batch, driver = lab.until_committed_beyond(1), lab.jvm()
        [lost] = [node for node in cluster.nodes if node.holds(driver)]

        lost.lose()
        lab.until_looked_after_beyond(batch + 2, timeout_s=_GIVEN_UP_S)
        [other] = [node for node in cluster.nodes if node.holds(lab.jvm())]
        assert other.folder != lost.folder
        assert lab.client.view.board.newest_submit(handle.generation) == 2
        assert isinstance(lab.client.requests.stop("stop", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
        lab.judge()
