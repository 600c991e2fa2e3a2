"""A YARN of its own, without HDFS: both daemons, of the version of Spark's Hadoop client."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Self
from xml.sax.saxutils import escape

from testbed import paths
from testbed.jvm import QUICK
from testbed.ports import free_port
from testbed.process import Service
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_OPEN = ("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED")


class Yarn:
    """One ResourceManager that recovers, one NodeManager; files stand on this machine's disk."""

    def __init__(
        self,
        folder: Path,
        *,
        memory_mb: int = 4096,
        cores: int = 8,
        heap_mb: int = 256,
        queues: Mapping[str, int] | None = None,
    ) -> None:
        """Describe a YARN; with queues, by their shares in percent, it has a CapacityScheduler."""
        self._queues = queues or {}
        self.folder, self.conf_dir = folder, folder / "conf"
        self._web_port, self._heap_mb = free_port(), heap_mb
        self._settings = self._site(memory_mb, cores)
        self.resource_manager = Service(
            "ResourceManager",
            self._daemon("org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"),
            log_file=folder / "resourcemanager.log",
            ready=self._answers,
            env=self._env(),
        )
        self.node_manager = Service(
            "NodeManager",
            self._daemon("org.apache.hadoop.yarn.server.nodemanager.NodeManager"),
            log_file=folder / "nodemanager.log",
            ready=self._has_node,
            env=self._env(),
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Of the ResourceManager's web page and REST API."""
        return f"http://127.0.0.1:{self._web_port}"

    @property
    def conf(self) -> dict[str, str]:
        """Spark settings with which an application needs no HDFS and no copy of Spark's jars."""
        return {
            "spark.yarn.jars": f"local:{spark_paths().spark_home}/jars/*",
            "spark.yarn.stagingDir": f"file://{self.folder}/staging",
            "spark.yarn.am.waitTime": "300s",
            "spark.executor.instances": "1",
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.yarn.submit.file.replication": "1",
        }

    def start(self) -> None:
        """Start both daemons and wait until the node is registered."""
        self._write_conf()
        try:
            self.resource_manager.start()
            self.node_manager.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the node with its containers, then the ResourceManager."""
        self.node_manager.stop()
        self.resource_manager.stop()

    def ask(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return what the ResourceManager's REST API tells at a path below ``/ws/v1/cluster``."""
        with urllib.request.urlopen(f"{self.url}/ws/v1/cluster/{path}", timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    def _answers(self) -> bool:
        try:
            return bool(self.ask("info")["clusterInfo"]["state"] == "STARTED")
        except (OSError, urllib.error.URLError):
            return False

    def _has_node(self) -> bool:
        nodes = (self.ask("nodes")["nodes"] or {}).get("node", ())
        return any(node["state"] == "RUNNING" for node in nodes)

    def _daemon(self, main_class: str) -> list[str | Path]:
        spark_jars = spark_paths().spark_home / "jars"
        class_path = f"{self.conf_dir}:{paths.class_path('hdfs', 'yarn')}:{spark_jars}/*"
        return [paths.java(), f"-Xmx{self._heap_mb}m", *QUICK, *_OPEN, "-cp", class_path, main_class]

    def _env(self) -> dict[str, str]:
        return {**os.environ, "JAVA_HOME": str(paths.java_home()), "HADOOP_CONF_DIR": str(self.conf_dir)}

    def _site(self, memory_mb: int, cores: int) -> Mapping[str, str]:
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        ports = {
            name: f"127.0.0.1:{free_port()}"
            for name in (
                f"{manager}.address",
                f"{manager}.scheduler.address",
                f"{manager}.resource-tracker.address",
                f"{manager}.admin.address",
                f"{node}.address",
                f"{node}.localizer.address",
                f"{node}.webapp.address",
            )
        }
        kind = "capacity.CapacityScheduler" if self._queues else "fifo.FifoScheduler"
        scheduler = f"org.apache.hadoop.yarn.server.resourcemanager.scheduler.{kind}"
        store = "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
        return {
            **ports,
            f"{manager}.hostname": "127.0.0.1",
            f"{manager}.bind-host": "127.0.0.1",
            f"{manager}.webapp.address": f"127.0.0.1:{self._web_port}",
            f"{manager}.scheduler.class": scheduler,
            f"{manager}.recovery.enabled": "true",
            f"{manager}.store.class": store,
            f"{manager}.fs.state-store.uri": f"file://{self.folder}/state",
            f"{manager}.connect.max-wait.ms": "600000",
            f"{manager}.connect.retry-interval.ms": "500",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "20000",
            f"{node}.hostname": "127.0.0.1",
            f"{node}.bind-host": "127.0.0.1",
            f"{node}.resource.memory-mb": str(memory_mb),
            f"{node}.resource.cpu-vcores": str(cores),
            f"{node}.pmem-check-enabled": "false",
            f"{node}.vmem-check-enabled": "false",
            f"{node}.local-dirs": f"{self.folder}/local",
            f"{node}.log-dirs": f"{self.folder}/containers",
            f"{node}.delete.debug-delay-sec": "3600",
            f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
        }

    def _write_conf(self) -> None:
        self.conf_dir.mkdir(parents=True, exist_ok=True)
        (self.folder / "staging").mkdir(exist_ok=True)
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.folder / "tmp")}
        files = {
            "yarn-site.xml": self._settings,
            "core-site.xml": core,
            "capacity-scheduler.xml": _shares(self._queues),
        }
        for name, settings in files.items():
            rows = (
                f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
                for key, value in settings.items()
            )
            (self.conf_dir / name).write_text(f"<configuration>{''.join(rows)}</configuration>\n")


def _shares(queues: Mapping[str, int]) -> dict[str, str]:
    """Return settings by which no queue gets more than its share."""
    root = "yarn.scheduler.capacity.root"
    settings = {f"{root}.queues": ",".join(queues)}
    for name, percent in queues.items():
        for kind in ("capacity", "maximum-capacity"):
            settings[f"{root}.{name}.{kind}"] = str(percent)
    return settings
