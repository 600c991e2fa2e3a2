"""One stream over Kafka, with windows in which its offsets are committed back and windows without, in turn.

The job of commit_cost: ``python -m benchmarks.jobs.commit_windows SERVERS TOPIC WIDE PAIRS WINDOW_S``; prints
one JSON document. The agent's own code commits, in the process of the driver, as under the agent.
"""

from __future__ import annotations

import datetime as dt
import json
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.commits.batch_watch import BatchWatch, CommitSetting
from airflow_flinkstyle.agent.core.declared import declaration
from airflow_flinkstyle.agent.core.queries.registry import Queries
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.agent.spark.groups import JvmGroup
from airflow_flinkstyle.agent.spark.sources import sources_of
from airflow_flinkstyle.agent.spark.starts import PySparkQuery, PySparkStart
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset
from benchmarks.common import interleave
from testbed.session import local_session
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER_MS = 100
WARM_BATCHES, WARM_S = 100, 180.0
ROWS = 100
"""Per batch."""
COMMITS = 30
"""Of each width, timed one by one."""
SETTLE_S = 1.0


class Stream:
    """A query that is warm, and its windows."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, folder: str) -> None:
        self._spark = spark
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        frame = reader.option("maxOffsetsPerTrigger", ROWS).load()
        self._queries = Queries(folder)
        writer, sources = frame.writeStream.format("noop"), sources_of(frame)
        start = PySparkStart(writer, writer.start)
        self._queries.known_spark = start.session
        said = declaration(start.session, StreamOptions.of(writer), sources)
        query = self._queries.register("stream", start, sources, said)
        writer = writer.option("checkpointLocation", query.location)
        handle = writer.trigger(processingTime=f"{TRIGGER_MS} milliseconds").start()
        query.query = PySparkQuery(handle, start.session.jvm)
        self._query = query

    def warm(self) -> None:
        """Return once enough batches have run."""
        until_s = time.monotonic() + WARM_S
        while (self._query.read_committed() or 0) < WARM_BATCHES:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{WARM_BATCHES} batches were expected within {WARM_S:g} s")
            time.sleep(0.5)

    def stop(self) -> None:
        """End the query."""
        self._query.started.stop()

    def window(self, seconds: float, *, commits: bool) -> dict[str, Any]:
        """Return the mean batch of a window, and how many commits succeeded in it."""
        watch = BatchWatch(self._queries)
        watch.begin(CommitSetting(on=commits, group="bench"))
        time.sleep(SETTLE_S)  # a client's first connection is not a batch's cost
        began_s = time.time()
        time.sleep(seconds)
        ended_s = time.time()
        watch.finish()
        beats = watch.with_groups({"stream": self._query.status()})["stream"].groups
        durations_ms = [
            progress.durationMs["triggerExecution"]
            for progress in self._query.started.handle.recentProgress
            if began_s <= dt.datetime.fromisoformat(progress.timestamp).timestamp() < ended_s
            and progress.numInputRows
        ]
        return {
            "batches": len(durations_ms),
            "mean_ms": statistics.mean(durations_ms),
            "commits": sum(beat.commits_succeeded for beat in beats.values()),
            "failed": sum(beat.commits_failed for beat in beats.values()),
        }


def commit_ms(spark: SparkSession, servers: str, topic: str, partitions: int) -> list[float]:
    """Commit so many partitions again and again; returns what each commit took."""
    source = StreamingSource(
        position=0, name=None, provider="kafka", options={"kafka.bootstrap.servers": servers}
    )
    group = JvmGroup(spark._jvm, source, f"bench-{partitions}")  # noqa: SLF001
    offsets = Offsets.of({topic: {number: NextOffset(0) for number in range(partitions)}})
    taken = []
    for _ in range(COMMITS + 1):
        began_s = time.perf_counter()
        group.commit(offsets)
        taken.append(1000 * (time.perf_counter() - began_s))
    group.close()
    return taken[1:]


def main() -> None:
    """Run the windows, then the commits."""
    servers, topic, wide, pairs, window_s = sys.argv[1:]
    conf = {"spark.driver.memory": "1g", "spark.sql.streaming.numRecentProgressUpdates": "10000"}
    with (
        tempfile.TemporaryDirectory(prefix="bench-commits-") as folder,
        local_session(spark_paths(), conf) as spark,
    ):
        stream = Stream(spark, servers, topic, folder)
        stream.warm()
        stream.window(float(window_s), commits=True)  # the client's classes are loaded and compiled
        windows = interleave(
            {
                "off": lambda: stream.window(float(window_s), commits=False),
                "on": lambda: stream.window(float(window_s), commits=True),
            },
            rounds=int(pairs),
        )
        stream.stop()
        widths = {number: commit_ms(spark, servers, wide, number) for number in (1, 10, 100)}
        print(json.dumps({"windows": windows, "commit_ms": widths}))  # noqa: T201  (its purpose)


if __name__ == "__main__":
    main()
