"""Where the node's programs and files are, and its addresses: what both sides of its namespaces know."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final

from testbed import paths

if TYPE_CHECKING:
    from pathlib import Path

CACHE: Final = paths.HOME / "kubernetes"
"""What ``tools.kubernetes`` has built."""
BIN, PACKAGES, IMAGES = CACHE / "bin", CACHE / "packages", CACHE / "images"
"""Kubernetes' programs; Debian's packages, unpacked; images as archives."""
NODE, HOST, PODS, SERVICES = "10.99.0.2", "10.99.0.1", "10.244.0.0/24", "10.96.0.0/16"
"""The node's address; this machine's, as pods reach it; the networks of pods and of services."""
API_PORT: Final = 6443
API: Final = f"https://{NODE}:{API_PORT}"
NODE_NAME: Final = "node1"
SPARK_IMAGE: Final = "localhost/spark:test"
PAUSE_IMAGE: Final = "localhost/pause:test"
APACHE_OPERATOR: Final = "apache-operator"
USERS: Final = {
    "admin": "system:masters",
    "system:kube-scheduler": "",
    "system:kube-controller-manager": "",
    "system:kube-proxy": "",
    f"system:node:{NODE_NAME}": "system:nodes",
    "airflow": "",
    "airflow-without-java": "",
    APACHE_OPERATOR: "",
    "nobody": "",
}
"""User -> group. Those without one may what their roles say, ``nobody`` nothing."""


def kubeconfig(folder: Path, user: str) -> Path:
    """Return the kubeconfig of a user."""
    return folder / "kubeconfig" / user.replace(":", "-")


def certificate(folder: Path) -> Path:
    """Return what clients trust: the API server signs its own certificate."""
    return folder / "certificate" / "apiserver.crt"


def write_users(folder: Path) -> Path:
    """Write a token and a kubeconfig for each user, and return the API server's list of tokens."""
    (folder / "kubeconfig").mkdir(parents=True)
    lines = []
    for user, group in USERS.items():
        token = secrets.token_hex(16)
        lines.append(f'{token},{user},{user},"{group}"')
        cluster = {"server": API, "certificate-authority": str(certificate(folder))}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
        }
        kubeconfig(folder, user).write_text(json.dumps(config))
    tokens = folder / "tokens.csv"
    tokens.write_text("\n".join(lines) + "\n")
    return tokens
