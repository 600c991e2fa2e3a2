"""A broker of Kafka 2.8 as people still run it: beside a ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed import paths
from testbed.kafka import SMALL_BROKER, Broker
from testbed.ports import free_port, is_listening
from testbed.process import Service

if TYPE_CHECKING:
    from pathlib import Path

_JAR_SET = "kafka-2.8"


class ZooKeeperBroker(Broker):
    """One broker and its ZooKeeper: started and stopped together."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder, version="2.8")
        self._keeper_port = free_port()
        self._keeper = Service(
            f"ZooKeeper of {name}",
            [
                *(paths.java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                *("-cp", paths.class_path(_JAR_SET)),
                *("org.apache.zookeeper.server.quorum.QuorumPeerMain", folder / "zoo.cfg"),
            ],
            log_file=folder / "zookeeper.log",
            ready=lambda: is_listening(self._keeper_port),
        )

    def launch(self) -> None:
        """Start ZooKeeper, wait for it, and start the broker without waiting."""
        if not self._properties.exists():
            self._format()
        self._keeper.start()
        super().launch()

    def stop(self) -> None:
        """Stop the broker, then ZooKeeper."""
        super().stop()
        self._keeper.stop()

    def _format(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        keeper = {
            "dataDir": self._folder / "zookeeper",
            "clientPort": self._keeper_port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
        }
        broker = {
            "broker.id": 1,
            "zookeeper.connect": f"127.0.0.1:{self._keeper_port}",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "log.dirs": self._folder / "data",
            **SMALL_BROKER,
        }
        for file, settings in ((self._folder / "zoo.cfg", keeper), (self._properties, broker)):
            file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
