"""What a cluster does to a driver that it holds: a daemon that dies, a limit of memory, an eviction."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from airflow_flinkstyle.jobs.deployments.rest import read
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.status import Dead, Running
from airflow_flinkstyle.protocol.process import process_started
from testbed.clusters import ON_CLUSTERS, ON_KUBERNETES
from testbed.waiting import wait_until
from tests.integration.detached_lab import COUNTS, TIMEOUT_S, committed

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.spec import SubmitTarget
    from testbed.clusters import Cluster
    from tests.integration.cluster_lab import ClusterLab

pytestmark = pytest.mark.integration
on_clusters = pytest.mark.parametrize("cluster", ON_CLUSTERS, indirect=True, scope="module")
on_kubernetes = pytest.mark.parametrize("cluster", ON_KUBERNETES, indirect=True, scope="module")
with_daemons = pytest.mark.parametrize(
    "cluster", ["standalone", "yarn", "yarn-kerberos"], indirect=True, scope="module"
)
EATS = COUNTS.replace(
    "query.awaitTermination()",
    """import pathlib, time
while not pathlib.Path(out + ".eat").exists():
    time.sleep(0.1)
held = []
while True:
    held.append(b"x" * (64 << 20))
    time.sleep(0.05)""",
)
"""Takes memory without end, once it is told to."""
_SCRATCH = "/scratch"
FILLS = COUNTS.replace(
    "query.awaitTermination()",
    f"""import pathlib, time
while not pathlib.Path(out + ".fill").exists():
    time.sleep(0.1)
pathlib.Path("{_SCRATCH}", "much").write_bytes(b"x" * (64 << 20))
query.awaitTermination()""",
)
"""Fills its disk, once it is told to."""
_LIMIT_S = 600


@on_clusters
def test_pages_about_a_driver_open(cluster: Cluster, lab: ClusterLab):
    handle = lab.client.starts.start(lab.spec(), _with_ui(lab), claim_key="pages")
    lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(1)
    pages = lab.client.view.pages(lab.client.view.run(handle.generation))
    told = {"cluster": pages.cluster, "log": pages.log, "spark_ui": pages.spark_ui}
    there = {"spark_ui"} if cluster.kubernetes is not None else {"cluster", "log", "spark_ui"}
    assert {name for name, url in told.items() if url} == there, told
    if cluster.kubernetes is not None:  # the pod's name means something inside the cluster only
        pod = lab.client.view.native_ids(lab.client.view.run(handle.generation))[0]["pod"]
        port = urlsplit(told["spark_ui"]).port
        path = f"/api/v1/namespaces/default/pods/{pod}:{port}/proxy/jobs/"
        assert "Spark" in cluster.kubernetes.kubectl("get", "--raw", path)
        return
    login = cluster.yarn.login if cluster.yarn else None
    if login:
        told.pop(
            "log"
        )  # a node with Kerberos reads files by Hadoop's native library, which the tests have not
    for url in filter(None, told.values()):
        assert read(url, login=login), url


@with_daemons
def test_daemon_of_the_node_that_dies_leaves_one_driver_which_loses_nothing(
    cluster: Cluster, lab: ClusterLab
):
    batch = lab.until_committed_beyond(0)
    daemon = cluster.nodes[0].daemon
    os.kill(daemon.pid, signal.SIGKILL)  # the process alone: what it has started is on its own
    wait_until("the daemon is gone", lambda: not daemon.is_running, timeout_s=60)
    daemon.kill()
    # One that is started again at once deletes the folders of executors that run, unless YARN's
    # yarn.nodemanager.recovery.enabled is set, whose database is not among Hadoop's shaded jars.
    wait_until("the cluster has given the node up", cluster.has_lost_its_node, timeout_s=_LIMIT_S)
    _ends_or_runs_on(lab, batch)
    daemon.start()
    lab.until_looked_after_beyond(batch + 2, timeout_s=_LIMIT_S)
    lab.judge()


@on_kubernetes
def test_driver_that_needs_more_memory_than_its_limit_is_told_so(cluster: Cluster, lab: ClusterLab):
    assert isinstance(lab.client.requests.stop("before-memory", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
    handle = lab.client.starts.start(lab.spec(EATS, "eats.py"), lab.target(), claim_key="eats")
    lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    Path(f"{lab.out}.eat").touch()
    wait_until("it is dead", lambda: isinstance(lab.client.view.status(), Dead), timeout_s=_LIMIT_S)
    tail = lab.client.view.log_tail(lab.client.view.run(handle.generation))
    assert "used more memory than its limit (OOMKilled" in tail, tail
    Path(f"{lab.out}.eat").unlink()
    lab.client.drivers.ensure_running()
    lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    lab.judge()


@on_kubernetes
def test_driver_that_is_evicted_ends_its_batch_and_is_started_again(cluster: Cluster, lab: ClusterLab):
    assert cluster.kubernetes is not None
    pod = lab.pod()
    asked = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    cluster.kubernetes.kubectl("create", "--raw", path, "-f", "-", text=json.dumps(asked))
    lab.until_told_to_end_and_again()
    lab.judge()


@on_kubernetes
def test_driver_that_the_node_evicts_for_the_disk_it_uses_is_told_so(cluster: Cluster, lab: ClusterLab):
    assert isinstance(lab.client.requests.stop("before-disk", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
    volume = "spark.kubernetes.driver.volumes.emptyDir.scratch"
    limited = {f"{volume}.mount.path": _SCRATCH, f"{volume}.options.sizeLimit": "16Mi"}
    handle = lab.client.starts.start(lab.spec(FILLS, "fills.py"), lab.target(conf=limited), claim_key="fills")
    lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    batch = lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    run, driver = lab.client.view.run(handle.generation), lab.jvm()
    Path(f"{lab.out}.fill").touch()
    wait_until("it is evicted", lambda: process_started(driver) is None, timeout_s=_LIMIT_S)
    words = r"the node evicted it \(Usage of EmptyDir volume .+ exceeds the limit"
    wait_until("that is told", lambda: re.search(words, lab.client.view.log_tail(run)), timeout_s=_LIMIT_S)
    Path(f"{lab.out}.fill").unlink()
    lab.until_looked_after_beyond(batch + 2, timeout_s=_LIMIT_S)
    lab.judge()


def _with_ui(lab: ClusterLab) -> SubmitTarget:
    port = {} if lab.cluster.kubernetes is not None else {"spark.ui.port": "0"}  # a pod names its ports
    return lab.target(conf={"spark.ui.enabled": "true", **port})


def _ends_or_runs_on(lab: ClusterLab, batch: int) -> None:
    """Wait for what the cluster makes of a driver of a lost node."""
    wait_until(
        "the driver has ended, or runs on",
        lambda: not isinstance(status := lab.client.view.status(), Running) or committed(status) > batch + 20,
        timeout_s=_LIMIT_S,
    )
