"""A Kafka broker of its own (KRaft, one node)."""

from __future__ import annotations

import base64
import secrets
import subprocess
from typing import TYPE_CHECKING, Self

from testbed import paths
from testbed.jvm import QUICK, from_archive
from testbed.ports import LOOPBACK, free_port, is_listening
from testbed.process import Service
from testbed.topics import Reached

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Settings of a broker that keeps ACLs; it denies nobody anything until there is one."""


SMALL_BROKER = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # By default an idle controller writes a record twice a second.
    "metadata.max.idle.interval.ms": "0",
    # By default a kill within a minute of delete_records brings the records back.
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
}
"""Settings of any broker of the test bed, of whichever version."""


def new_cluster_id() -> str:
    """Return 16 bytes in Kafka's way; of hexadecimal digits, so that no dash begins it, like an option."""
    return base64.urlsafe_b64encode(secrets.token_hex(8).encode()).decode().rstrip("=")


class Broker(Reached):
    """One broker: start, stop, kill, restart on the same data and port."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        heap_mb: int = 384,
        settings: Mapping[str, str] | None = None,
        port: int | None = None,
        listeners: Mapping[str, tuple[str, int]] | None = None,
        java_options: Sequence[str] = (),
        version: str = "",
        cluster_id: str | None = None,
        controller_port: int | None = None,
        class_options: Sequence[str] = from_archive("kafka"),
        host: str = LOOPBACK,
    ) -> None:
        """Prepare a broker.

        Args:
            name: For messages.
            folder: Of its data and log.
            heap_mb: Of its JVM.
            settings: Over those of the test bed.
            port: Of the plain listener; None: any that is free.
            listeners: More of them: name -> security protocol and port.
            java_options: More options of its JVM.
            version: ``3.9`` takes the jars of set ``kafka-3.9``; empty is the version of the other tests.
            cluster_id: Of the cluster that it is one of several brokers of; None: a new one.
            controller_port: Of its controller; None: any that is free.
            class_options: Those that name the archive of its classes.
            host: The address at which clients reach it.
        """
        super().__init__(name)
        self._host = host
        self.port = port or free_port()
        self._controller_port = controller_port or free_port()
        self._cluster_id = cluster_id or new_cluster_id()
        self._folder = folder
        self._settings = dict(settings or {})
        self._listeners = dict(listeners or {})
        self._jvm: tuple[str | Path, ...] = (
            *(paths.java(), f"-Xmx{heap_mb}m", *QUICK, "-Dorg.apache.logging.log4j.level=INFO"),
            *(*java_options, *(() if version else class_options)),
            *("-cp", paths.class_path(f"kafka-{version}" if version else "kafka")),
        )
        self.service = Service(
            f"Kafka broker {name}",
            [*self._jvm, "kafka.Kafka", self._properties],
            log_file=folder / "broker.log",
            ready=self._answers,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        """``host:port`` for clients."""
        return f"{self._host}:{self.port}"

    def start(self) -> None:
        """Format the data folder if it is new, start the broker, wait until it answers."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start without waiting, so that several components can start side by side."""
        if not self._properties.exists():
            self._format()
        self.service.launch()

    def wait_ready(self) -> None:
        """Return once the broker answers; end it if it does not."""
        try:
            self.service.wait_ready()
        except BaseException:
            self.service.stop(grace_s=1)
            raise

    def stop(self) -> None:
        """Shut the broker down in order; its data stays."""
        self.service.stop()

    def kill(self) -> None:
        """End the broker with SIGKILL; its data stays."""
        self.service.kill()

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    def _answers(self) -> bool:
        if not is_listening(self.port, self._host):
            return False
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin().list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def _format(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        open_to_clients = [f"PLAINTEXT://{self._host}:{self.port}"]
        open_to_clients += [f"{name}://{self._host}:{port}" for name, (_, port) in self._listeners.items()]
        protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
        protocols += [f"{name}:{protocol}" for name, (protocol, _) in self._listeners.items()]
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": ",".join(
                [*open_to_clients, f"CONTROLLER://127.0.0.1:{self._controller_port}"],
            ),
            "advertised.listeners": ",".join(open_to_clients),
            "listener.security.protocol.map": ",".join(protocols),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "data"),
            **SMALL_BROKER,
            **self._settings,
        }
        draft = self._properties.with_suffix(".draft")
        draft.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._run([*self._jvm, "kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", draft])
        draft.rename(self._properties)

    def _run(self, command: Sequence[object]) -> None:
        done = subprocess.run(  # noqa: S603  # our own command
            [str(part) for part in command], capture_output=True, text=True, timeout=240
        )
        if done.returncode != 0:
            raise RuntimeError(f"Formatting broker {self.name} ended with {done.returncode}: {done.stderr}")
