"""Checkpoints on a real HDFS, through the driver's own Hadoop client."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.guards.sinks import newest_batch
from airflow_flinkstyle.agent.core.job_query import Sink
from airflow_flinkstyle.agent.spark.hadoop_store import HadoopStore, needs_hadoop
from airflow_flinkstyle.agent.spark.session import PySparkSession
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.errors import PlaceOccupiedError
from airflow_flinkstyle.protocol.places import MARK_KEY, own_place
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.streams import sha256_of
from testbed.hdfs import CLIENT_CONF, Hdfs
from testbed.memory_store import MemoryStore
from testbed.session import local_session
from tests.integration.agent_lab import COUNT_JOB, Lab
from tests.unit.agent.conftest import G1, a_claim

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as hdfs:
        yield hdfs


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    with local_session(spark_paths, CLIENT_CONF, threads=1) as session:
        yield session


@pytest.fixture
def store(spark: SparkSession, hdfs: Hdfs, request: pytest.FixtureRequest) -> HadoopStore:
    return HadoopStore(spark, f"{hdfs.uri}/contract/{request.node.name}")


def test_what_is_written_is_listed_read_in_ranges_and_deleted(store: HadoopStore):
    assert list(store.list()) == []
    assert store.head("offsets/1") is None
    for key in ("offsets/10", "offsets/9", "state/0/0/1.zip", "metadata"):
        store.write(key, key.encode())
    assert [info.key for info in store.list()] == ["metadata", "offsets/10", "offsets/9", "state/0/0/1.zip"]
    assert [info.key for info in store.list("offsets/1")] == ["offsets/10"]
    assert list(store.folders()) == ["offsets", "state"]
    assert list(store.folders("state/0/")) == ["0"]
    assert store.read("offsets/10", start=3, length=4) == b"sets"
    assert store.read("offsets/10", start=3) == b"sets/10"
    assert store.read("offsets/10", start=99) == b""
    store.delete("metadata")
    store.delete("metadata")
    with pytest.raises(ObjectMissingError):
        store.read("metadata")


def test_content_is_replaced_at_once_and_created_only_once(store: HadoopStore):
    store.write("offsets/1", b"seal")
    before = store.get("offsets/1")
    store.write("offsets/1", b"the real one")
    assert before is not None
    assert store.get("offsets/1", unless=before.version).data == b"the real one"
    with pytest.raises(ObjectExistsError):
        store.create("offsets/1", b"another")
    store.create("offsets/2", b"two")
    assert [info.key for info in store.list()] == ["offsets/1", "offsets/2"]  # and nothing temporary
    with pytest.raises(BadInputError, match="Put the savepoint root on S3"):
        store.replace("offsets/1", b"x", expected=before.version)


def test_place_on_hdfs_has_one_owner_and_one_without_rights_is_refused(
    spark: SparkSession, store: HadoopStore
):
    mine, theirs = (JobBoard(MemoryStore(root), "orders") for root in ("staging", "production"))
    for board in (mine, theirs):
        board.create_claim(G1, a_claim())
    own_place(store, mine, G1)
    own_place(store, mine, G1)
    assert [info.key for info in store.list()] == [MARK_KEY]
    store.write("counts/offsets/0", b"v1")
    assert list(store.folders()) == ["counts"]
    with pytest.raises(PlaceOccupiedError, match=r"of job orders of root .* with counts in it"):
        own_place(store, theirs, G1)

    jvm = spark.sparkContext._jvm
    stranger = jvm.org.apache.hadoop.security.UserGroupInformation.createRemoteUser("stranger")
    path = jvm.org.apache.hadoop.fs.Path(f"{store.uri}-of-another")
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    denied = HadoopStore(spark, path.toString())
    denied._files = path.getFileSystem(conf).newInstance(path.toUri(), conf, stranger.getShortUserName())
    with pytest.raises(StoreDeniedError, match="expected to leave its mark in hdfs://") as caught:
        own_place(denied, mine, G1)
    assert "stranger" in caught.value.problem
    assert list(HadoopStore(spark, path.toString()).list()) == []


def test_large_files_pass_by_python_and_altered_ones_are_not_written(store: HadoopStore, tmp_path: Path):
    source, back = tmp_path / "file with space", tmp_path / "back"
    source.write_bytes(os.urandom(9 << 20))
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    store.upload("state/0/0/big", source, sha256=digest)
    store.download("state/0/0/big", back)
    assert back.read_bytes() == source.read_bytes()
    assert sha256_of(store, "state/0/0/big") == (digest, 9 << 20)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "file with space"]
    with pytest.raises(ObjectChangedError):
        store.upload("state/other", source, sha256="0" * 64)
    assert store.head("state/other") is None


def test_file_system_out_of_reach_is_retryable_and_named(spark: SparkSession):
    with pytest.raises(StoreUnavailableError, match=r"hdfs://127\.0\.0\.1:1/x could not") as failed:
        HadoopStore(spark, "hdfs://127.0.0.1:1/x").head("offsets/1")
    assert failed.value.retryable


def test_only_other_schemes_than_ours_need_hadoop():
    assert all(map(needs_hadoop, ["hdfs://n:8020/a", "abfs://c@a/b", "gs://b/c", "viewfs:///x"]))
    assert not any(map(needs_hadoop, ["/a", "file:///a", "s3a://b/c", "s3://b/c"]))


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    lab.conf.update(CLIENT_CONF)
    yield lab
    lab.close()


@pytest.mark.matrix
def test_hot_savepoint_from_hdfs_is_restored_to_hdfs_by_a_standby(lab: Lab, hdfs: Hdfs):
    script = lab.script(COUNT_JOB)
    lab.claim(1, checkpoint_location=f"{hdfs.uri}/job/1")
    lab.order_takeover(1)
    first = lab.launch(1, script)
    lab.until_batch(1)
    hot = lab.end_of(1, lab.ask(1, "savepoint"))
    assert hot.outcome == "done", hot.detail
    lab.claim(2, follows=1, checkpoint_location=f"{hdfs.uri}/job/2", prepare_savepoint_id=hot.savepoint_id)
    standby = lab.launch(2, script)
    lab.until_state(2, "standby")
    stop = lab.ask(1, "stop_with_savepoint")
    assert lab.end_of(1, stop).outcome == "done"
    assert first.wait() == 0
    closed = lab.until_state(1, "closed")
    assert lab.repository.read(stop.savepoint_id).queries[0].checkpoint_location == f"{hdfs.uri}/job/1/counts"

    lab.order_takeover(2, savepoint_id=stop.savepoint_id, closed_at=closed.batches())
    lab.until_batch(2, above=closed.batches()["counts"] + 1)
    lab.end_of(2, lab.ask(2, "stop"))
    assert standby.wait() == 0
    rows = lab.rows()
    assert [row["batch"] for row in rows] == list(range(len(rows)))
    assert all(row["n"] == row["top"] + 1 for row in rows if row["n"])
    assert rows[-1]["n"]


@pytest.mark.parametrize("path", ["s3://warehouse/table", "no-such-scheme://table", "catalog:table"])
def test_sink_whose_place_only_its_own_client_opens_keeps_no_log_of_files(spark: SparkSession, path: str):
    assert newest_batch(PySparkSession.of(spark), Sink(name="iceberg", path=path)) is None
    with pytest.raises(BadInputError, match="A place that Hadoop's client can open"):
        HadoopStore(spark, path)
