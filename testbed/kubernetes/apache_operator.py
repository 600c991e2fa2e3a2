"""The Apache Spark project's operator, beside the node: its jars are given, since no repository has them."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from testbed import paths
from testbed.jvm import QUICK
from testbed.kubernetes.accounts import RBAC, binding, role
from testbed.kubernetes.layout import APACHE_OPERATOR, kubeconfig
from testbed.ports import free_port
from testbed.process import Service

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = "APACHE_OPERATOR"
"""Environment variable: a folder with ``classpath.txt``, of the operator and what it needs, and ``crds``."""
_MAIN: Final = "org.apache.spark.k8s.operator.SparkOperator"
_SETTING: Final = "spark.kubernetes.operator"
_OPEN: Final = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic"),
)
_ALL: Final = ["get", "list", "watch", "create", "update", "patch", "delete"]


def given() -> Path:
    """Return the folder."""
    return Path(os.environ[FOLDER])


def definitions() -> Iterator[Path]:
    """Yield the files that define the operator's resources."""
    yield from sorted((given() / "crds").glob("*.yaml"))


def objects() -> list[dict[str, Any]]:
    """Return the operator's rights: those of its chart, but for what this package does not use."""
    name = APACHE_OPERATOR
    rights = role(
        name,
        ([""], ["pods", "services", "configmaps"], _ALL),
        (["networking.k8s.io"], ["networkpolicies"], _ALL),
        (["spark.apache.org"], ["sparkapplications"], ["get", "list", "watch", "update", "patch"]),
        (["spark.apache.org"], ["sparkapplications/status"], ["update", "patch"]),
        (["spark.apache.org"], ["sparkclusters"], ["list", "watch"]),
    )
    return [rights, binding(name, {"apiGroup": RBAC, "kind": "User", "name": name})]


class ApacheOperator:
    """The operator's process, on this machine, with an account of the cluster."""

    def __init__(self, cluster: Path) -> None:
        self._folder, self._port = cluster / "apache-operator", free_port()
        files = {"basePropertyFileName": "settings", "metrics.propertyFileName": "metrics"}
        self.service = Service(
            "Apache's Spark operator",
            [
                *(paths.java(), "-Xmx256m", *QUICK),
                *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPEN),
                *(f"-D{_SETTING}.{name}={self._folder / file}" for name, file in files.items()),
                *("-cp", (given() / "classpath.txt").read_text().strip(), _MAIN),
            ],
            log_file=cluster / "log" / "apache-operator.log",
            ready=self._is_ready,
            env={**os.environ, "KUBECONFIG": str(kubeconfig(cluster, APACHE_OPERATOR))},
        )

    def start(self) -> None:
        """Start it, and return when it takes applications."""
        self._folder.mkdir()
        settings = {
            "namespace": "default",
            "watchedNamespaces": "default",
            "leaderElection.enabled": "false",
            "reconciler.intervalSeconds": "5",
            "reconciler.missingDriverGracePeriodSeconds": "5",
            "reconciler.rateLimiter.maxLoopForPeriod": "0",
            "informer.terminateOnInformerFailureEnabled": "true",
            "health.probePort": str(self._port),
            "metrics.port": str(free_port()),
        }
        lines = (f"{_SETTING}.{name}={value}\n" for name, value in settings.items())
        (self._folder / "settings").write_text("".join(lines))
        (self._folder / "metrics").write_text("")
        self.service.start()

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
