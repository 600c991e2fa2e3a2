"""The detached driver against a real standalone cluster of two workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from testbed.spark import SparkCluster
from testbed.waiting import PATIENCE_S

if TYPE_CHECKING:
    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = [pytest.mark.e2e, pytest.mark.matrix]


def test_a_job_on_a_standalone_cluster_survives_kill_9_and_resumes_from_its_savepoint(
    scenario: OrdersScenario, reader: StateReader
):
    with SparkCluster(scenario.folder / "cluster", workers=2) as cluster:
        conf = {**scenario.target.conf, "spark.executor.memory": "512m", "spark.cores.max": "2"}
        scenario.target = replace(scenario.target, master=cluster.master, conf=conf)
        scenario.start_producer()
        first = scenario.start()
        assert len(executors(cluster)) == 2
        scenario.hot_savepoint()

        scenario.kill_driver()
        scenario.client.drivers.ensure_running()
        assert scenario.client.drivers.wait_running(first, timeout_s=PATIENCE_S).heartbeat.incarnation == 2
        scenario.wait_commits(2)

        stopped = scenario.client.requests.stop("stop", savepoint=True, timeout_s=PATIENCE_S)
        assert isinstance(stopped, Stopped)
        second = scenario.start(key="again", origin=FromSavepoint(savepoint_id=stopped.savepoint_id))
        assert second > first
        judgement = scenario.judge(reader, scenario.old)
        assert judgement.right, judgement
        scenario.end_drivers()


def executors(cluster: SparkCluster) -> list[object]:
    """Return the workers that run something."""
    return [worker for worker in cluster.state()["workers"] if worker["coresused"]]
