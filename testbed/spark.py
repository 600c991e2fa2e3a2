"""Spark: where it is, the jars jobs need, and a standalone cluster of real workers."""

from __future__ import annotations

import json
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed import paths
from testbed.jvm import QUICK
from testbed.nodes import Node
from testbed.ports import LOOPBACK, free_port
from testbed.process import Service
from testbed.zookeeper import ZooKeeper

if TYPE_CHECKING:
    from collections.abc import Sequence


def jar_sets(minor: str) -> tuple[str, ...]:
    """Return what a Spark has on its class path; S3A's jars fit the Hadoop of the usual one only."""
    return (f"spark-kafka-{minor}",) if minor else ("spark-kafka", "s3a")


JAR_SETS = jar_sets(paths.SPARK)
"""What every Spark of the test bed has on its class path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPaths:
    """The Spark side of this checkout."""

    python: Path
    """Interpreter of the environment with PySpark, pandas and this package."""
    spark_home: Path
    java_home: Path
    jars: tuple[Path, ...]
    """Kafka connector and S3A: on the class path of drivers and executors."""
    java_options: str = ""
    """Of a driver's JVM."""

    @property
    def spark_submit(self) -> Path:
        """The program that starts a driver."""
        return self.spark_home / "bin" / "spark-submit"

    @property
    def conf(self) -> dict[str, str]:
        """Settings with which a driver finds the jars and this Python."""
        options = {"spark.driver.extraJavaOptions": self.java_options} if self.java_options else {}
        jars = ":".join(str(jar) for jar in self.jars)
        return {
            **options,
            # Each session would copy ``spark.jars``, half a second of CPU; all of them are on this machine.
            "spark.driver.extraClassPath": jars,
            "spark.executor.extraClassPath": jars,
            "spark.pyspark.python": str(self.python),
            "spark.pyspark.driver.python": str(self.python),
        }

    @property
    def env(self) -> dict[str, str]:
        """Environment in which spark-submit finds itself, Java and Python."""
        return {
            "SPARK_HOME": str(self.spark_home),
            "JAVA_HOME": str(self.java_home),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            # Drivers of a test talk to this machine only, whatever its host name resolves to.
            "SPARK_LOCAL_IP": "127.0.0.1",
        }


def spark_paths(*, java_options: str = "", minor: str = paths.SPARK) -> SparkPaths:
    """Return where set-up has put a Spark: the tests' own, or the one of a minor version."""
    venv = paths.venv_of_spark(minor)
    homes = sorted(venv.glob("lib/python3*/site-packages/pyspark"))
    if not homes:
        asked = f"python3 -m tools.setup {minor}" if minor else "make setup"
        raise FileNotFoundError(f"PySpark was expected in {venv}, found none. Run `{asked}`.")
    return SparkPaths(
        python=Path(paths.DRIVER_PYTHON) if paths.DRIVER_PYTHON else venv / "bin" / "python",
        spark_home=homes[-1],
        java_home=paths.driver_java_home(),
        jars=tuple(jar for name in jar_sets(minor) for jar in paths.jar_set(name)),
        java_options=java_options,
    )


class SparkMaster:
    """One master of a standalone cluster: its addresses, and its process."""

    def __init__(self, number: int, folder: Path, options: Sequence[str]) -> None:
        self.port, self.web_port, self.rest_port = free_port(), free_port(), free_port()
        rest = ("-Dspark.master.rest.enabled=true", f"-Dspark.master.rest.port={self.rest_port}")
        self.service = Service(
            f"Spark master {number}",
            [
                *_daemon("org.apache.spark.deploy.master.Master"),
                *("--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self.web_port)),
            ],
            log_file=folder / ("master.log" if number == 1 else f"master-{number}.log"),
            ready=lambda: self.status() in ("ALIVE", "STANDBY"),
            env=_daemon_env(*rest, *options),
        )

    def state(self) -> dict[str, Any]:
        """Return what its web page tells as JSON: workers, active and completed applications."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.web_port}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def status(self) -> str:
        """Return ``ALIVE`` if it leads, ``STANDBY``, ``RECOVERING``, or nothing if it does not answer."""
        try:
            return str(self.state()["status"])
        except (OSError, ValueError):  # a master that recovers answers before it knows anything
            return ""


class SparkCluster:
    """A standalone cluster with workers; client and, through the REST port, cluster deploy mode."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        cores_per_worker: int = 1,
        memory_per_worker_mb: int = 1024,
        masters: int = 1,
    ) -> None:
        """Describe a cluster; two masters keep what they know in a ZooKeeper, one in a folder."""
        self._worker_count, self._folder = workers, folder
        self._keeper = ZooKeeper(folder / "zookeeper", spark_paths().spark_home) if masters > 1 else None
        recovery = (
            ("-Dspark.deploy.recoveryMode=ZOOKEEPER", f"-Dspark.deploy.zookeeper.url={self._keeper.address}")
            if self._keeper is not None
            else (
                "-Dspark.deploy.recoveryMode=FILESYSTEM",
                f"-Dspark.deploy.recoveryDirectory={folder / 'recovery'}",
            )
        )
        self.masters = tuple(SparkMaster(number, folder, recovery) for number in range(1, masters + 1))
        self.worker_services = tuple(
            Service(
                f"Spark worker {number}",
                [
                    *_daemon("org.apache.spark.deploy.worker.Worker"),
                    *("--host", LOOPBACK, "--webui-port", str(free_port())),
                    *("--cores", str(cores_per_worker), "--memory", f"{memory_per_worker_mb}m"),
                    *("--work-dir", str(folder / f"worker-{number}"), self.master),
                ],
                log_file=folder / f"worker-{number}.log",
                ready=lambda: True,
                env=_daemon_env(),
            )
            for number in range(1, workers + 1)
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def master(self) -> str:
        """The master URL for ``--master``."""
        return "spark://" + ",".join(f"{LOOPBACK}:{one.port}" for one in self.masters)

    @property
    def rest_url(self) -> str:
        """Where submissions in cluster deploy mode go, separated by commas."""
        return ",".join(f"http://{LOOPBACK}:{one.rest_port}" for one in self.masters)

    @property
    def web_url(self) -> str:
        """Of the masters' pages, separated by commas."""
        return ",".join(f"http://{LOOPBACK}:{one.web_port}" for one in self.masters)

    @property
    def leader(self) -> SparkMaster:
        """The master that leads."""
        return next(one for one in self.masters if one.status() == "ALIVE")

    @property
    def master_service(self) -> Service:
        """The process of the first master."""
        return self.masters[0].service

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The workers, each with what it has started."""
        return tuple(
            Node(service, self._folder / f"worker-{number}")
            for number, service in enumerate(self.worker_services, 1)
        )

    def start(self) -> None:
        """Start masters and workers and wait until all workers are registered."""
        try:
            if self._keeper is not None:
                self._keeper.service.start()
            for master in self.masters:
                master.service.start()
            for worker in self.worker_services:
                worker.start()
            self.wait_for_workers(self._worker_count)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the workers, then the masters."""
        for service in (*self.worker_services, *(master.service for master in self.masters)):
            service.stop()
        if self._keeper is not None:
            self._keeper.service.stop()

    def state(self) -> dict[str, Any]:
        """Return what the leading master's page tells as JSON: workers, active and completed applications."""
        return self.leader.state()

    def wait_for_workers(self, count: int) -> None:
        """Wait until that many workers are alive."""
        self.master_service.wait_ready_with(lambda: self.alive_workers() >= count)

    def alive_workers(self) -> int:
        """Return how many workers the leading master believes to live."""
        try:
            return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])
        except StopIteration:  # nobody leads yet
            return 0


def _daemon(main_class: str) -> tuple[Path | str, ...]:
    return spark_paths().spark_home / "bin" / "spark-class", main_class


def _daemon_env(*options: str) -> dict[str, str]:
    return {
        **os.environ,
        **spark_paths().env,
        "SPARK_DAEMON_MEMORY": "384m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join((*QUICK, *options)),
    }
