"""A Kubernetes as the tests of its deployments name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.unit.jobs.specs import a_target

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.jobs.spec import SubmitTarget

PODS, SECRETS = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/secrets"
POD = "flinkstyle-claim-1-0"
DRIVER = {"pod": POD, "claim": "claim-1"}
IMAGE = "spark.kubernetes.container.image"
FORBIDDEN = {"kind": "Status", "status": "Failure", "code": 403, "message": 'cannot list resource "pods"'}
MISSING = {"kind": "Status", "status": "Failure", "code": 404, "message": "not found"}


def on_kubernetes(url: str, folder: Path, **changes: Any) -> SubmitTarget:
    (folder / "token").write_text("a-token")
    login = {"spark.kubernetes.authenticate.submission.oauthTokenFile": str(folder / "token")}
    conf = {IMAGE: "spark:1", **login, **changes.pop("conf", {})}
    return a_target(master=f"k8s://{url}", deploy_mode="cluster", conf=conf, **changes)
