"""A ZooKeeper from Spark's own jars: what two masters or two ResourceManagers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed import paths
from testbed.jvm import QUICK
from testbed.ports import LOOPBACK, free_port, is_listening
from testbed.process import Service

if TYPE_CHECKING:
    from pathlib import Path


class ZooKeeper:
    """One server."""

    def __init__(self, folder: Path, spark_home: Path) -> None:
        port = free_port()
        self.address = f"{LOOPBACK}:{port}"
        self.service = Service(
            "ZooKeeper",
            [
                *(paths.java(), "-Xmx128m", *QUICK, "-Dzookeeper.admin.enableServer=false"),
                *("-cp", f"{spark_home}/jars/*", "org.apache.zookeeper.server.ZooKeeperServerMain"),
                *(str(port), folder / "data"),
            ],
            log_file=folder / "zookeeper.log",
            ready=lambda: is_listening(port),
        )
