"""Who may do what: the accounts of docs/deployments.md, for drivers and for whoever submits them."""

from __future__ import annotations

from typing import Any, Final

_RBAC = "rbac.authorization.k8s.io"
_POLICIES = "networking.k8s.io"
"""Spark makes a NetworkPolicy for its executors."""
_NAMESPACE = "default"


def _role(name: str, *rules: tuple[list[str], list[str]]) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "rules": [{"apiGroups": ["", _POLICIES], "resources": what, "verbs": verbs} for what, verbs in rules],
    }


def _binding(role: str, subject: dict[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": _NAMESPACE},
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [subject],
    }


_METADATA = {"name": "spark", "namespace": _NAMESPACE}
_OF_SPARK = ["pods", "services", "configmaps", "persistentvolumeclaims"]
_EVERY_VERB = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
ACCOUNTS: Final[list[dict[str, Any]]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _METADATA},
    _role("spark", (_OF_SPARK, _EVERY_VERB)),
    _binding("spark", {"kind": "ServiceAccount", **_METADATA}),
    _role(
        "airflow",
        (["pods"], ["get", "list", "watch", "create", "delete"]),
        (
            ["services", "configmaps", "networkpolicies"],
            ["get", "list", "create", "update", "patch", "delete"],
        ),
        (["secrets"], ["create", "update", "delete"]),
        (["pods/log"], ["get"]),
        (["events"], ["list"]),
    ),
    _binding("airflow", {"apiGroup": _RBAC, "kind": "User", "name": "airflow"}),
]
