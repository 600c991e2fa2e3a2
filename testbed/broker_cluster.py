"""A Kafka cluster of three brokers with every partition on each of them: one may die at any time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from testbed.kafka import Broker, new_cluster_id
from testbed.ports import free_port
from testbed.topics import Reached
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

BROKERS = 3
REPLICATED = {
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(BROKERS),
    "transaction.state.log.replication.factor": str(BROKERS),
    "transaction.state.log.min.isr": "2",
}
"""Settings of each broker: what was acknowledged stands on two brokers at least."""
_CALL_TIMEOUT_S = 10


class BrokerCluster(Reached):
    """Three brokers, each a controller too: start, stop, kill the one that leads a partition."""

    copies = BROKERS

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        cluster_id, controllers = new_cluster_id(), [free_port() for _ in range(BROKERS)]
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, 1))
        self.brokers = {
            node: Broker(
                f"{name}-{node}",
                folder / str(node),
                settings={**REPLICATED, "node.id": str(node), "controller.quorum.voters": voters},
                cluster_id=cluster_id,
                controller_port=port,
            )
            for node, port in enumerate(controllers, 1)
        }
        """By node id."""

    def __enter__(self) -> Self:
        """Return the cluster, started."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the brokers; nobody needs their logs any more."""
        for broker in self.brokers.values():
            broker.kill()

    @property
    def bootstrap(self) -> str:
        """``host:port`` of each broker."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        """Start all brokers side by side and wait until each answers."""
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(Broker.launch, self.brokers.values()))
        for broker in self.brokers.values():
            broker.wait_ready()
        wait_until(f"all brokers of {self.name} in one cluster", lambda: len(self._nodes()) == BROKERS)

    def leader(self, topic: str, partition: int) -> int:
        """Return the node id of the broker that leads a partition; -1 if none does."""
        return int(self._partitions(topic)[partition].leader)

    def kill_leader(self, topic: str, partition: int) -> int:
        """``kill -9`` the broker that leads a partition, once all are in sync; return its node id."""
        self.wait_in_sync(topic)
        node = self.leader(topic, partition)
        self.brokers[node].kill()
        return node

    def restart(self, node: int, topic: str) -> None:
        """Start a killed broker again, once others lead all partitions of a topic in its place."""
        wait_until(
            f"leaders of {topic} other than broker {node}",
            lambda: all(found.leader not in (node, -1) for found in self._partitions(topic).values()),
        )
        self.brokers[node].start()

    def wait_in_sync(self, topic: str) -> None:
        """Wait until every broker has all that is in the topic, so that any one of them may die."""
        wait_until(
            f"all copies of {topic} on {self.name} in sync",
            lambda: all(len(found.isrs) == BROKERS for found in self._partitions(topic).values()),
        )

    def _nodes(self) -> dict[int, Any]:
        return dict(self.admin().list_topics(timeout=_CALL_TIMEOUT_S).brokers)

    def _partitions(self, topic: str) -> dict[int, Any]:
        return dict(self.admin().list_topics(topic, timeout=_CALL_TIMEOUT_S).topics[topic].partitions)
