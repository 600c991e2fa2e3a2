"""Who may do what: the roles of ``examples/kubernetes``, given to users of the test's cluster."""

from __future__ import annotations

from typing import Any

import yaml

from testbed import paths

ROLES = paths.ROOT / "examples" / "kubernetes" / "roles.yaml"
RBAC = "rbac.authorization.k8s.io"
_NAMESPACE = "default"


def accounts() -> list[dict[str, Any]]:
    """Return what users apply, and for each role of Airflow a user of its name who has it."""
    given: list[dict[str, Any]] = [
        {**one, "metadata": {**one["metadata"], "namespace": _NAMESPACE}}
        for one in yaml.safe_load_all(ROLES.read_text())
    ]
    for one in given:
        for subject in one.get("subjects", ()):
            subject["namespace"] = _NAMESPACE
    names = [one["metadata"]["name"] for one in given if one["kind"] == "Role"]
    users = [name for name in names if name.startswith("airflow")]
    return [*given, *(binding(name, {"apiGroup": RBAC, "kind": "User", "name": name}) for name in users)]


def role(
    name: str,
    *rules: tuple[list[str], list[str], list[str]],
    kind: str = "Role",
    namespace: str = _NAMESPACE,
) -> dict[str, Any]:
    """Return a role: for each rule its groups, resources and verbs."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": {"name": name, **_of(kind, namespace)},
        "rules": [{"apiGroups": of, "resources": what, "verbs": verbs} for of, what, verbs in rules],
    }


def binding(
    name: str, subject: dict[str, str], *, kind: str = "Role", namespace: str = _NAMESPACE
) -> dict[str, Any]:
    """Return what gives a role to an account."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": name, **_of(kind, namespace)},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [subject],
    }


def _of(kind: str, namespace: str) -> dict[str, str]:
    return {} if kind == "ClusterRole" else {"namespace": namespace}
