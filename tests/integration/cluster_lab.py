"""One job in a folder, with its driver on this machine, on a standalone cluster, or on YARN."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

from testbed.jvm import spark_options
from testbed.spark import SparkCluster
from testbed.yarn import Yarn
from tests.integration.detached_lab import Lab

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.jobs.spec import SubmitTarget

Place = Literal["detached", "standalone", "yarn"]
PLACES: tuple[Place, ...] = ("detached", "standalone", "yarn")


class Cluster:
    """What holds drivers; nothing is started for drivers of this machine."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place: Place = place
        self.standalone = (
            SparkCluster(folder / "spark", workers=1, cores_per_worker=4, memory_per_worker_mb=4096)
            if place == "standalone"
            else None
        )
        self.yarn = Yarn(folder / "yarn") if place == "yarn" else None

    def __enter__(self) -> Self:
        for one in (self.standalone, self.yarn):
            if one is not None:
                one.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self.standalone, self.yarn):
            if one is not None:
                one.stop()

    def target(self, local: SubmitTarget) -> SubmitTarget:
        """Return where the driver runs, made from a target of this machine."""
        conf = {
            **local.conf,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": spark_options(),
        }
        if self.standalone is not None:
            return replace(
                local,
                master=self.standalone.master,
                deploy_mode="cluster",
                cluster_url=self.standalone.rest_url,
                web_url=self.standalone.web_url,
                conf={**conf, "spark.cores.max": "2"},
            )
        if self.yarn is not None:
            return replace(
                local,
                master="yarn",
                deploy_mode="cluster",
                cluster_url=self.yarn.url,
                conf={**conf, **self.yarn.conf},
            )
        return local

    @property
    def env(self) -> dict[str, str]:
        """What the caller's environment must hold."""
        return {} if self.yarn is None else {"HADOOP_CONF_DIR": str(self.yarn.conf_dir)}


class ClusterLab(Lab):
    """One job on a cluster."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder)
        self.cluster = cluster
        self.client = replace(self.client, base_env={**os.environ, **cluster.env})

    def target(self) -> SubmitTarget:
        return self.cluster.target(super().target())

    def end(self) -> None:
        """Kill whatever of the job still runs."""
        for generation in self.client.board.generations():
            if self.client.run(generation).submit is not None:
                self.client.end_driver(generation)

    def kill_9(self) -> None:
        """Kill the driver's JVM, as the kernel would."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.jvm(), signal.SIGKILL)

    def jvm(self) -> int:
        """Return the process id of the newest driver's JVM."""
        board = self.client.board
        newest = board.generations()[-1]
        record = board.incarnation(newest, board.incarnations(newest)[-1])
        assert record is not None
        return record.jvm_pid

    def log_files(self) -> list[Path]:
        """Return the files that drivers have written their logs to."""
        return [*self.folder.glob("logs/*.log"), *self.folder.parent.glob("**/stderr")]

    def logs(self) -> str:
        return "\n".join(f"{path}\n{path.read_text()[-4000:]}" for path in self.log_files())
