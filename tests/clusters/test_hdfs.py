"""A job whose script and checkpoint are on HDFS, as on most clusters of YARN."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.retention import prune_job
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.status import Dead
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.savepoint.retention.checkpoints import plan_checkpoints
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from testbed.clusters import Cluster, Place
from testbed.hdfs import CLIENT_CONF, Hdfs
from testbed.waiting import wait_until
from tests.integration.cluster_lab import ClusterLab
from tests.integration.detached_lab import COUNTS, TIMEOUT_S

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("place", ["standalone", "yarn"])
def test_job_whose_script_and_checkpoint_are_on_hdfs_is_killed_saved_and_resumed(
    place: Place, tmp_path: Path
):
    with Cluster(place, tmp_path) as cluster, Hdfs(tmp_path / "hdfs") as hdfs:
        lab = ClusterLab(tmp_path / "job", cluster)
        client = lab.client
        spec = lab.spec(COUNTS)
        address = hdfs.put(lab.folder / "counts.py", "/counts.py")
        spec = replace(spec, script=address, checkpoint_root=f"{hdfs.uri}/checkpoints")
        target = lab.target(conf=CLIENT_CONF)
        handle = client.starts.start(spec, target, claim_key="hdfs")
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        assert handle.checkpoint_location.startswith(hdfs.uri)
        lab.until_committed_beyond(1)

        lab.kill_9()
        wait_until("it is dead", lambda: isinstance(client.view.status(), Dead), timeout_s=TIMEOUT_S)
        client.drivers.ensure_running()
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
        assert isinstance(client.requests.stop("stop", savepoint=True, timeout_s=TIMEOUT_S), Stopped)

        origin = FromSavepoint(savepoint_id=client.view.repository.ids()[-1])
        resumed = client.starts.start(spec, target, claim_key="resume", origin=origin)
        client.drivers.wait_running(resumed.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
        assert isinstance(client.requests.stop("stop-2", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
        lab.judge()
        if place == "standalone":
            _frees_the_checkpoint_before(lab, hdfs, spec, target)


def _frees_the_checkpoint_before(lab: ClusterLab, hdfs: Hdfs, spec: JobSpec, target: SubmitTarget) -> None:
    """No caller reads HDFS: the next driver frees what a prune has to leave there."""
    client, folder = lab.client, f"/checkpoints/{lab.client.view.job}"
    saved = client.view.repository.ids()[-1]
    check_savepoint(client.view.repository, saved, level="quick", by="t")
    report = prune_job(
        client.view.board,
        client.view.repository,
        RetentionPolicy(),
        holder="t",
        wait_s=60,
        signer=client.view.signer,
    )
    assert {one.reason for one in report.checkpoints if one.generations == (1,)} == {
        "only Spark's own client reaches it: the next driver frees it"
    }
    first, second = hdfs.folders(folder)
    last = client.starts.start(spec, target, claim_key="frees", origin=FromSavepoint(savepoint_id=saved))
    client.drivers.wait_running(last.generation, timeout_s=TIMEOUT_S)
    wait_until("it is freed", lambda: first not in hdfs.folders(folder), timeout_s=TIMEOUT_S)
    assert second in hdfs.folders(folder)
    assert isinstance(client.requests.stop("stop-3", savepoint=False, timeout_s=TIMEOUT_S), Stopped)
    left = plan_checkpoints(client.view.board, client.view.repository)
    assert (1,) not in [one.generations for one in left]
