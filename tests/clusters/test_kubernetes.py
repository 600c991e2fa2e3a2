"""What only Kubernetes does to a driver: pods that are deleted, refused, or never run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import DriverFailedError, StepTimeoutError
from airflow_flinkstyle.jobs.status import Closed, Dead
from testbed.waiting import wait_until
from tests.integration.cluster_lab import ON_KUBERNETES
from tests.integration.detached_lab import TIMEOUT_S

if TYPE_CHECKING:
    from tests.integration.cluster_lab import Cluster, ClusterLab

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("cluster", ON_KUBERNETES, indirect=True, scope="module"),
]
IMAGE = "spark.kubernetes.container.image"


def test_pod_that_a_full_quota_refuses_is_an_error_at_once_and_leaves_no_secret(
    cluster: Cluster, lab: ClusterLab
):
    assert cluster.kubernetes is not None
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}}
    cluster.kubernetes.apply({**quota, "spec": {"hard": {"pods": "0"}}})
    wait_until("the quota holds", lambda: "used" in cluster.kubernetes.get("quota", "full")["status"])
    try:
        with pytest.raises(DriverFailedError, match=r"quota is full: .*exceeded quota"):
            lab.client.start(lab.spec(), lab.target(), claim_key="quota")
        assert cluster.kubernetes.get("secrets")["items"] == []
    finally:
        cluster.kubernetes.kubectl("delete", "quota", "full")


def test_account_without_rights_is_refused_before_anything_is_claimed(cluster: Cluster, lab: ClusterLab):
    assert cluster.kubernetes is not None
    before = lab.client.board.generations()
    target = replace(lab.target(), kube_config=str(cluster.kubernetes.kubeconfig("nobody")))
    with pytest.raises(BadInputError, match='cannot list resource "pods"'):
        lab.client.start(lab.spec(), target, claim_key="nobody")
    assert lab.client.board.generations() == before


def test_image_that_is_not_there_is_told_by_its_name(cluster: Cluster, lab: ClusterLab):
    target = lab.target()
    target = replace(target, conf={**target.conf, IMAGE: "localhost/none:1"})
    handle = lab.client.start(lab.spec(), target, claim_key="image")
    with pytest.raises(StepTimeoutError, match=r"image cannot be pulled .*localhost/none:1"):
        lab.client.wait_running(handle.generation, timeout_s=20)
    lab.client.end_driver(handle.generation)
    lab.client.declare_dead(handle.generation, reason="its image is not there", by="a person")
    assert isinstance(lab.client.status(), Dead)


def test_pod_that_is_deleted_ends_its_batch_and_closes_the_job(cluster: Cluster, lab: ClusterLab):
    assert cluster.kubernetes is not None
    client = lab.client
    handle = client.start(lab.spec(), lab.target(), claim_key="deleted")
    client.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(1)
    slot = client.board.submit(handle.generation)
    assert slot is not None
    cluster.kubernetes.kubectl("delete", "pod", slot.value.native_id["pod"])  # with its grace period
    assert isinstance(client.settled_status(), Closed)
    lab.judge()
