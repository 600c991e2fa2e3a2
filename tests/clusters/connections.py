"""A target on a cluster as the Airflow connections from which the hooks read it back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.deployments.kubernetes.deployment import Kubernetes
from airflow_flinkstyle.jobs.deployments.standalone import Standalone
from airflow_flinkstyle.jobs.deployments.yarn import Yarn

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.spec import SubmitTarget

KUBERNETES = "kubernetes_default"


def connections_of(target: SubmitTarget) -> dict[str, str]:
    """Return ``spark_default``, and the connection to Kubernetes that it names."""
    extra: dict[str, Any] = {
        "deploy-mode": target.deployment.how.deploy_mode,
        "python": target.python,
        "spark-home": target.spark_home,
        "conf": dict(target.conf),
    }
    found = {"spark_default": {"conn_type": "spark", "host": target.master, "extra": extra}}
    match target.deployment:
        case Yarn(cluster_url=url):
            extra["yarn_resourcemanager_webapp_address"] = url
        case Kubernetes(kube_config=place, spark_operator=operator):
            extra |= {"kubernetes-conn-id": KUBERNETES, "spark-operator": operator}
            found[KUBERNETES] = {
                "conn_type": "kubernetes",
                "extra": {"kube_config_path": place, "namespace": "default"},
            }
        case Standalone(cluster_url=url, web_url=page) if url:
            extra |= {"rest-port": url.rpartition(":")[2], "master-web-url": page}
    return {name: json.dumps(connection) for name, connection in found.items()}
