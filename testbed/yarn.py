"""A YARN of its own, without HDFS: its daemons, of the version of Spark's Hadoop client."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any, Self
from xml.sax.saxutils import escape

from airflow_flinkstyle.jobs.deployments.rest import (
    KerberosLogin,
    NoAnswerError,
    NotDeliveredError,
    as_object,
    read,
)
from testbed import kerberos, paths
from testbed.jvm import QUICK
from testbed.nodes import Node
from testbed.ports import free_port
from testbed.process import Service
from testbed.secured_yarn import core_settings, yarn_settings
from testbed.spark import spark_paths
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from testbed.kerberos import Kdc

_OPEN = ("--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED")

_FOR_DRIVERS = "yarn.resourcemanager.scheduler.address"
_SERVERS = "org.apache.hadoop.yarn.server"


class ResourceManager:
    """One ResourceManager: its addresses, and its process."""

    def __init__(self, rm_id: str, yarn: Yarn) -> None:
        self.rm_id, self.conf_dir, self._yarn = rm_id, yarn.folder / f"conf-{rm_id}", yarn
        self.web_port = free_port()
        self.service = Service(
            f"ResourceManager {rm_id}",
            yarn.daemon(f"{_SERVERS}.resourcemanager.ResourceManager", self.conf_dir),
            log_file=yarn.folder / f"resourcemanager-{rm_id}.log",
            ready=lambda: self.state() in ("ACTIVE", "STANDBY"),
            env=yarn.env(),
        )

    @property
    def url(self) -> str:
        """Of its web page and REST API."""
        return f"http://{self._yarn.host}:{self.web_port}"

    def state(self) -> str:
        """Return ``ACTIVE`` if it leads, ``STANDBY``, or nothing if it does not answer."""
        try:
            told: dict[str, str] = self.ask("info")["clusterInfo"]
        except (NoAnswerError, NotDeliveredError, KeyError):
            return ""
        return told["haState"] if told["state"] == "STARTED" else ""

    def ask(self, path: str) -> dict[str, Any]:
        """Return what it says, to an administrator."""
        address = f"{self.url}/ws/v1/cluster/{path}"
        return as_object(address, read(address, login=self._yarn.login))

    def settings(self) -> dict[str, str]:
        """Return what everybody must know of it."""
        manager, host = "yarn.resourcemanager", self._yarn.host
        kinds = ("address", "scheduler.address", "resource-tracker.address", "admin.address")
        return {
            **{f"{manager}.{kind}.{self.rm_id}": f"{host}:{free_port()}" for kind in kinds},
            f"{manager}.hostname.{self.rm_id}": host,
            f"{manager}.webapp.address.{self.rm_id}": f"{host}:{self.web_port}",
        }


class NodeManager:
    """One NodeManager: its addresses and folders, and its process."""

    def __init__(self, number: int, yarn: Yarn) -> None:
        self.conf_dir, self._host = yarn.folder / f"conf-nm{number}", yarn.host
        own = "" if number == 1 else f"-{number}"
        self.folder, self._logs = yarn.folder / f"local{own}", yarn.folder / f"containers{own}"
        self.service = Service(
            f"NodeManager {number}",
            yarn.daemon(f"{_SERVERS}.nodemanager.NodeManager", self.conf_dir),
            log_file=yarn.folder / f"nodemanager{own}.log",
            ready=lambda: yarn.has_nodes(number),
            env=yarn.env(),
        )

    def settings(self) -> dict[str, str]:
        """Return its own."""
        node = "yarn.nodemanager"
        return {
            **{
                f"{node}.{kind}": f"{self._host}:{free_port()}"
                for kind in ("address", "localizer.address", "webapp.address")
            },
            f"{node}.local-dirs": str(self.folder),
            f"{node}.log-dirs": str(self._logs),
        }


class Yarn:
    """ResourceManagers that recover, and NodeManagers; files stand on this machine's disk."""

    def __init__(
        self,
        folder: Path,
        *,
        memory_mb: int = 4096,
        cores: int = 8,
        heap_mb: int = 256,
        queues: Mapping[str, int] | None = None,
        managers: int = 1,
        kdc: Kdc | None = None,
        nodes: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a YARN; with queues, by their shares in percent, it has a CapacityScheduler.

        With a KDC it wants Kerberos from everybody. ``settings`` are more of its own.

        Of two ResourceManagers one leads, as an administrator says: what ZooKeeper's election needs is not
        among Hadoop's shaded jars.
        """
        self._queues, self._heap_mb, self._kdc = queues or {}, heap_mb, kdc
        self.host = kerberos.HOST if kdc else "127.0.0.1"
        admin = f"yarn/{self.host}"
        self.login = KerberosLogin(kdc.principal(admin), str(kdc.keytab(admin))) if kdc else None
        self.folder, self.conf_dir = folder, folder / "conf"
        self.managers = tuple(ResourceManager(f"rm{number}", self) for number in range(1, managers + 1))
        self._settings = {**self._site(memory_mb, cores), **(settings or {})}
        self._node_managers = tuple(NodeManager(number, self) for number in range(1, nodes + 1))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Of the ResourceManagers' web pages and REST APIs, separated by commas."""
        return ",".join(one.url for one in self.managers)

    @property
    def leader(self) -> ResourceManager:
        """The one that leads."""
        return next(one for one in self.managers if one.state() == "ACTIVE")

    @property
    def resource_manager(self) -> Service:
        """The process of the first one."""
        return self.managers[0].service

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The NodeManagers, each with what it has started."""
        return tuple(Node(one.service, one.folder) for one in self._node_managers)

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
        """Start all daemons and wait until the nodes are registered."""
        self._write_conf()
        try:
            for manager in self.managers:
                manager.service.start()
            if len(self.managers) > 1:
                self.let_lead(self.managers[0])
            for node in self._node_managers:
                node.service.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the nodes with their containers, then the ResourceManagers."""
        for node in self._node_managers:
            node.service.stop()
        for manager in self.managers:
            manager.service.stop()

    def let_lead(self, manager: ResourceManager) -> None:
        """Make one of two ResourceManagers the leader, by the administrator's command."""
        command = self.daemon("org.apache.hadoop.yarn.client.cli.RMAdminCLI", self.conf_dir)
        subprocess.run(  # noqa: S603 - Hadoop's own command
            [*command, "-transitionToActive", "--forceactive", manager.rm_id],
            env={**self.env(), **self._ticket()},
            check=True,
            capture_output=True,
        )
        wait_until(f"{manager.rm_id} leads", lambda: manager.state() == "ACTIVE")

    def _ticket(self) -> dict[str, str]:
        """Return what an administrator's command shows of who asks."""
        return {"KRB5CCNAME": str(self._kdc.ticket(f"yarn/{self.host}"))} if self._kdc else {}

    @property
    def drivers_port(self) -> int:
        """Of the ResourceManager, where drivers report."""
        return int(self._settings[_FOR_DRIVERS].rpartition(":")[2])

    def tell_drivers(self, address: str) -> None:
        """Let drivers that are submitted from now on report to the ResourceManager at another address."""
        self._write_into(self.conf_dir, {_FOR_DRIVERS: address})

    def has_nodes(self, count: int = 1) -> bool:
        """Return whether the ResourceManager that leads has so many nodes that run."""
        try:
            nodes: list[dict[str, Any]] = (self.leader.ask("nodes")["nodes"] or {}).get("node", [])
        except (NoAnswerError, NotDeliveredError, StopIteration):
            return False
        return sum(1 for node in nodes if node["state"] == "RUNNING") >= count

    def daemon(self, main_class: str, conf_dir: Path) -> list[str | Path]:
        """Return the command line of one of Hadoop's programs."""
        spark_jars = spark_paths().spark_home / "jars"
        class_path = f"{conf_dir}:{paths.class_path('hdfs', 'yarn')}:{spark_jars}/*"
        options = [f"-Xmx{self._heap_mb}m", *QUICK, *_OPEN]
        if self._kdc is not None:
            options.append(self._kdc.java_options)
        return [paths.java(), *options, "-cp", class_path, main_class]

    def env(self) -> dict[str, str]:
        """Return the environment of a daemon."""
        return {**os.environ, "JAVA_HOME": str(paths.java_home()), "HADOOP_CONF_DIR": str(self.conf_dir)}

    def _site(self, memory_mb: int, cores: int) -> Mapping[str, str]:
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        kind = "capacity.CapacityScheduler" if self._queues else "fifo.FifoScheduler"
        scheduler = f"org.apache.hadoop.yarn.server.resourcemanager.scheduler.{kind}"
        store = "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore"
        return {
            **self._leadership(),
            **(yarn_settings(self._kdc) if self._kdc else {}),
            f"{manager}.bind-host": "127.0.0.1",
            f"{manager}.scheduler.class": scheduler,
            f"{manager}.recovery.enabled": "true",
            f"{manager}.store.class": store,
            f"{manager}.fs.state-store.uri": f"file://{self.folder}/state",
            f"{manager}.connect.max-wait.ms": "600000",
            f"{manager}.connect.retry-interval.ms": "500",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "20000",
            f"{node}.hostname": self.host,
            f"{node}.bind-host": "127.0.0.1",
            f"{node}.resource.memory-mb": str(memory_mb),
            f"{node}.resource.cpu-vcores": str(cores),
            f"{node}.pmem-check-enabled": "false",
            f"{node}.vmem-check-enabled": "false",
            f"{node}.delete.debug-delay-sec": "3600",
            f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
        }

    def _leadership(self) -> dict[str, str]:
        """Return where the ResourceManagers are, and how one of them leads."""
        manager = "yarn.resourcemanager"
        told = {name: value for one in self.managers for name, value in one.settings().items()}
        if len(self.managers) == 1:
            return {name.removesuffix(".rm1"): value for name, value in told.items()}
        return {
            **told,
            f"{manager}.ha.enabled": "true",
            f"{manager}.ha.rm-ids": ",".join(one.rm_id for one in self.managers),
            f"{manager}.cluster-id": "test",
            f"{manager}.ha.automatic-failover.enabled": "false",
        }

    def _write_conf(self) -> None:
        self._write_into(self.conf_dir, {})
        for manager in self.managers:
            own = {"yarn.resourcemanager.ha.id": manager.rm_id} if len(self.managers) > 1 else {}
            self._write_into(manager.conf_dir, own)
        for node in self._node_managers:
            self._write_into(node.conf_dir, node.settings())

    def _write_into(self, conf_dir: Path, own: Mapping[str, str]) -> None:
        conf_dir.mkdir(parents=True, exist_ok=True)
        (self.folder / "staging").mkdir(exist_ok=True)
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self.folder / "tmp")}
        core |= core_settings(self._kdc) if self._kdc else {}
        files = {
            "yarn-site.xml": {**self._settings, **own},
            "core-site.xml": core,
            "capacity-scheduler.xml": _shares(self._queues),
        }
        for name, settings in files.items():
            rows = (
                f"<property><name>{escape(key)}</name><value>{escape(value)}</value></property>"
                for key, value in settings.items()
            )
            (conf_dir / name).write_text(f"<configuration>{''.join(rows)}</configuration>\n")


def _shares(queues: Mapping[str, int]) -> dict[str, str]:
    """Return settings by which no queue gets more than its share."""
    root = "yarn.scheduler.capacity.root"
    settings = {f"{root}.queues": ",".join(queues)}
    for name, percent in queues.items():
        for kind in ("capacity", "maximum-capacity"):
            settings[f"{root}.{name}.{kind}"] = str(percent)
    return settings
