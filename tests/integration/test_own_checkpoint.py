"""Where a script names a checkpoint, and whether it is found there as Spark's own client finds it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.declared import declaration
from airflow_flinkstyle.agent.core.guards.own_checkpoint import recorded_location, require_none
from airflow_flinkstyle.agent.core.job_query import JobQuery
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.agent.spark.hadoop_store import HadoopStore
from airflow_flinkstyle.agent.spark.session import PySparkSession
from airflow_flinkstyle.agent.spark.starts import PySparkStart
from airflow_flinkstyle.jobs.adoption import outside
from airflow_flinkstyle.protocol.errors import CheckpointFoundError
from airflow_flinkstyle.protocol.home import ADOPTED_KEY, AdoptedMark
from airflow_flinkstyle.storage.open import open_as_hadoop
from airflow_flinkstyle.types import BatchId
from testbed.drivers import s3_settings
from testbed.hdfs import CLIENT_CONF, Hdfs
from testbed.memory_store import MemoryStore
from testbed.session import local_session

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import SparkSession

    from testbed.s3 import S3Server
    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DEFAULT = "spark.sql.streaming.checkpointLocation"
FILES = {
    "metadata": b'{"id":"5c3f4a0e-0000-4000-8000-000000000000"}',
    "offsets/0": b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1764191055123,"conf":{}}\n0',
    "commits/0": b'v1\n{"nextBatchWatermarkMs":0}',
}
FOUND = "batch 0 committed, last written 2025-11-26 21:04 UTC, query id 5c3f4a0e-0000-4000-8000-000000000000"


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths, s3_server: S3Server) -> Iterator[SparkSession]:
    with local_session(spark_paths, {**s3_server.spark_conf(), **CLIENT_CONF}, threads=1) as session:
        yield session


@contextmanager
def default_location(spark: SparkSession, location: str | None) -> Iterator[None]:
    if location is not None:
        spark.conf.set(DEFAULT, location)
    try:
        yield
    finally:
        spark.conf.unset(DEFAULT)


def look(
    spark: SparkSession,
    location: str | None,
    *,
    default: str | None = None,
    name: str | None = "orders",
    left: Collection[str] = (),
    ran: Collection[str] = (),
    elsewhere: Collection[str] = (),
) -> None:
    """Look for what a script leaves behind that names a location, or a default of the session."""
    writer = spark.readStream.format("rate").load().writeStream.format("noop")
    said = StreamOptions.of(writer)
    said.query_name = name
    if location is not None:
        said.set_options({"checkpointLocation": location})
    with default_location(spark, default):
        query = JobQuery(
            name=name or "query",
            start=PySparkStart(writer, lambda: None),
            checkpoint=MemoryStore(),
            location="/ours",
            sources=(),
            declared=declaration(PySparkSession.of(spark), said, ()),
        )
        others = {query.declared.recorded().key: other for other in elsewhere}
        require_none(query, job="shop", left_behind=left, ran=ran, elsewhere=others)


def put(place: Path, *keys: str) -> Path:
    """Write a checkpoint, or some files of it."""
    for key in keys or FILES:
        (place / key).parent.mkdir(parents=True, exist_ok=True)
        (place / key).write_bytes(FILES.get(key, b"{}"))
    return place


def found(spark: SparkSession, location: str | None, **said: object) -> str:
    with pytest.raises(CheckpointFoundError) as refused:
        look(spark, location, **said)
    return refused.value.problem


@pytest.mark.parametrize("name", ["ck", "a b", "a#b", "a?b", "a%20b", "a+b&c=d", "ü", "a:b"])
def test_checkpoint_is_found_under_any_name_of_a_folder(spark: SparkSession, tmp_path: Path, name: str):
    place = put(tmp_path / name)
    assert found(spark, str(place)).endswith(
        f"found a checkpoint at {place}, which its script names: {FOUND}."
    )
    look(spark, str(place), left=[str(place)])


def test_checkpoint_is_found_however_the_script_names_it(spark: SparkSession, tmp_path: Path):
    place = put(tmp_path / "orders")
    assert FOUND in found(spark, f"file://{place}")
    assert FOUND in found(spark, f"file:{place}")
    assert FOUND in found(spark, f"{place}//")
    assert FOUND in found(spark, None, default=str(tmp_path))
    relative = os.path.relpath(place)
    assert f"at {place}, which" in found(spark, relative)
    for spelled in (str(place), f"{place}/", f"file://{place}", relative):
        look(spark, relative, left=[spelled])
    assert FOUND in found(spark, str(place), left=[str(tmp_path), f"{place}-2", "orders", "yes", "True"])


@pytest.mark.parametrize(
    ("named", "whole"),
    [
        ("/data/a b#c%20d/", "/data/a b#c%20d"),
        ("file:///data//ck", "/data/ck"),
        ("ck/orders", f"{Path.cwd()}/ck/orders"),
        ("s3a://bucket/ck", "s3a://bucket/ck"),
        ("hdfs://namenode:8020/ck", "hdfs://namenode:8020/ck"),
        ("hdfs:///ck", "hdfs:/ck"),
        ("dbfs:/ck", "dbfs:/ck"),
        ("ck:x", None),
        ("/" + 1000 * "x", None),
        ("", None),
        (None, None),
    ],
)
def test_location_is_told_whole_without_a_look_at_its_store(
    spark: SparkSession, named: str | None, whole: str | None
):
    assert recorded_location(PySparkSession.of(spark), named) == whole


def test_nothing_is_found_where_plain_spark_would_begin_anew_too(spark: SparkSession, tmp_path: Path):
    put(tmp_path / "orders")
    look(spark, str(tmp_path / "not there"))
    look(spark, str(tmp_path))
    look(spark, None)
    look(spark, None, default=str(tmp_path), name=None)  # Spark makes a new folder at each start
    look(spark, str(put(tmp_path / "begun", "metadata", "sources/0/0", "offsets/.0.1c6.tmp")))


def test_a_batch_that_was_only_planned_is_found_too(spark: SparkSession, tmp_path: Path):
    place = put(tmp_path / "ck", "metadata", "offsets/0")
    assert "no batch committed, batch 0 planned" in found(spark, str(place))


def test_folder_that_spark_2_4_escaped_is_found_and_its_name_told(spark: SparkSession, tmp_path: Path):
    place = put(tmp_path / "a%20b")
    said = found(spark, str(tmp_path / "a b"))
    assert f"(in {place.parent}/a%20b, as Spark 2.4 wrote it)" in said


def test_checkpoints_beside_it_and_queries_that_ran_before_are_named(spark: SparkSession, tmp_path: Path):
    for name in ("clicks", "orders", "totals"):
        put(tmp_path / name)
    (tmp_path / "_spark_metadata").mkdir()
    assert found(spark, str(tmp_path / "orders")).endswith("; beside it clicks, totals.")
    with pytest.raises(CheckpointFoundError) as refused:
        look(spark, str(tmp_path / "orders"), ran=["totals", "clicks"])
    assert "the script had started clicks, totals" in refused.value.state_after
    assert "under another job's name: `flinkstyle job adopt --job shop-moved" in refused.value.remedy


def test_checkpoint_that_another_job_has_adopted_is_that_jobs(spark: SparkSession, tmp_path: Path):
    place = put(tmp_path / "ck")
    mark = AdoptedMark(
        root="s3://shop/savepoints",
        job="orders",
        query="orders",
        batch_id=BatchId(0),
        savepoint_id="sp-1",
        at_ms=1,
    )
    (place / ADOPTED_KEY).write_bytes(mark.to_bytes())
    with pytest.raises(CheckpointFoundError) as refused:
        look(spark, str(place))
    assert "from which job orders of root s3://shop/savepoints continues" in refused.value.problem
    assert "start job orders instead" in refused.value.remedy
    look(spark, str(place), left=[str(place)])
    (place / ADOPTED_KEY).write_bytes(b"{")
    assert FOUND in found(spark, str(place))


def test_query_that_another_job_of_the_root_has_is_that_jobs(spark: SparkSession, tmp_path: Path):
    location = str(tmp_path / "not there")
    with pytest.raises(CheckpointFoundError) as refused:
        look(spark, location, elsewhere=["query totals of job orders"])
    assert "found query totals of job orders with the same sources, the" in refused.value.problem
    assert "start that job instead" in refused.value.remedy
    look(spark, location, elsewhere=["query totals of job orders"], left=[location])
    look(spark, None, elsewhere=["query totals of job orders"])


@pytest.mark.parametrize(
    "location",
    ["dbfs:/ck", "abfss://c@account.dfs.core.windows.net/ck", "gs://bucket/ck", "nofs://host/ck", "ck:x"],
)
def test_place_that_nobody_can_look_into_is_refused_unless_it_is_named(spark: SparkSession, location: str):
    assert f"{location}, which its script names, could not be read" in found(spark, location)
    look(spark, location, left=[location])


def test_checkpoint_on_s3_is_found_with_the_sessions_own_login(spark: SparkSession, s3_server: S3Server):
    s3_server.create_bucket("first-start")
    for key, data in FILES.items():
        s3_server.client().put_object(Bucket="first-start", Key=f"jobs/a b#1/{key}", Body=data)
    location = "s3a://first-start/jobs/a b#1"
    assert FOUND in found(spark, location)
    look(spark, location, left=["s3://first-start/jobs/a b#1/"])
    read = outside.inspect_query("orders", location, partial(open_as_hadoop, s3=s3_settings(s3_server)))
    assert (read.batch_id, read.query_id) == (0, "5c3f4a0e-0000-4000-8000-000000000000")
    look(spark, "s3a://first-start/jobs/another")
    assert "could not be read" in found(spark, "s3a://no-such-bucket-here/ck")


@pytest.mark.matrix
def test_checkpoint_on_hdfs_is_found(spark: SparkSession, tmp_path: Path):
    with Hdfs(tmp_path / "hdfs") as hdfs:
        location = f"{hdfs.uri}/jobs/a b"
        store = HadoopStore(spark, location)
        look(spark, location)
        for key, data in FILES.items():
            store.write(key, data)
        assert FOUND in found(spark, location)
        look(spark, location, left=[location])
