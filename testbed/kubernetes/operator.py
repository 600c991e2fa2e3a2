"""Kubeflow's Spark operator on the node, as its chart installs it, without the webhook: nothing needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from testbed import paths
from testbed.kubernetes.accounts import binding, role
from testbed.kubernetes.layout import BIN, CACHE, SPARK_IMAGE
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMESPACE: Final = "spark-operator"
NAME: Final = "spark-operator-controller"
_ACCOUNT: Final = {"name": NAME, "namespace": NAMESPACE}
_EVERY_VERB = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
_RESOURCES = ["sparkapplications", "scheduledsparkapplications", "sparkconnects"]


def definitions() -> list[Path]:
    """Return the files that define the operator's resources."""
    return sorted((CACHE / "spark-operator").glob("*.yaml"))


def objects(seen_by_pods: Sequence[str]) -> list[dict[str, Any]]:
    """Return the operator's account, its rights, and itself.

    Args:
        seen_by_pods: Folders of this machine that its pod must see: its program, Java and Spark.
    """
    subject = {"kind": "ServiceAccount", **_ACCOUNT}
    cluster_wide = role(
        NAME,
        ([""], ["nodes"], ["get"]),
        (["apiextensions.k8s.io"], ["customresourcedefinitions"], ["get"]),
        kind="ClusterRole",
    )
    of_drivers = role(
        NAME,
        ([""], ["pods", "configmaps", "persistentvolumeclaims", "services"], _EVERY_VERB),
        ([""], ["events"], ["create", "update", "patch"]),
        (["extensions", "networking.k8s.io"], ["ingresses", "networkpolicies"], _EVERY_VERB),
        (["sparkoperator.k8s.io"], _RESOURCES, _EVERY_VERB),
        (["sparkoperator.k8s.io"], [f"{one}/status" for one in _RESOURCES], ["get", "update", "patch"]),
        (["sparkoperator.k8s.io"], [f"{one}/finalizers" for one in _RESOURCES], ["get", "update", "patch"]),
    )
    own = role(NAME, ([""], ["events"], ["create", "update", "patch"]), namespace=NAMESPACE)
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _ACCOUNT},
        cluster_wide,
        binding(NAME, subject, kind="ClusterRole"),
        of_drivers,
        binding(NAME, subject),
        own,
        binding(NAME, subject, namespace=NAMESPACE),
        _controller(seen_by_pods),
    ]


def _controller(seen_by_pods: Sequence[str]) -> dict[str, Any]:
    environment = {"SPARK_HOME": str(spark_paths().spark_home), "JAVA_HOME": str(paths.java_home())}
    container = {
        "name": NAME,
        "image": SPARK_IMAGE,
        "imagePullPolicy": "Never",
        "args": [str(BIN / "spark-operator"), "controller", "start", "--namespaces=default"],
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8081}, "periodSeconds": 1},
        "volumeMounts": [
            {"name": f"v{number}", "mountPath": folder} for number, folder in enumerate(seen_by_pods)
        ],
    }
    volumes = [
        {"name": f"v{number}", "hostPath": {"path": folder}} for number, folder in enumerate(seen_by_pods)
    ]
    labels = {"app.kubernetes.io/name": NAME}
    pod = {"serviceAccountName": NAME, "containers": [container], "volumes": volumes}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _ACCOUNT,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
