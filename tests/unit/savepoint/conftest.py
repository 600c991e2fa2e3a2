"""Small checkpoints with RocksDB state, and savepoints of them."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore

LOG_RANGE = {"orders": {0: (0, 90), 1: (0, 90)}}
ORDERS = KafkaLog(cluster_id="old", topic_ids={"orders": "t-1"}, log_range=LOG_RANGE)  # type: ignore[arg-type]


class Checkpoint:
    """A query that commits a batch when it is told to."""

    def __init__(self, store: ObjectStore, query_id: str = "q-1") -> None:
        self.store, self.batch = store, -1
        self.store.write("metadata", json.dumps({"id": query_id}).encode())
        self.store.write("sources/0/0", b"\0v1\n{}")
        self.store.write("state/0/0/_metadata/schema", b"schema")

    def plan(self, batch: int) -> None:
        header = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"1"}}'
        offsets = json.dumps({"orders": {"0": 10 + batch, "1": 20 + batch}}, separators=(",", ":"))
        self.store.write(f"offsets/{batch}", f"v1\n{header}\n{offsets}".encode())

    def commit(self, batches: int = 1) -> None:
        """Run batches; each adds one SST to those of the batch before."""
        for _ in range(batches):
            self.batch += 1
            self.plan(self.batch)
            self.store.write(f"state/0/0/SSTs/{self.batch:06}-{uuid.uuid4()}.sst", b"s" * (self.batch + 1))
            ssts = [info.key.rpartition("/")[2] for info in self.store.list("state/0/0/SSTs/")]
            content = io.BytesIO()
            with zipfile.ZipFile(content, "w") as archive:
                entries = [{"dfsSstFileName": name} for name in ssts]
                archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": entries}))
            self.store.write(f"state/0/0/{self.batch + 1}.zip", content.getvalue())
            self.store.write(f"commits/{self.batch}", b'v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def a_checkpoint() -> Callable[..., Checkpoint]:
    def make(batches: int = 3, store: ObjectStore | None = None, query_id: str = "q-1") -> Checkpoint:
        checkpoint = Checkpoint(store or MemoryStore("live"), query_id)
        checkpoint.commit(batches)
        return checkpoint

    return make


@pytest.fixture
def repository() -> SavepointRepository:
    return SavepointRepository(MemoryStore("root"), "orders")


@pytest.fixture
def take() -> Callable[..., Manifest]:
    def make(
        repository: SavepointRepository,
        checkpoint: Checkpoint,
        savepoint_id: str = "sp-1",
        **changes: Any,
    ) -> Manifest:
        source = QuerySource(name="totals", checkpoint=checkpoint.store, kafka={"0": ORDERS})
        label = SavepointLabel(
            savepoint_id=savepoint_id,
            taken_at_ms=changes.pop("taken_at_ms", 1),
            spark_version="4.2.0",
            taken_from_generation=1,
        )
        return take_savepoint(repository, [source], label, **changes)

    return make
