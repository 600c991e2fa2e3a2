"""A query into a topic through the transactional sink, run over and over, and what the topic holds then."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import ErrorKind
from airflow_flinkstyle.kafka.audit.open_transactions import open_transactions
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.reading import ReadRange, scan
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks import TransactionalKafkaSink
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.kafka.reading import KafkaMessage
    from testbed.kafka import Broker

ROWS = 40
"""Per batch: values 0 to 39 in batch 0, and so on; the same whenever a batch is run."""


class Lab:
    """A stream of numbers into a topic through a sink; each start is a new run of the same query."""

    def __init__(
        self,
        spark: SparkSession,
        broker: Broker,
        topic: str,
        folder: Path,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.spark, self.topic, self.folder = spark, topic, folder
        servers = {"bootstrap.servers": broker.bootstrap, **(config or {})}
        self.cluster = KafkaCluster(name="out", config=servers)

    def sink(self, **options: Any) -> TransactionalKafkaSink:
        """Return the sink; batches are written by tasks, however small they are, unless a test says else."""
        usual = {"topic": self.topic, "shards": 2, "lineage": f"{self.topic}-line", "small_batch_rows": 0}
        given = {**usual, **options}
        return TransactionalKafkaSink(self.cluster.config, **given)

    def run(
        self,
        write: Callable[[DataFrame, int], None],
        *,
        batches: int,
        shape: Callable[[DataFrame], DataFrame] | None = None,
        checkpoint: str = "checkpoint",
    ) -> None:
        """Run the query until so many batches have ended in this run, or raise what it died of."""
        done: list[int] = []

        def counted(frame: DataFrame, batch_id: int) -> None:
            if len(done) < batches:
                write(frame, batch_id)
                done.append(batch_id)

        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
        rows = (shape or as_records)(source)
        writer = rows.writeStream.foreachBatch(counted).trigger(processingTime="0 seconds")
        query = writer.option("checkpointLocation", str(self.folder / checkpoint)).start()
        try:
            while len(done) < batches or not (self.folder / checkpoint / f"commits/{done[-1]}").exists():
                assert not query.awaitTermination(0.05), "the source has no end"
        finally:
            query.stop()
            # Spark ends a query without waiting for its tasks: one would fence the run that comes next
            wait_until("the end of the run's tasks", lambda: not running_tasks(self.spark))
            self.truncate(checkpoint, done)

    def truncate(self, checkpoint: str, done: list[int]) -> None:
        """Leave only the batches that were written: the run goes on a little longer than it is looked at."""
        for name in ("offsets", "commits"):
            for log in (self.folder / checkpoint / name).glob("*"):
                number = log.name.strip(".").removesuffix(".crc")
                if number.isdigit() and done and int(number) > done[-1]:
                    log.unlink()

    @property
    def query_id(self) -> str:
        """The query's id, known once it has run."""
        metadata = json.loads((self.folder / "checkpoint/metadata").read_text())
        return str(metadata["id"])

    def rewind(self, to: int) -> None:
        """Let the checkpoint end with an earlier batch, as after a restored savepoint."""
        self.truncate("checkpoint", [to])

    def forget_commit(self, batch_id: int) -> None:
        """Let Spark run a batch again, as after a crash behind the sink's commit."""
        for name in (str(batch_id), f".{batch_id}.crc"):
            (self.folder / "checkpoint/commits" / name).unlink(missing_ok=True)

    def records(self, isolation: str = "read_committed") -> list[KafkaMessage]:
        wait_until("the end of what was committed", lambda: settled(self.cluster, self.topic))
        view = describe(self.cluster, [self.topic])
        found: list[KafkaMessage] = []
        ranges = {
            tp: ReadRange(low=span.start, high=span.last_stable)
            for tp in view.partitions
            if (span := view.log_range(tp))
        }
        scan(self.cluster, ranges, lambda _, record: found.append(record), isolation)  # type: ignore[arg-type]
        return found

    def counts(self) -> Counter[int]:
        return Counter(int(record.value() or b"") for record in self.records())


def settled(cluster: KafkaCluster, topic: str) -> bool:
    """Return whether no transaction is about to end: a commit is answered before its end stands in the topic.

    One that was left open, by whom a test has ended, stays so.
    """
    view = describe(cluster, [topic])
    spans = {tp: view.log_range(tp) for tp in view.partitions}
    unstable = {tp for tp, span in spans.items() if span is None or span.last_stable < span.end}
    left_open = [one for one in open_transactions(cluster) if one.state == "Ongoing"] if unstable else []
    return all(any(tp in one.partitions for one in left_open) for tp in unstable)


def running_tasks(spark: SparkSession) -> int:
    """Count the tasks that executors still run, those of cancelled stages included."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    executors = context.statusStore().executorList(True)
    return sum(executors.apply(at).activeTasks() for at in range(executors.size()))


def as_records(source: DataFrame) -> DataFrame:
    return source.selectExpr("cast(value % 7 as string) as key", "cast(value as string) as value")


def once(batches: int) -> Counter[int]:
    return Counter(range(batches * ROWS))


def refused(error: type[Exception] | ErrorKind, text: str) -> AbstractContextManager[object]:
    """Expect a query to die of an error of ours; Spark has only what Python prints of it."""
    shown = f"{text}.*{error.code}" if isinstance(error, ErrorKind) else f"{error.__name__}.*{text}"
    return pytest.raises(Exception, match=f"(?s){shown}")


def die(batch: int, shard: int, phase: str) -> Callable[[int, int, str], None]:
    def on_phase(at_batch: int, at_shard: int, at_phase: str) -> None:
        if (at_batch, at_shard, at_phase) == (batch, shard, phase):
            raise RuntimeError(f"dies in {phase}")

    return on_phase


def topic_of(request: pytest.FixtureRequest) -> str:
    """Name a topic after the test."""
    return re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
