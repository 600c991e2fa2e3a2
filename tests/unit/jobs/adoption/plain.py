"""A job of plain Spark without a JVM: it writes a checkpoint as Spark does, and knows nothing else."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.jobs.adoption.stopped import adopt_stopped
from airflow_flinkstyle.jobs.adoption.taking import WatchedCheckpoint
from airflow_flinkstyle.protocol.home import ADOPTED_KEY
from airflow_flinkstyle.storage.local import LocalStore
from tests.unit.jobs.drivers import QUERY, TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from airflow_flinkstyle.jobs.adoption.stopped import Adoption
    from airflow_flinkstyle.jobs.start.starts import RunHandle
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from tests.unit.jobs.conftest import World

CONFS = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"2"}}'


class PlainSpark:
    """Reads the world's old log from where its checkpoint is, and counts what it reads."""

    def __init__(self, world: World, place: Path, *, commit_version: int = 1) -> None:
        self.world, self.place, self.commit_version = world, place, commit_version
        self.checkpoint = LocalStore(place)
        if self.checkpoint.head("metadata") is None:
            self.checkpoint.write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())

    @property
    def batch(self) -> int:
        return self._newest("commits")

    def plan(self) -> int:
        """Plan the next batch up to the log's end, unless one is planned."""
        planned = self._newest("offsets")
        if planned > self.batch:
            return planned
        text = f'v1\n{CONFS}\n{{"{TOPIC}":{{"0":{self.world.logs.end("old")}}}}}'
        self.checkpoint.write(f"offsets/{planned + 1}", text.encode())
        return planned + 1

    def run(self, records: int = 5, *, batches: int = 1) -> None:
        """Let records come, and run batches, each of so many."""
        for _ in range(batches):
            planned = self._newest("offsets") > self.batch
            if not planned:
                self.world.logs.produce(records)
            batch = self.plan()
            begin = self._position(batch - 1) if batch else self.world.logs.base("old")
            base, end = self.world.logs.base("old"), self._position(batch)
            self.world.logs.counted.update(self.world.logs.records[begin - base : end - base])
            self.checkpoint.write(
                f"commits/{batch}", f'v{self.commit_version}\n{{"nextBatchWatermarkMs":0}}'.encode()
            )

    def _position(self, batch: int) -> int:
        text = self.checkpoint.read(f"offsets/{batch}").decode()
        return offset_log.parse(text).kafka_offsets("0")[TOPIC, 0]

    def _newest(self, log: str) -> int:
        numbers = [info.key.partition("/")[2] for info in self.checkpoint.list(f"{log}/")]
        return max((int(name) for name in numbers if name.isdigit()), default=-1)


class OneCluster:
    """The world's old cluster, or another, as a person named it."""

    def __init__(self, world: World, *sides: str, topics: Collection[str] = (TOPIC,)) -> None:
        self._world, self._sides, self._topics = world, sides or ("old",), set(topics)

    def with_topics(self, topics: Collection[str]) -> list[ClusterView]:
        if not self._topics.issuperset(topics):
            return []
        return [self._world.logs.view(side, topics) for side in self._sides]

    def __str__(self) -> str:
        return ", ".join(self._sides)


def watched(world: World, *plain: PlainSpark, **changes: Any) -> WatchedCheckpoint:
    """Describe jobs of plain Spark: the first one's query is that of the world's script."""
    names = [QUERY, "more", "most"]
    values: dict[str, Any] = {
        "checkpoints": {name: str(one.place) for name, one in zip(names, plain, strict=False)},
        "clusters": OneCluster(world),
    }
    return WatchedCheckpoint(**{**values, **changes})


def adopt(world: World, *queries: PlainSpark, key: str = "adopt", **changes: Any) -> Adoption:
    client = world.client()
    return adopt_stopped(client.view, watched(world, *queries, **changes), key=key, by="test", still_s=0.02)


def start(world: World, key: str = "start", **more: Any) -> RunHandle:
    client = world.client()
    handle = client.starts.start(world.spec(), world.target(), claim_key=key, **more)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    return handle


def at(world: World, generation: int) -> int:
    beat = world.board.heartbeat(generation)
    return beat.value.batches().get(QUERY, -1) if beat is not None else -1


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ADOPTED_KEY)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
