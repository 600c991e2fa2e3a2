"""The pretended job: a query of one endless Kafka partition, whose every batch stands in a ledger."""

from __future__ import annotations

import json
import os
import random
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.guards.checks import read_positions
from airflow_flinkstyle.checkpoint.inventory import list_batches
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.types import NextOffset
from tests.small_spark import SmallStream, id_of

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.checkpoint.offset_log import OffsetLog
    from airflow_flinkstyle.storage.base import ObjectStore

QUERY, TOPIC, SHIFT, END = "orders", "orders", 100, 1_000_000_000
PARTITIONS = 2
_CONFS = (
    f'{{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{{"spark.sql.shuffle.partitions":"{PARTITIONS}"}}}}'
)
_MOST_RECORDS = 50
_SNAPSHOT_EVERY = 5


def base(cluster: str) -> int:
    """Return the offset of the first record: the new cluster holds each one ``SHIFT`` offsets earlier."""
    return SHIFT if cluster == "old" else 0


def a_view(cluster: str) -> ClusterView:
    log = LogRange(start=NextOffset(base(cluster)), end=NextOffset(END), last_stable=NextOffset(END))
    return ClusterView(
        cluster_id=cluster, topics={TOPIC: TopicView(topic_id=f"{cluster}-id", partitions={0: log})}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One batch as the sink has it."""

    generation: int
    incarnation: int
    batch: int
    begin: int
    """The first record; records are numbered from 0, whatever the cluster."""
    end: int
    """Behind the last one."""


def read_ledger(path: Path) -> list[Line]:
    """Return the lines in the order in which they were written."""
    return [Line(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


class Batches:
    """Plans, writes and commits batches of a checkpoint, as Spark does: plan, sink, state, commit."""

    def __init__(self, checkpoint: ObjectStore, *, cluster: str, ledger: Path, who: tuple[int, int]) -> None:
        self.checkpoint, self.cluster, self.ledger, self.who = checkpoint, cluster, ledger, who
        id_of(checkpoint)

    def run(self, *, plans: bool, leaves: bool) -> None:
        """Run one batch: the planned one, or the next one if it ``plans``; it may leave it planned only."""
        done = max(list_batches(self.checkpoint, "commits"), default=-1)
        positions = read_positions(self.checkpoint)
        begin = self._records(positions.committed)
        if positions.planned is None:
            if not plans:
                return
            end = begin + random.randint(1, _MOST_RECORDS)
            text = f'v1\n{_CONFS}\n{{"{TOPIC}":{{"0":{end + base(self.cluster)}}}}}'
            self.checkpoint.write(f"offsets/{done + 1}", text.encode())
            if leaves:
                return
        else:
            end = self._records(positions.planned)
        time.sleep(random.uniform(0, 0.03))
        self._write(
            Line(generation=self.who[0], incarnation=self.who[1], batch=done + 1, begin=begin, end=end)
        )
        self._keep_state(done + 2, end)
        self.checkpoint.write(f"commits/{done + 1}", b'v1\n{"nextBatchWatermarkMs":0}')

    def _records(self, log: OffsetLog | None) -> int:
        return 0 if log is None else int(log.kafka_offsets("0")[TOPIC, 0]) - base(self.cluster)

    def _write(self, line: Line) -> None:
        with self.ledger.open("ab", buffering=0) as file:
            file.write(json.dumps(asdict(line)).encode() + b"\n")

    def _keep_state(self, version: int, end: int) -> None:
        """Write a version of the state; it begins with the number of records that were counted."""
        for partition in range(PARTITIONS):
            folder = f"state/0/{partition}"
            content = f"{end}\n".encode() + os.urandom(random.randint(100, 8_000))
            self.checkpoint.write(f"{folder}/{version}.delta", content)
            if version % _SNAPSHOT_EVERY == 0:
                self.checkpoint.write(f"{folder}/{version}.snapshot", content)


class Execution(SmallStream):
    """One run of the query: it may be told to stop between the plan and the run of a batch."""

    def __init__(self, batches: Batches, *, once: bool, pause_s: float) -> None:
        super().__init__(self._run_batch, once=once, pause_s=pause_s)
        self._batches = batches
        self.start()

    def _run_batch(self, _: SmallStream) -> None:
        stopping = random.random() < 0.1
        self._batches.run(plans=not self.once, leaves=stopping and not self.once)
        if stopping:
            self.flagged.wait(0.02)
