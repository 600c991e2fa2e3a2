"""What only Kubernetes does to a driver: pods that are deleted, refused, or never run."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.base import STUCK_S
from airflow_flinkstyle.jobs.errors import STEP_TIMEOUT, DriverFailedError
from airflow_flinkstyle.jobs.status import STUCK_LOOK_S, Dead
from testbed.clusters import ON_KUBERNETES, changed
from testbed.refusals import refuses
from testbed.waiting import wait_until
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from airflow_flinkstyle.types import Generation
    from testbed.clusters import Cluster
    from testbed.kubernetes.cluster import Kubernetes
    from tests.integration.cluster_lab import ClusterLab

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("cluster", ON_KUBERNETES, indirect=True, scope="module"),
]
IMAGE = "spark.kubernetes.container.image"


def test_pod_that_a_full_quota_refuses_is_an_error_and_leaves_no_secret_without_an_owner(
    cluster: Cluster, lab: ClusterLab
):
    assert cluster.kubernetes is not None
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}}
    cluster.kubernetes.apply({**quota, "spec": {"hard": {"pods": "0"}}})
    wait_until("the quota holds", lambda: "used" in cluster.kubernetes.get("quota", "full")["status"])
    try:
        with pytest.raises(DriverFailedError, match=r"quota is full: .*exceeded quota"):
            _start(lab)
        left = [secret["metadata"] for secret in cluster.kubernetes.get("secrets")["items"]]
        owners = {one["ownerReferences"][0]["kind"] for one in left if cluster.operator}
        assert (left, owners) == ([], set()) or owners == {"SparkApplication"}
    finally:
        cluster.kubernetes.kubectl("delete", "quota", "full")


def test_account_without_rights_is_refused_before_anything_is_claimed(cluster: Cluster, lab: ClusterLab):
    assert cluster.kubernetes is not None
    before = lab.client.view.board.generations()
    target = changed(lab.target(), kube_config=str(cluster.kubernetes.kubeconfig("nobody")))
    with pytest.raises(BadInputError, match='cannot list resource "pods"'):
        lab.client.starts.start(lab.spec(), target, claim_key="nobody")
    assert lab.client.view.board.generations() == before


def test_cluster_without_the_operators_resources_is_refused_before_anything_is_claimed(
    cluster: Cluster, lab: ClusterLab
):
    assert cluster.kubernetes is not None
    before = lab.client.view.board.generations()
    login = str(cluster.kubernetes.kubeconfig("airflow-without-java"))
    absent = "kubeflow" if cluster.operator == "apache" else "apache"
    target = changed(lab.target(), spark_operator=absent, kube_config=login)
    with pytest.raises(BadInputError, match=r"sparkapplications\.spark\S+ of version v1\S* .*none"):
        lab.client.starts.start(lab.spec(), target, claim_key="no-operator")
    assert lab.client.view.board.generations() == before


def test_pod_whose_image_is_not_there_is_told_so_and_then_ended(cluster: Cluster, lab: ClusterLab):
    words = r"image cannot be pulled .*localhost/none:1"
    _never_runs(cluster, lab, {IMAGE: "localhost/none:1"}, words)


def test_pod_that_no_node_can_take_is_told_so_and_then_ended(cluster: Cluster, lab: ClusterLab):
    _never_runs(cluster, lab, {"spark.driver.memory": "100g"}, r"no node can take it .*Insufficient memory")


def _never_runs(cluster: Cluster, lab: ClusterLab, conf: dict[str, str], words: str) -> None:
    """Start a driver that cannot begin, and let the time pass that it is waited for."""
    client, kubernetes = lab.client, cluster.kubernetes
    assert kubernetes is not None
    handle = client.starts.start(lab.spec(), lab.target(conf=conf), claim_key=f"never-{words[:5]}")
    run = client.view.run(handle.generation)
    wait_until(
        "the cluster says why", lambda: re.search(words, client.view.log_tail(run)), timeout_s=TIMEOUT_S
    )
    with refuses(STEP_TIMEOUT, match=words):
        client.drivers.wait_running(handle.generation, timeout_s=1)
    _asked_earlier(lab, handle.generation, STUCK_S)
    with pytest.raises(DriverFailedError, match=rf"could not be started: .*{words}"):
        client.drivers.wait_running(handle.generation, timeout_s=3 * STUCK_LOOK_S)
    assert isinstance(client.view.status(), Dead)
    wait_until("nothing of it is left", lambda: not _living_pods(kubernetes), timeout_s=60)


def _start(lab: ClusterLab) -> None:
    """Start the job, and wait: an operator tries first, and says why not afterwards."""
    handle = lab.client.starts.start(lab.spec(), lab.target(), claim_key="quota")
    lab.client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)


def _asked_earlier(lab: ClusterLab, generation: Generation, seconds: float) -> None:
    """Let a driver have been asked for so much earlier."""
    slot = lab.client.view.board.submit(generation)
    assert slot is not None
    earlier = replace(slot.value, asked_at_ms=slot.value.asked_at_ms - int(seconds * 1000))
    lab.client.view.board.put_submit(generation, earlier, seen=slot.version)


def _living_pods(kubernetes: Kubernetes) -> list[str]:
    pods = kubernetes.get("pods")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] in ("Pending", "Running")]


def test_pod_that_is_deleted_ends_its_batch_and_the_job_is_started_again(cluster: Cluster, lab: ClusterLab):
    assert cluster.kubernetes is not None
    client = lab.client
    handle = client.starts.start(lab.spec(), lab.target(), claim_key="deleted")
    client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(1)
    cluster.kubernetes.kubectl("delete", "pod", lab.pod())  # with its grace period
    lab.until_told_to_end_and_again()
    lab.judge()
