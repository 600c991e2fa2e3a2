"""Who may do what: the accounts of docs/deployments.md, for drivers and for whoever submits them."""

from __future__ import annotations

from typing import Any, Final

_RBAC = "rbac.authorization.k8s.io"
_CORE, _POLICIES = "", "networking.k8s.io"
"""Spark makes a NetworkPolicy for its executors."""
_NAMESPACE = "default"


def role(
    name: str,
    *rules: tuple[list[str], list[str], list[str]],
    kind: str = "Role",
    namespace: str = _NAMESPACE,
) -> dict[str, Any]:
    """Return a role: for each rule its groups, resources and verbs."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name, **_of(kind, namespace)},
        "rules": [{"apiGroups": of, "resources": what, "verbs": verbs} for of, what, verbs in rules],
    }


def binding(
    name: str, subject: dict[str, str], *, kind: str = "Role", namespace: str = _NAMESPACE
) -> dict[str, Any]:
    """Return what gives a role to an account."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name, **_of(kind, namespace)},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [subject],
    }


def _of(kind: str, namespace: str) -> dict[str, str]:
    return {} if kind == "ClusterRole" else {"namespace": namespace}


_METADATA = {"name": "spark", "namespace": _NAMESPACE}
_OF_SPARK = ["pods", "services", "configmaps", "persistentvolumeclaims"]
_EVERY_VERB = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
_BY_SUBMIT = ["services", "configmaps", "networkpolicies"]
ACCOUNTS: Final[list[dict[str, Any]]] = [
    {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _METADATA},
    role("spark", ([_CORE, _POLICIES], _OF_SPARK, _EVERY_VERB)),
    binding("spark", {"kind": "ServiceAccount", **_METADATA}),
    role(
        "airflow",
        ([_CORE], ["pods"], ["get", "list", "watch", "create", "delete"]),
        ([_CORE, _POLICIES], _BY_SUBMIT, ["get", "list", "create", "update", "patch", "delete"]),
        ([_CORE], ["secrets"], ["create", "update", "delete"]),
        ([_CORE], ["pods/log"], ["get"]),
        ([_CORE], ["events"], ["list"]),
    ),
    binding("airflow", {"apiGroup": _RBAC, "kind": "User", "name": "airflow"}),
    role(
        "airflow-without-java",
        ([_CORE], ["pods"], ["get", "list", "delete"]),
        (["sparkoperator.k8s.io"], ["sparkapplications"], ["get", "list", "create", "delete"]),
        ([_CORE], ["secrets"], ["create", "update", "delete"]),
        ([_CORE], ["pods/log"], ["get"]),
        ([_CORE], ["events"], ["list"]),
    ),
    binding("airflow-without-java", {"apiGroup": _RBAC, "kind": "User", "name": "airflow-without-java"}),
]
