"""Sources taken anew, added, removed and reordered: Spark goes on, and every row is counted."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.answers.rules import source_changes
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.apply import checked_position
from airflow_flinkstyle.rewrite.errors import SOURCE_CHANGE
from airflow_flinkstyle.rewrite.identity import change_sources
from airflow_flinkstyle.rewrite.source_changes import (
    AddSource,
    RemoveSource,
    RenameSources,
    ReorderSources,
    ReplacePosition,
    SourceChange,
)
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import NextOffset
from testbed.refusals import refuses
from testbed.session import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest
    from testbed.kafka import Broker
    from testbed.spark import SparkPaths
    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]

READ, UNREAD = 6, 4
NAMED = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


@dataclass(frozen=True, kw_only=True)
class Feed:
    """A topic of numbered rows on one of the clusters."""

    broker: Broker
    topic: str

    @property
    def cluster(self) -> KafkaCluster:
        return KafkaCluster(name=self.broker.name, config={"bootstrap.servers": self.broker.bootstrap})

    def write(self, first: int, rows: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(first, first + rows):
            producer.produce(self.topic, f"{self.topic}-{number}".encode(), partition=number % 2)
        assert producer.flush(20) == 0

    def rows(self, first: int, end: int) -> set[str]:
        return {f"{self.topic}-{number}" for number in range(first, end)}

    def at(self, offset: int) -> KafkaPosition:
        offsets = Offsets({(self.topic, number): NextOffset(offset) for number in range(2)})
        return checked_position(describe(self.cluster, [self.topic]), offsets, self.broker.name)

    def read(self, spark: SparkSession, name: str | None) -> DataFrame:
        reader = spark.readStream.name(name) if name else spark.readStream
        options = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "4",  # so that there is a batch before the last one
        }
        return reader.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS row")


class Query:
    """Counts the rows of two topics of the old cluster; half was read when it was stopped, half was not."""

    def __init__(
        self, spark: SparkSession, pair: KafkaPair, folder: Path, names: tuple[str, str] | None
    ) -> None:
        self.spark, self.folder = spark, folder
        token = uuid.uuid4().hex[:6]
        self.a, self.b, self.c = (
            Feed(broker=broker, topic=f"identity-{token}-{topic}")
            for topic, broker in (("a", pair.old), ("b", pair.old), ("c", pair.new))
        )
        for feed in (self.a, self.b, self.c):
            feed.broker.create_topic(feed.topic, partitions=2)
            feed.write(0, READ)
        self.repository = SavepointRepository(LocalStore(folder / "root"), "rows")
        keys = names or ("0", "1")
        script = {keys[0]: self.a, keys[1]: self.b}
        assert self.run("first", script) == self.a.rows(0, READ) | self.b.rows(0, READ)
        self.manifest = self._take(script)
        for feed in (self.a, self.b, self.c):
            feed.write(READ, UNREAD)

    @property
    def before(self) -> set[str]:
        """Rows counted before the savepoint."""
        return self.a.rows(0, READ) | self.b.rows(0, READ)

    def _take(self, script: dict[str, Feed]) -> Manifest:
        logs = {key: feed.at(0) for key, feed in script.items()}
        source = QuerySource(
            name="rows",
            checkpoint=LocalStore(self.folder / "first"),
            kafka={
                key: KafkaLog(cluster_id=log.cluster_id, topic_ids=log.topic_ids, log_range=log.log_range)
                for key, log in logs.items()
            },
        )
        label = SavepointLabel(
            savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None
        )
        manifest = take_savepoint(self.repository, [source], label)
        assert manifest.queries[0].batch_id > 0
        return manifest

    def run(self, checkpoint: str, script: dict[str, Feed], spark: SparkSession | None = None) -> set[str]:
        """Read all there is; returns the rows counted since the first start, each exactly once."""
        spark = spark or self.spark
        frames = [feed.read(spark, None if key.isdigit() else key) for key, feed in script.items()]
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.union(frame)
        name = f"rows_{uuid.uuid4().hex[:6]}"
        writer = rows.groupBy("row").count().writeStream.outputMode("complete").format("memory")
        writer = writer.queryName(name).option("checkpointLocation", str(self.folder / checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(150)
        counts = {row["row"]: row["count"] for row in spark.table(name).collect()}
        assert {row: count for row, count in counts.items() if count != 1} == {}
        return set(counts)

    def changed(
        self,
        checkpoint: str,
        script: dict[str, Feed],
        *changes: SourceChange,
        spark: SparkSession | None = None,
    ) -> set[str]:
        """Change the sources, restore, and go on with the new script."""
        result = change_sources(self.manifest, self.repository, changes)
        target = LocalStore(self.folder / checkpoint)
        restore_query(result, result.queries[0], self.repository, target)
        return self.run(checkpoint, script, spark)


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "600m"}
    with local_session(spark_paths, confs) as session:
        yield session


@pytest.fixture(scope="module")
def placed(spark: SparkSession, kafka_pair: KafkaPair, tmp_path_factory: pytest.TempPathFactory) -> Query:
    return Query(spark, kafka_pair, tmp_path_factory.mktemp("placed"), None)


def by_name(spark: SparkSession) -> SparkSession:
    """Return a session in which sources have names."""
    session = spark.newSession()
    for conf, value in {**NAMED, "spark.sql.shuffle.partitions": "2"}.items():
        session.conf.set(conf, value)
    return session


@pytest.fixture(scope="module")
def named(spark: SparkSession, kafka_pair: KafkaPair, tmp_path_factory: pytest.TempPathFactory) -> Query:
    return Query(by_name(spark), kafka_pair, tmp_path_factory.mktemp("named"), ("alpha", "zeta"))


def test_position_that_does_not_exist_is_refused_by_partition(placed: Query):
    place = {
        "kafka_conn_id": "new",
        "topics": [placed.c.topic],
        "start": {"offsets": {placed.c.topic: {"0": 3}}},
    }
    asked = {"rows": {"replace": {"0": place}}}
    with refuses(SOURCE_CHANGE, match=f"{placed.c.topic}-1: refused"):
        source_changes(asked, placed.manifest, placed.repository, lambda _: placed.c.cluster)


def all_of(feed: Feed) -> set[str]:
    return feed.rows(0, READ + UNREAD)


def test_source_taken_anew_on_another_cluster_leaves_state_and_the_other_source(placed: Query):
    """Its unread rows are dropped; the new log counts from its position on."""
    change = ReplacePosition(query="rows", source="0", position=placed.c.at(2))
    counted = placed.changed("replaced", {"0": placed.c, "1": placed.b}, change)
    assert counted == placed.before | all_of(placed.b) | placed.c.rows(4, READ + UNREAD)


@pytest.mark.nightly
def test_added_source_begins_at_its_position_and_those_behind_it_go_on(placed: Query):
    change = AddSource(query="rows", source="0", position=placed.c.at(3))
    counted = placed.changed("added", {"0": placed.c, "1": placed.a, "2": placed.b}, change)
    assert counted == all_of(placed.a) | all_of(placed.b) | placed.c.rows(6, READ + UNREAD)


@pytest.mark.nightly
def test_removed_source_stays_in_state_and_the_other_goes_on(placed: Query):
    counted = placed.changed("removed", {"0": placed.b}, RemoveSource(query="rows", source="0"))
    assert counted == placed.before | all_of(placed.b)


@pytest.mark.nightly
def test_reordered_sources_each_go_on_where_they_were(placed: Query):
    change = ReorderSources(query="rows", order=("1", "0"))
    counted = placed.changed("reordered", {"0": placed.b, "1": placed.a}, change)
    assert counted == all_of(placed.a) | all_of(placed.b)


@pytest.mark.nightly
def test_named_sources_are_taken_anew_added_and_removed_at_once(named: Query):
    """As ``ChangeSourcesOperator`` is told: one position is from a table, one counts from where it was."""
    on_c = {"kafka_conn_id": "new", "topics": [named.c.topic]}
    on_b = {"kafka_conn_id": "old", "topics": named.b.topic}
    asked = {
        "remove": ["alpha"],
        "add": {"beta": {**on_c, "start": {"offsets": {named.c.topic: {"0": 3, "1": 3}}}}},
        "replace": {"zeta": {**on_b, "start": "shift:1"}},
    }
    clusters = {"old": named.b.cluster, "new": named.c.cluster}
    changes = source_changes({"rows": asked}, named.manifest, named.repository, clusters.__getitem__)
    counted = named.changed("changed", {"beta": named.c, "zeta": named.b}, *changes)
    assert counted == named.before | named.b.rows(8, READ + UNREAD) | named.c.rows(6, READ + UNREAD)


@pytest.mark.nightly
def test_sources_that_get_names_go_on_where_they_were_in_whatever_order_the_script_has(placed: Query):
    change = RenameSources(query="rows", names={"0": "orders", "1": "returns"})
    script = {"returns": placed.b, "orders": placed.a}
    counted = placed.changed("got-names", script, change, spark=by_name(placed.spark))
    assert counted == all_of(placed.a) | all_of(placed.b)


@pytest.mark.nightly
def test_sources_that_lose_their_names_go_on_at_the_places_that_they_get(named: Query, spark: SparkSession):
    change = RenameSources(query="rows", names={"alpha": "1", "zeta": "0"})
    counted = named.changed("lost-names", {"0": named.b, "1": named.a}, change, spark=spark)
    assert counted == all_of(named.a) | all_of(named.b)
