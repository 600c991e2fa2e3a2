"""A target on a cluster as the Airflow connections from which the hooks read it back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.spec import SubmitTarget

KUBERNETES = "kubernetes_default"


def connections_of(target: SubmitTarget) -> dict[str, str]:
    """Return ``spark_default``, and the connection to Kubernetes that it names."""
    extra: dict[str, Any] = {
        "deploy-mode": target.deploy_mode,
        "python": target.python,
        "spark-home": target.spark_home,
        "conf": dict(target.conf),
    }
    if target.is_on_yarn:
        extra["yarn_resourcemanager_webapp_address"] = target.cluster_url
    elif target.is_on_kubernetes:
        extra |= {"kubernetes-conn-id": KUBERNETES, "spark-operator": target.spark_operator}
    elif target.cluster_url:
        extra |= {"rest-port": target.cluster_url.rpartition(":")[2], "master-web-url": target.web_url}
    found = {"spark_default": {"conn_type": "spark", "host": target.master, "extra": extra}}
    if target.kube_config:
        found[KUBERNETES] = {
            "conn_type": "kubernetes",
            "extra": {"kube_config_path": target.kube_config, "namespace": "default"},
        }
    return {name: json.dumps(connection) for name, connection in found.items()}
