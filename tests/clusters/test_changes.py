"""What happens to a job that runs, on every deployment: upgrades, an executor that dies, a script by address.

One life of a job on each, in the order of these tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from testbed import paths
from testbed.clusters import ON_CLUSTERS, PLACES
from testbed.drivers import s3_env
from testbed.keys import SIGNER
from testbed.kubernetes.layout import HOST
from testbed.ports import LOOPBACK
from testbed.s3 import VersityGw
from testbed.waiting import wait_until
from tests.integration.detached_lab import COUNTS, TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.jobs.upgrade.upgrade import UpgradeReport
    from testbed.clusters import Cluster
    from tests.integration.cluster_lab import ClusterLab

pytestmark = pytest.mark.integration
everywhere = pytest.mark.parametrize("cluster", PLACES, indirect=True, scope="module")
on_clusters = pytest.mark.parametrize("cluster", ON_CLUSTERS, indirect=True, scope="module")
with_executors = pytest.mark.parametrize(
    "cluster", [place for place in PLACES if place not in ("detached", "ssh")], indirect=True, scope="module"
)
who_has_keys = pytest.mark.parametrize(
    "cluster",
    [place for place in ON_CLUSTERS if place not in ("standalone", "spark-application")],
    indirect=True,
    scope="module",
)
"""Who touches a script on S3 with the driver's keys or the worker's. Else the executors of a standalone
cluster do with what their own machine may, and Kubeflow's operator with what its pod may."""
_EXECUTORS = (
    b"CoarseGrainedExecutorBackend",
    b"YarnCoarseGrainedExecutorBackend",
    b"KubernetesExecutorBackend",
)


@everywhere
def test_upgrade_with_a_standby_continues_where_the_old_version_stopped(cluster: Cluster, lab: ClusterLab):
    handle = lab.client.starts.start(lab.spec(), lab.target(), claim_key="start")
    lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(1)
    report = _upgrade(lab, "v2", "warm")
    assert report.generation == handle.generation + 1
    _runs_as(lab, "v2.py")


@everywhere
def test_upgrade_without_a_standby_continues_where_the_old_version_stopped(cluster: Cluster, lab: ClusterLab):
    old = lab.newest_generation()
    assert _upgrade(lab, "v3", "none").generation == old + 1
    _runs_as(lab, "v3.py")


@with_executors
def test_executor_that_was_killed_is_replaced_while_the_driver_runs_on(cluster: Cluster, lab: ClusterLab):
    driver, batch = lab.jvm(), lab.until_committed_beyond(0)
    killed = _executors(lab)
    assert killed, "no executor of the job runs on this machine"
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_until("another executor runs", lambda: set(_executors(lab)) - set(killed), timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(batch + 2)
    assert lab.jvm() == driver
    lab.judge()


@on_clusters
def test_script_is_fetched_from_its_address(cluster: Cluster, lab: ClusterLab):
    assert isinstance(
        lab.client.requests.stop("before-address", savepoint=True, timeout_s=TIMEOUT_S), Stopped
    )
    spec = lab.spec(COUNTS, "by_address.py")
    with _served(lab.folder, LOOPBACK if cluster.kubernetes is None else HOST) as address:
        spec = replace(spec, script=f"{address}/by_address.py")
        handle = lab.client.starts.start(spec, lab.target(), claim_key="address")
        lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    assert isinstance(lab.client.requests.stop("after-address", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
    lab.judge()


@who_has_keys
def test_script_on_s3_is_fetched_as_the_drivers_environment_says(
    cluster: Cluster, lab: ClusterLab, tmp_path: Path
):
    with VersityGw(tmp_path, host=LOOPBACK if cluster.kubernetes is None else HOST) as server:
        server.create_bucket("jobs")
        server.client().put_object(Bucket="jobs", Key="counts.py", Body=COUNTS.encode())
        keys, own = s3_env(server), lab.client
        secrets = {**own.view.secret_env, **keys}
        # The worker's own spark-submit looks at it; on YARN it fetches it too, as nodes know no S3.
        worker = {} if cluster.operator else {**keys, "SPARK_DIST_CLASSPATH": paths.class_path("s3a")}
        lab.client = replace(
            own, view=replace(own.view, base_env={**own.view.base_env, **worker}, secret_env=secrets)
        )
        conf = {
            "spark.hadoop.fs.s3a.endpoint": server.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": server.region,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            **({"spark.yarn.dist.forceDownloadSchemes": "s3a"} if cluster.yarn else {}),
        }
        target = replace(lab.target(conf=conf), secret_env=secrets)
        spec = replace(lab.spec(), script="s3a://jobs/counts.py")
        handle = lab.client.starts.start(spec, target, claim_key="s3a")
        lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
        assert isinstance(lab.client.requests.stop("after-s3a", savepoint=True, timeout_s=TIMEOUT_S), Stopped)
    lab.client = own
    lab.judge()


def _upgrade(lab: ClusterLab, version: str, standby: Literal["warm", "none"]) -> UpgradeReport:
    """Upgrade to the same script under another name."""
    store, job = lab.client.view.board.store, lab.client.view.job
    return Upgrade(
        client=lab.client,
        journal=CutoverJournal(store, job, version, UPGRADE_PHASES, signer=SIGNER),
        spec=lab.spec(COUNTS, f"{version}.py"),
        target=lab.target(),
        standby=standby,
    ).run()


def _runs_as(lab: ClusterLab, script: str) -> None:
    lab.until_committed_beyond(lab.until_committed_beyond(0) + 1)
    claim = lab.client.view.board.claim(lab.newest_generation())
    assert claim is not None
    assert claim.launch["spec"]["script"].endswith(f"/{script}")
    lab.judge()


def _executors(lab: ClusterLab) -> list[int]:
    """Return this machine's process ids of the executors of the newest driver."""
    beat = lab.client.view.run(lab.newest_generation()).heartbeat
    assert beat is not None
    application, found = beat.application_id.encode(), []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = command.read_bytes()
            is_java = arguments.split(b"\0")[0].endswith(b"java")
            if is_java and application in arguments and any(name in arguments for name in _EXECUTORS):
                found.append(int(command.parent.name))
    return found


@contextlib.contextmanager
def _served(folder: Path, host: str) -> Iterator[str]:
    """Serve a folder by HTTP where drivers reach it."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer((host, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{host}:{server.server_port}"
        server.shutdown()
