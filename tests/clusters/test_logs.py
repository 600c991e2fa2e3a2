"""A driver's log that its node has given away, as YARN's log aggregation does once it has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.errors import DriverFailedError
from testbed.clusters import Cluster
from testbed.history_server import HistoryServer
from testbed.waiting import wait_until
from tests.integration.cluster_lab import ClusterLab
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.clusters import Place

pytestmark = pytest.mark.integration
FAILS = "import no_such_module_of_anyone\n"


@pytest.mark.parametrize("place", ["yarn"])
def test_log_that_was_aggregated_is_shown_where_the_node_says_it_is(place: Place, tmp_path: Path):
    history = HistoryServer(tmp_path)
    with Cluster(place, tmp_path, yarn=history.settings()) as cluster:
        assert cluster.yarn is not None
        with history.of(cluster.yarn):
            lab = ClusterLab(tmp_path / "job", cluster)
            handle = lab.client.starts.start(lab.spec(FAILS, "fails.py"), lab.target(), claim_key="fails")
            with pytest.raises(DriverFailedError, match="no_such_module_of_anyone"):
                lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
            own = cluster.yarn.folder / "containers"
            wait_until(
                "its node has no log of it", lambda: not list(own.glob("*/*/stdout")), timeout_s=TIMEOUT_S
            )
            run = lab.client.view.run(handle.generation)
            assert "ModuleNotFoundError: No module named 'no_such_module" in lab.client.view.log_tail(run)
