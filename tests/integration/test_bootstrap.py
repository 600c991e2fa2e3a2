"""A job that has never run gets its first savepoint: it counts on from tables, at chosen positions."""

from __future__ import annotations

import json
import runpy
import sys
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.kafka.start.text import parse_rules
from airflow_flinkstyle.rewrite.apply import picked_position
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import bootstrap_savepoint, savepoint_state, state_changes
from airflow_flinkstyle.state.errors import BOOTSTRAP, STATE_READ, STATE_TRANSFORM
from airflow_flinkstyle.storage.local import LocalStore
from testbed import paths
from testbed.refusals import refuses
from testbed.session import local_session
from tests.golden.stateful import CASES, HDFS, STATE
from tests.integration.operator_lab import lab_of, run_until, take_while_it_runs
from tests.nightly import matrix_but

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_flinkstyle.errors import ErrorKind
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.kafka import Broker
    from testbed.spark import SparkPaths

VERSION = tuple(int(part) for part in (paths.SPARK or "4.2").split("."))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.skipif(VERSION < (4, 2), reason="Spark 4.2 brought the writer"),
]

TOTALS = """
import sys
from pyspark.sql import SparkSession, functions as F
from beside import TOPIC
servers, checkpoint = sys.argv[1:]
spark = SparkSession.builder.appName("totals").config("spark.sql.shuffle.partitions", "2").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "subscribe": TOPIC, "startingOffsets": "earliest"}
rows = spark.readStream.format("kafka").options(**options).load()
numbers = rows.select(F.col("value").cast("string").cast("int").alias("v")).withColumn("k", F.col("v") % 3)
totals = numbers.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
query = (totals.writeStream.queryName("totals").outputMode("complete").format("memory")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
query.awaitTermination()
"""
OF_FILES = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
counts = spark.readStream.schema("k INT").json(sys.argv[1]).groupBy("k").count()
def start(name):
    writer = counts.writeStream.outputMode("update").partitionBy("k")
    (writer.queryName(name) if name else writer).start(sys.argv[2], "parquet", "complete")
{then}
spark.stop()
"""
LAB = """
import sys
from pyspark.sql import SparkSession
from tests.golden.stateful import CASES
from tests.integration.operator_lab import lab_of
[case] = [case for case in CASES if case.name == sys.argv[1]]
lab_of(SparkSession.builder.getOrCreate(), case).start("/nonexistent", {})
"""


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}
    with local_session(spark_paths, confs) as session:
        yield session


def a_script(folder: Path, text: str) -> str:
    (folder / "job.py").write_text(text)
    return str(folder / "job.py")


def restored(folder: Path, manifest: Manifest) -> str:
    copy = folder / "restored"
    repository = SavepointRepository(LocalStore(folder / "root"), "job")
    restore_query(manifest, manifest.queries[0], repository, LocalStore(copy))
    return str(copy)


def counted(values: list[int]) -> list[tuple[int, int, int]]:
    """Return what ``TOTALS`` makes of numbers: each key, how many it has, and their sum."""
    keyed = {k: [value for value in values if value % 3 == k] for k in range(3)}
    return [(k, len(found), sum(found)) for k, found in keyed.items() if found]


def test_job_counts_on_from_a_table_at_the_positions_of_the_group_that_had_counted_it(
    spark: SparkSession, tmp_path: Path, old_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = "bootstrapped"
    old_broker.create_topic(topic, partitions=2)
    producer = Producer({"bootstrap.servers": old_broker.bootstrap})
    for number in range(40):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": old_broker.bootstrap, "group.id": "old-etl"})
    ends = {0: 15, 1: 10}
    consumer.commit(
        offsets=[TopicPartition(topic, number, end) for number, end in ends.items()], asynchronous=False
    )
    consumer.close()
    (tmp_path / "beside.py").write_text(f"TOPIC = {topic!r}\n")
    script = a_script(tmp_path, TOTALS)
    before = [number for number in range(40) if number // 2 < ends[number % 2]]
    cluster = KafkaCluster(name="old", config={"bootstrap.servers": old_broker.bootstrap})
    done = bootstrap_savepoint(
        spark,
        str(tmp_path / "root"),
        "job",
        script,
        {0: spark.createDataFrame(counted(before), "k int, count long, sum long")},
        {"0": picked_position(cluster, [topic], parse_rules("group:old-etl"))},
        [old_broker.bootstrap, "/nonexistent"],
        asked_by="ada",
    )
    [query] = done.savepoint.queries
    assert (query.name, query.batch_id, query.planned_offsets) == ("totals", 0, None)
    assert query.kafka["0"].offsets.by_topic == {topic: ends}
    assert query.kafka["0"].topic_ids[topic]
    assert done.counts["totals"][0].added == 3
    assert json.loads(done.savepoint.evidence["totals/0/state changed"])["by"] == "ada"
    monkeypatch.setattr(sys, "argv", [script, old_broker.bootstrap, restored(tmp_path, done.savepoint)])
    monkeypatch.syspath_prepend(tmp_path)
    runpy.run_path(script)
    assert sorted(map(tuple, spark.table("totals").collect())) == counted(list(range(40)))


WORDS = """
import sys
from pyspark.sql import SparkSession, functions as F
servers, topic, checkpoint = sys.argv[1:]
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
lines = spark.readStream.format("kafka").options(**options).load()
counts = lines.select(F.col("value").cast("string").alias("word")).groupBy("word").count()
query = (counts.writeStream.queryName("words").outputMode("complete").format("memory")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start())
query.awaitTermination()
"""


@pytest.mark.nightly
def test_words_are_counted_on_from_a_store_of_kafka_streams(
    spark: SparkSession, tmp_path: Path, old_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the example; the changelog has the bytes of Kafka Streams' serdes."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic, changelog = "words", "word-count-counts-changelog"
    for name in (topic, changelog):
        old_broker.create_topic(name, partitions=2)
    producer = Producer({"bootstrap.servers": old_broker.bootstrap})
    words = ["one", "two", "two", "three", "four", "two", "one"]
    for word in words:
        producer.produce(topic, word.encode(), partition=0)
    for word, count in [("one", 1), ("two", 1), ("two", 2), ("three", 1), ("gone", 7), ("gone", None)]:
        value = None if count is None else count.to_bytes(8, "big")
        producer.produce(changelog, value, word.encode(), partition=len(word) % 2)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": old_broker.bootstrap, "group.id": "word-count"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 0)], asynchronous=False)
    consumer.close()
    script, example = a_script(tmp_path, WORDS), str(paths.ROOT / "examples/from_kafka_streams.py")
    servers, root = old_broker.bootstrap, str(tmp_path / "root")
    monkeypatch.setattr(sys, "argv", [example, servers, "word-count", "counts", topic, root, script])
    runpy.run_path(example, run_name="__main__")
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "words")
    [manifest] = repository.each()
    copy = tmp_path / "restored"
    restore_query(manifest, manifest.queries[0], repository, LocalStore(copy))
    monkeypatch.setattr(sys, "argv", [script, servers, topic, str(copy)])
    runpy.run_path(script)
    assert dict(map(tuple, spark.table("words").collect())) == {word: words.count(word) for word in words}


@pytest.mark.matrix
@pytest.mark.parametrize(
    "name",
    matrix_but("join-one-store".__eq__, ["join-one-store", "transform-with-state-v2", "two-operators"]),
)
def test_each_state_of_each_operator_is_taken_from_its_table(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    [case] = [case for case in CASES if case.name == name]
    lab, live = lab_of(spark, case), tmp_path / "live"
    old = tmp_path / "old"
    take_while_it_runs(lab, str(live), LocalStore(live), SavepointRepository(LocalStore(old), "job"))
    of_case: dict[str, list[tuple[int, dict[str, Any]]]] = {
        "join-one-store": [(0, {"join_side": "left"}), (0, {"join_side": "right"})],
        "transform-with-state-v2": [(0, {"variable": name}) for name in ("total", "last", "counts")],
        "two-operators": [(0, {}), (1, {})],
    }
    states = of_case[name]
    tables: dict[int, Any] = {}
    expected = []
    for number, which in states:
        state = savepoint_state(spark, str(old), "job", "sp-1", operator=number, **which).drop("partition_id")
        expected.append(state)
        if "join_side" in which:  # what Spark's reader leaves out is given, too
            state = state.selectExpr(
                "struct(key.*, row_number() OVER (PARTITION BY key ORDER BY value) - 1L AS index) AS key",
                "struct(value.*, true AS matched) AS value",
            )
        if which:
            tables.setdefault(number, {})[next(iter(which.values()))] = state
        else:
            tables[number] = state
    spark.conf.set("spark.sql.shuffle.partitions", str(case.partitions))
    done = bootstrap_savepoint(
        spark, str(tmp_path / "root"), "job", a_script(tmp_path, LAB), {"query": tables}, args=[name]
    )
    assert sum(counts.added for counts in done.counts["query"].values()) > 0
    for (number, which), state in zip(states, expected, strict=True):
        now = savepoint_state(spark, str(tmp_path / "root"), "job", operator=number, **which)
        assert state_changes(state, now).count() == 0
    rows: dict[int, list[str]] = {}
    query = lab.start(restored(tmp_path, done.savepoint), rows)
    try:
        run_until(query, rows, 2)
    finally:
        query.stop()
    assert min(rows) == 1


@pytest.mark.matrix
def test_what_is_no_first_savepoint_is_refused_and_none_is_made(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/0.json").write_text('{"k": 1}\n')
    root, table = tmp_path / "root", spark.createDataFrame([(1, 5)], "k int, count long")
    repository = SavepointRepository(LocalStore(root), "job")

    def bootstrap(then: str = "start('q')", tables: Any = None, **given: Any) -> Manifest:  # noqa: ANN401
        script = a_script(tmp_path, OF_FILES.replace("{then}", then))
        arguments = [str(tmp_path / "in"), str(tmp_path / "out")]
        tables = {0: table} if tables is None else tables
        return bootstrap_savepoint(spark, str(root), "job", script, tables, args=arguments, **given).savepoint

    position: Any = None
    refused: list[tuple[ErrorKind, str, dict[str, Any]]] = [
        (BOOTSTRAP, "failed: KeyError: 'x'", {"then": "{}['x']"}),
        (BOOTSTRAP, "left with exit code 3", {"then": "sys.exit(3)"}),
        (BOOTSTRAP, "it started none", {"then": "sys.exit(0)"}),
        (BOOTSTRAP, "found a second query", {"then": "start(''), start('')"}),
        (BOOTSTRAP, "HDFSBackedStateStoreProvider", {"then": f"{_set(HDFS)}; start('q')"}),
        (BOOTSTRAP, "q/0, found one for 7", {"positions": {"7": position}}),
        (STATE_READ, "0 .*found 4", {"tables": {4: table}}),
        (STATE_READ, "named totals|found totals|totals", {"tables": {"totals": {0: table}}}),
        (STATE_TRANSFORM, "count, k, found k", {"tables": {0: table.select("k")}}),
        (STATE_TRANSFORM, "each key once", {"tables": {0: table.union(table)}}),
    ]
    try:
        for kind, match, given in refused:
            with refuses(kind, match=f"(?s){match}"):
                bootstrap(**given)
            assert repository.ids() == ()
            spark.conf.unset(f"{STATE}.providerClass")
        made = bootstrap("start('q'), start('other')", {"q": {0: table}})
        assert [query.name for query in made.queries] == ["other", "q"]
        assert repository.ids() == (made.savepoint_id,)
        assert not (tmp_path / "out").exists()
        with refuses(BOOTSTRAP, match="has savepoints"):
            bootstrap()
    finally:
        spark.conf.unset(f"{STATE}.providerClass")


def _set(confs: dict[str, str]) -> str:
    return "; ".join(f"spark.conf.set({name!r}, {value!r})" for name, value in confs.items())
