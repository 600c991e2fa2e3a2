"""Where drivers run: this machine, a standalone cluster, YARN, Kubernetes, or a plugin's place."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, get_args

from airflow_flinkstyle.jobs.target import record_of, target_of
from testbed import paths
from testbed.jvm import spark_options
from testbed.kerberos import USER, Kdc
from testbed.kubernetes.cluster import Kubernetes
from testbed.spark import SparkCluster
from testbed.yarn import Yarn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from airflow_flinkstyle.jobs.spec import SubmitTarget
    from testbed.nodes import Node
    from testbed.process import Service

Place = Literal[
    "detached",
    "standalone-client",
    "yarn-client",
    "standalone",
    "yarn",
    "yarn-kerberos",
    "kubernetes",
    "spark-application",
    "spark-application-apache",
    "ssh",
]
"""A driver of this machine: alone, with executors on either cluster; one on either cluster; by the plugin."""
PLACES: tuple[Place, ...] = get_args(Place)
ON_KUBERNETES: tuple[Place, ...] = ("kubernetes", "spark-application", "spark-application-apache")
"""By ``spark-submit``, and by Kubeflow's or Apache's operator for an account and a machine without Java."""
ON_CLUSTERS: tuple[Place, ...] = ("standalone", "yarn", "yarn-kerberos", *ON_KUBERNETES)
JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
PLUGIN = paths.ROOT / "examples" / "deployment_plugin"
_SSH = """#!/bin/sh
# In place of ssh: what would be done on another host is done here.
while [ "$1" != "sh -s" ]; do shift; done
exec sh -s
"""


def changed(target: SubmitTarget, **changes: object) -> SubmitTarget:
    """Return a target with other values, by the names that its record has."""
    return target_of({**record_of(target), **changes}, secret_env=target.secret_env)


class Cluster:
    """What holds drivers; nothing is started for drivers of this machine."""

    def __init__(
        self,
        place: Place,
        folder: Path,
        *,
        leaders: int = 1,
        nodes: int = 1,
        yarn: Mapping[str, str] | None = None,
    ) -> None:
        self.place, self.folder = place, folder
        self.standalone = (
            SparkCluster(
                folder / "spark",
                workers=nodes,
                cores_per_worker=4,
                memory_per_worker_mb=4096,
                masters=leaders,
            )
            if place.startswith("standalone")
            else None
        )
        self.kdc = Kdc(folder / "kdc") if place == "yarn-kerberos" else None
        self.yarn = (
            Yarn(folder / "yarn", managers=leaders, nodes=nodes, kdc=self.kdc, settings=yarn)
            if place.startswith("yarn")
            else None
        )
        self.kubernetes = Kubernetes(folder / "kubernetes") if place in ON_KUBERNETES else None
        self._plugin = InstalledPlugin(folder / "plugin") if place == "ssh" else None

    def __enter__(self) -> Self:
        for one in self._parts():
            one.start()
        if self.kubernetes is not None and self.operator:
            try:
                if self.operator == "apache":
                    self.kubernetes.install_apache_operator()
                else:
                    self.kubernetes.install_operator()
            except BaseException:
                self.kubernetes.stop()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        for one in reversed(self._parts()):
            one.stop()

    def _parts(self) -> list[SparkCluster | Kdc | Yarn | Kubernetes | InstalledPlugin]:
        every = (self.standalone, self.kdc, self.yarn, self.kubernetes, self._plugin)
        return [one for one in every if one is not None]

    def target(self, local: SubmitTarget) -> SubmitTarget:
        """Return where the driver runs, made from a target of this machine."""
        conf = {
            **local.conf,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": spark_options(),
        }
        if self.place == "ssh":
            return changed(local, deployment="ssh", cluster_url="localhost")
        mode = "client" if self.place.endswith("-client") else "cluster"
        if self.standalone is not None:
            return changed(
                local,
                master=self.standalone.master,
                deploy_mode=mode,
                cluster_url=self.standalone.rest_url,
                web_url=self.standalone.web_url,
                conf={**conf, "spark.cores.max": "2"},
            )
        if self.yarn is not None:
            return changed(
                local,
                master="yarn",
                deploy_mode=mode,
                cluster_url=self.yarn.url,
                conf={**conf, **self.yarn.conf, **(self._logged_in(conf) if self.kdc else {})},
            )
        if self.kubernetes is not None:
            user = "airflow-without-java" if self.operator else "airflow"
            return changed(
                local,
                master=self.kubernetes.master,
                deploy_mode=mode,
                kube_config=str(self.kubernetes.kubeconfig(user)),
                spark_operator=self.operator,
                spark_home="/nonexistent" if self.operator else local.spark_home,
                conf={**conf, **self.kubernetes.conf},
            )
        return local

    @property
    def deployment(self) -> str:
        """The name under which a job's records have it."""
        if self.place.endswith("-client"):
            return "detached"
        return "yarn" if self.yarn else "spark-application" if self.operator else self.place

    @property
    def operator(self) -> str:
        """The Spark operator that makes drivers' pods; empty if none does."""
        return {"spark-application": "kubeflow", "spark-application-apache": "apache"}.get(self.place, "")

    @property
    def env(self) -> dict[str, str]:
        """What the caller's environment must hold."""
        if self.yarn is None:
            return {}
        return {"HADOOP_CONF_DIR": str(self.yarn.conf_dir), **(self.kdc.env if self.kdc else {})}

    def _logged_in(self, conf: Mapping[str, str]) -> dict[str, str]:
        """Return settings by which Spark logs in as this user, and its JVMs find the realm."""
        assert self.kdc is not None  # noqa: S101  # for mypy
        options = {name: f"{conf[name]} {self.kdc.java_options}" for name in JAVA_OPTIONS}
        login = {
            "spark.kerberos.principal": self.kdc.principal(USER),
            "spark.kerberos.keytab": str(self.kdc.keytab(USER)),
        }
        return {**options, **login}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Those that start drivers: workers, or NodeManagers."""
        if self.standalone is not None:
            return self.standalone.nodes
        assert self.yarn is not None  # noqa: S101  # for mypy
        return self.yarn.nodes

    def has_lost_its_node(self) -> bool:
        """Return whether the cluster has given up its one node."""
        if self.standalone is not None:
            return self.standalone.alive_workers() == 0
        assert self.yarn is not None  # noqa: S101  # for mypy
        return not self.yarn.has_nodes()

    def told(self) -> str:
        """Return what the cluster says of its drivers, for a test that fails."""
        if self.kubernetes is not None:
            return self.kubernetes.told()
        files = self.folder.glob("**/std*")
        return "\n".join(f"{path}\n{path.read_text()[-4000:]}" for path in files if path.is_file())

    def restart_manager(self) -> None:
        """Kill the master, the ResourceManager or the API server, and start it again."""
        if self.kubernetes is not None:
            self.kubernetes.restart_api()
        for manager in self._managers():
            manager.kill()
            manager.start()

    def freeze_manager(self) -> None:
        """Let the master, the ResourceManager or the API server answer nobody, until ``thaw_manager``."""
        if self.kubernetes is not None:
            self.kubernetes.freeze("kube-apiserver")
        for manager in self._managers():
            manager.freeze()

    def thaw_manager(self) -> None:
        """Let it answer again."""
        if self.kubernetes is not None:
            self.kubernetes.thaw("kube-apiserver")
        for manager in self._managers():
            manager.thaw()

    def _managers(self) -> list[Service]:
        if self.standalone is not None:
            return [self.standalone.master_service]
        return [self.yarn.resource_manager] if self.yarn is not None else []


@dataclass
class InstalledPlugin:
    """The example of the documents, as an installer leaves it, and a stand-in for ssh on this machine."""

    folder: Path

    def start(self) -> None:
        """Put the example's module and entry point where Python looks, and ssh where programs are."""
        project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
        info = self.folder / f"flinkstyle_over_ssh-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        (info / "entry_points.txt").write_text(_entry_points(project["entry-points"]))
        sys.path += [str(self.folder), str(PLUGIN)]
        ssh = self.folder / "bin" / "ssh"
        ssh.parent.mkdir()
        ssh.write_text(_SSH)
        ssh.chmod(0o755)
        os.environ["PATH"] = f"{ssh.parent}:{os.environ['PATH']}"

    def stop(self) -> None:
        """Take both away again."""
        os.environ["PATH"] = os.environ["PATH"].removeprefix(f"{self.folder / 'bin'}:")
        for place in (str(self.folder), str(PLUGIN)):
            sys.path.remove(place)


def _entry_points(groups: Mapping[str, Mapping[str, str]]) -> str:
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    return "\n".join(lines) + "\n"
