"""Savepoints that a job has run past, against a sink that remembers batches; and Sparks that do not fit."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.guards.sinks import newest_batch, sink_of
from airflow_flinkstyle.agent.core.job_query import Sink
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.agent.spark.session import PySparkSession
from airflow_flinkstyle.jobs.start.rewinds import fork
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.renumber import renumber
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.sinks import newest_logged
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import BatchId
from testbed.session import local_session
from testbed.waiting import scaled, wait_until
from tests.integration.agent_lab import COUNT_JOB, Lab
from tests.integration.numbered_files import ROWS_PER_FILE, NumberedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
    from testbed.spark import SparkPaths
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark]

STATE = "spark.sql.streaming.stateStore"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state"
FILES_JOB = """
import sys
from pyspark.sql import SparkSession
source, out, files_per_batch = sys.argv[1:4]
spark = SparkSession.builder.appName("files").getOrCreate()
rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", files_per_batch).json(source)
query = rows.writeStream.format("json").option("checkpointLocation", "/nonexistent/ignored").start(out)
query.awaitTermination()
"""


class Files(NumberedFiles):
    """Numbered rows in files, and the files that a reader of a file sink's output finds."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.out = folder / "out"

    def newest_batch(self) -> int:
        found = newest_logged(path.name for path in (self.out / "_spark_metadata").iterdir())
        assert found is not None
        return found

    def counts(self) -> Counter[int]:
        """Return how often each row stands in the files that the sink's log names."""
        log = self.out / "_spark_metadata"
        entries = [path for path in log.iterdir() if not path.name.startswith(".")] if log.exists() else []
        lines = {line for path in entries for line in path.read_text().splitlines()[1:]}
        named = [self.out / json.loads(line)["path"].rpartition("/")[2] for line in lines]
        return Counter(json.loads(row)["id"] for path in named for row in path.read_text().splitlines())

    def missing(self) -> list[int]:
        return sorted(set(range(self.written * ROWS_PER_FILE)) - set(self.counts()))


# --- the sink by itself, without the agent -----------------------------------------------------------


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {
        "spark.sql.shuffle.partitions": "2",
        f"{STATE}.maintenanceInterval": "200ms",
        f"{STATE}.minDeltasForSnapshot": "2",
    }
    with local_session(spark_paths, confs) as session:
        yield session


class Query:
    """A query that copies the rows of a file source into a file sink, by plain Spark."""

    def __init__(self, spark: SparkSession, folder: Path, *, stateful: bool) -> None:
        self.spark, self.folder, self.files, self.stateful = spark, folder, Files(folder), stateful
        self.repository = SavepointRepository(LocalStore(folder / "root"), "files")

    def run(self, checkpoint: str, *, files_per_batch: int = 1) -> None:
        reader = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", files_per_batch)
        rows: DataFrame = reader.json(str(self.files.source))
        rows = rows.dropDuplicates(["id"]) if self.stateful else rows
        writer = rows.writeStream.format("json").option("checkpointLocation", str(self.folder / checkpoint))
        started = writer.start(str(self.files.out))
        try:
            started.processAllAvailable()
            if self.stateful:
                wait_until("every store has a full version", lambda: self._has_full_versions(checkpoint))
        finally:
            started.stop()

    def _has_full_versions(self, checkpoint: str) -> bool:
        """Return whether Spark's maintenance has written a snapshot of each partition's state."""
        stores = [self.folder / checkpoint / "state" / "0" / str(number) for number in range(2)]
        return all([*store.glob("*.snapshot"), *store.glob("*.zip")] for store in stores)

    def take(self, checkpoint: str) -> Manifest:
        source = QuerySource(name="files", checkpoint=LocalStore(self.folder / checkpoint), kafka={})
        label = SavepointLabel(
            savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None
        )
        return take_savepoint(self.repository, [source], label)

    def restore(self, manifest: Manifest, query: QuerySnapshot, checkpoint: str) -> None:
        target = LocalStore(self.folder / checkpoint)
        restore_query(replace(manifest, queries=(query,)), query, self.repository, target)


@pytest.mark.nightly
def test_file_sink_silently_loses_files_whose_batch_ids_it_knows(spark: SparkSession, tmp_path: Path):
    query = Query(spark, tmp_path, stateful=False)
    query.files.feed(3)
    query.run("first")
    manifest = query.take("first")
    query.files.feed(3)
    query.run("first")
    query.files.feed(3)
    query.restore(manifest, manifest.queries[0], "again")
    query.run("again", files_per_batch=3)
    assert query.files.missing() == list(range(60, 90))  # three files, and Spark said nothing

    query.restore(manifest, renumber(manifest.queries[0], BatchId(query.files.newest_batch())), "behind")
    query.run("behind", files_per_batch=3)
    assert query.files.missing() == []


@pytest.mark.parametrize(
    ("provider", "changelog"),
    [
        pytest.param("HDFSBackedStateStoreProvider", "false", marks=pytest.mark.matrix),
        pytest.param("RocksDBStateStoreProvider", "false", marks=pytest.mark.nightly),
        pytest.param("RocksDBStateStoreProvider", "true", marks=pytest.mark.matrix),
    ],
)
def test_renumbered_state_goes_on_behind_the_sinks_newest_batch(
    spark: SparkSession, tmp_path: Path, provider: str, changelog: str
):
    spark.conf.set(f"{STATE}.providerClass", f"{PROVIDERS}.{provider}")
    spark.conf.set(f"{STATE}.rocksdb.changelogCheckpointing.enabled", changelog)
    query = Query(spark, tmp_path, stateful=True)
    query.files.feed(5)
    query.run("first")
    manifest = query.take("first")
    query.files.feed(3)
    query.run("first")
    newest = query.files.newest_batch()
    assert newest > manifest.queries[0].batch_id

    query.restore(manifest, renumber(manifest.queries[0], BatchId(newest)), "behind")
    query.files.feed(2)
    (query.files.source / "9999.json").write_text('{"id": 0}\n{"id": 99}\n')  # the state knows both
    query.run("behind")
    counts = query.files.counts()
    assert query.files.missing() == []
    assert {row for row, count in counts.items() if count == 2} == set(range(50, 80))  # emitted once more
    assert max(counts.values()) == 2


@pytest.mark.nightly
def test_table_is_known_by_its_provider_and_place(spark: SparkSession, tmp_path: Path):
    spark.sql(f"CREATE TABLE copied (id BIGINT) USING json LOCATION '{tmp_path}/copied'")
    seen = StreamOptions()
    seen.set_target("toTable", "copied")
    copied = Sink(name="json", path=f"file:{tmp_path}/copied", table="copied")
    assert sink_of(PySparkSession.of(spark), seen) == copied
    assert newest_batch(PySparkSession.of(spark), sink_of(PySparkSession.of(spark), seen)) is None
    seen.set_target("toTable", "not_there_yet")
    assert sink_of(PySparkSession.of(spark), seen) == Sink(name="parquet")


@pytest.mark.matrix
@pytest.mark.delta
def test_delta_silently_loses_batches_of_a_query_id_it_knows_and_none_of_a_fork(
    spark_paths: SparkPaths, tmp_path: Path
):
    script = Path(__file__).with_name("delta_batches.py")
    done = subprocess.run(
        [spark_paths.python, script, tmp_path],
        env={**os.environ, **spark_paths.env},
        capture_output=True,
        text=True,
        timeout=scaled(280),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads((tmp_path / "found.json").read_text()) == {"first": 60, "re-emit": 60, "fork": 90}


# --- under the agent ---------------------------------------------------------------------------------


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    yield lab
    lab.close()


def test_batch_ids_used_again_are_refused_and_a_fork_counts_on(lab: Lab):
    files, script = Files(lab.folder), lab.script(FILES_JOB)
    files.feed(3)
    args = (str(files.source), str(files.out))
    first = lab.start(1, script, *args, "1")
    lab.until("three batches", lambda: lab.until_batch(1, "query") == 2)
    hot = lab.end_of(1, lab.ask(1, "savepoint"))
    files.feed(3)
    lab.until_batch(1, "query", above=4)
    lab.end_of(1, lab.ask(1, "stop"))
    assert first.wait() == 0
    manifest = lab.repository.read(hot.savepoint_id)
    assert manifest.queries[0].sink == "json"

    files.feed(3)
    refused = lab.start(2, script, *args, "3", savepoint_id=hot.savepoint_id, rewind="re-emit")
    assert refused.wait() == 1
    code, text = lab.heartbeat(2).error
    assert code == "SINK_SKIPS"
    assert "has seen batches up to 5 and would silently leave out batches 3 to 5" in text
    assert lab.current().generation == 1

    forked = fork(manifest, lab.repository, "test")
    lab.claim(3, follows=1)
    lab.order_takeover(3, savepoint_id=forked.savepoint_id, rewind="fork")
    third = lab.launch(3, script, *args, "3")
    lab.until_batch(3, "query", above=6)
    lab.end_of(3, lab.ask(3, "stop"))
    assert third.wait() == 0
    assert files.missing() == []
    assert {row for row, count in files.counts().items() if count == 2} == set(range(30, 60))


def test_spark_that_does_not_fit_is_refused_while_the_job_runs_on(lab: Lab):
    script = lab.script(COUNT_JOB)
    lab.start(1, script)
    lab.until_batch(1)
    hot = lab.end_of(1, lab.ask(1, "savepoint"))
    newer = replace(lab.repository.read(hot.savepoint_id), savepoint_id="sp-newer", spark_version="9.1.0")
    lab.repository.publish(newer)

    lab.claim(2, follows=1, prepare_savepoint_id="sp-newer")
    lab.conf["spark.sql.shuffle.partitions"] = "3"
    standby = lab.launch(2, script)
    assert standby.wait() == 1
    code, text = lab.heartbeat(2).error
    assert code == "SPARK_INCOMPATIBLE"
    assert "Spark is 9.1.0 there" in text
    assert "spark.sql.shuffle.partitions of query counts is 2 there and 3 here" in text
    assert lab.begun(2) == []
    assert lab.current().generation == 1
    lab.until_batch(1, above=max(lab.heartbeat(1).batches().values()))
