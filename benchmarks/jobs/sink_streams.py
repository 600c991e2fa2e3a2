"""Streams into Kafka through Spark's own sink and through ours, in turn, in one Spark: the job of sink_speed.

Every contender has a stream of its own per round, with a checkpoint and a topic of its own. The source makes
the same rows in every batch; the first batch of a stream opens things and is not counted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks import TransactionalKafkaSink
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.spread import Spread
from benchmarks.common import interleave
from testbed.session import local_session
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from confluent_kafka.admin import AdminClient
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    Batches = list[Mapping[str, Any]]
    Phases = dict[int, Mapping[str, float]]
    Start = Callable[[DataStreamWriter, str, int, Phases], DataStreamWriter]

KEYS, PARTITIONS, TASKS = 1000, 4, 2
TIMEOUT_S = 120.0
CONFS = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What streams write."""

    rows: int
    """Per batch."""
    value_bytes: int
    batches: int
    """Counted per stream."""
    shards: tuple[int, ...]
    """Of our sink; each number is a contender."""


class Streams:
    """Runs one stream at a time."""

    def __init__(self, spark: SparkSession, servers: str, folder: Path) -> None:
        self.spark, self.servers, self.folder = spark, servers, folder
        self._count = 0
        self._ended: list[str] = []
        """Topics of streams that have ended; their records are not needed any more."""

    def compare(self, case: Case, rounds: int) -> dict[str, list[Batches]]:
        """Return per contender and round what became of the counted batches."""
        starts: dict[str, Start] = {"native": self._native, "count": _only_counted}
        starts |= {str(shards): partial(self._ours, shards) for shards in case.shards}
        runs = {name: partial(self.run, case, start) for name, start in starts.items()}
        return interleave(runs, rounds=rounds)

    def run(self, case: Case, start: Start) -> Batches:
        """Run a stream until enough batches have ended, and delete what it wrote."""
        self._count += 1
        topic = f"out-{os.getpid()}-{self._count}"  # a broker may serve several processes, in turn
        admin = self._create(topic)
        source = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", case.rows)
        records = source.option("numPartitions", TASKS).load().selectExpr(*columns(case.value_bytes))
        writer = records.writeStream.option("checkpointLocation", str(self.folder / topic))
        phases: Phases = {}
        query = start(writer, topic, case.batches, phases).start()
        try:
            told = _wait(query, case.batches)
        finally:
            query.stop()
            self._delete_the_last_but_one(admin, topic)
        return [{**batch, "phase_s": phases.get(batch["batch"], {})} for batch in told]

    def _native(self, writer: DataStreamWriter, topic: str, batches: int, phases: Phases) -> DataStreamWriter:
        return writer.format("kafka").option("kafka.bootstrap.servers", self.servers).option("topic", topic)

    def _ours(
        self, shards: int, writer: DataStreamWriter, topic: str, batches: int, phases: Phases
    ) -> DataStreamWriter:
        """Return what writes each batch and notes its phases; behind those that count it writes nothing."""
        sink = TransactionalKafkaSink({"bootstrap.servers": self.servers}, topic=topic, shards=shards)

        def write(frame: DataFrame, batch_id: int) -> None:
            if batch_id <= batches:
                sink.foreach_batch(frame, batch_id)
            if batch_id <= batches and sink.last_batch is not None:
                phases[batch_id] = sink.last_batch.phase_s

        return writer.foreachBatch(write)

    def _delete_the_last_but_one(self, admin: AdminClient, ended: str) -> None:
        """Delete old records: not yet the last ones, of which Spark's producer may still be sending some."""
        for topic in self._ended:
            admin.delete_topics([topic])[topic].result(20)
        self._ended = [ended]

    def _create(self, topic: str) -> AdminClient:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result(20)
        return admin


def _only_counted(writer: DataStreamWriter, topic: str, batches: int, phases: Phases) -> DataStreamWriter:
    """Spread each batch as our sink does, over as many tasks, and only count it: what Spark itself takes."""
    settings = SinkSettings(
        cluster=KafkaCluster(name="none", config={"bootstrap.servers": "none:0"}),
        topic=topic,
        lineage=topic,
        shards=TASKS,
        control_topic=topic,
        run="none",
    )

    def count(batches: Iterator[pa.RecordBatch], shards: range) -> int:
        return sum(batch.num_rows for batch in batches)

    def write(frame: DataFrame, batch_id: int) -> None:
        Spread.of(frame, settings).answers(count)

    return writer.foreachBatch(write)


def columns(value_bytes: int) -> tuple[str, ...]:
    """Return keys and values of the source's rows."""
    return (
        f"cast(value % {KEYS} as string) as key",
        f"lpad(cast(value as string), {value_bytes}, 'x') as value",
    )


def _wait(query: StreamingQuery, batches: int) -> Batches:
    """Return what Spark tells of the batches behind the first.

    Spark is asked seldom and little: our sink's driver side runs in this process, Spark's own does not.
    """
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        if not query.isActive:
            raise RuntimeError(f"the stream ended: {query.exception()}")
        newest = query.lastProgress
        if newest is not None and newest["batchId"] >= batches:
            told = [one for one in query.recentProgress if one["numInputRows"]][1 : batches + 1]
            return [
                {
                    "batch": one["batchId"],
                    "add_ms": one["durationMs"]["addBatch"],
                    "whole_ms": one["durationMs"]["triggerExecution"],
                }
                for one in told
            ]
        time.sleep(0.1)
    raise TimeoutError(f"{batches + 1} batches were expected within {TIMEOUT_S} s")


def count_only(spark: SparkSession, case: Case) -> list[int]:
    """Let Python workers count a batch's rows, and return the largest resident size of each, in bytes."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})

    rows = spark.range(0, case.rows, 1, TASKS).withColumnRenamed("id", "value")
    rows.selectExpr(*columns(case.value_bytes)).mapInArrow(count, "rows long").collect()
    return workers_peak()


def workers_peak() -> list[int]:
    """Return the largest resident size in bytes that each of Spark's Python workers has had."""
    parents, names, peaks = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
            names[int(folder.name)] = (folder / "cmdline").read_text()
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(status["PPid"])
        peaks[int(folder.name)] = int(status.get("VmHWM", "0 kB").split()[0]) * 1024
    daemons = {pid for pid, name in names.items() if "pyspark.daemon" in name}
    jvm = {pid for pid, parent in parents.items() if parent == os.getpid()}
    ours = {pid for pid in daemons if parents[pid] in jvm}
    return [peaks[pid] for pid in daemons if parents[pid] in ours]


def main() -> int:
    """Run the cases of a task file and write what was found."""
    task_file, answer_file = map(Path, sys.argv[1:])
    task = json.loads(task_file.read_text())
    cases = [Case(**given) for given in task["cases"]]
    with tempfile.TemporaryDirectory() as folder, local_session(spark_paths(), CONFS) as spark:
        idle = count_only(spark, cases[-1])
        streams = Streams(spark, task["servers"], Path(folder))
        found = []
        for case in cases:
            streams.compare(case, 1)  # the first streams meet a cold JVM
            found.append(streams.compare(case, task["rounds"]))
        answer_file.write_text(json.dumps({"cases": found, "idle": idle, "workers": workers_peak()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
