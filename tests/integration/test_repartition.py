"""A savepoint with another number of partitions: the query goes on from it as the unbroken one did."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import repartition_savepoint
from airflow_flinkstyle.state.errors import REPARTITION
from airflow_flinkstyle.storage.local import LocalStore
from testbed import paths
from testbed.refusals import refuses
from testbed.session import local_session
from tests.golden.stateful import CASES, STATE
from tests.integration.operator_lab import as_between_batches, assert_goes_on, lab_of, take_while_it_runs
from tests.nightly import matrix_but

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.spark import SparkPaths
    from tests.golden.stateful import Case
    from tests.integration.operator_lab import OperatorLab

VERSION = tuple(int(part) for part in (paths.SPARK or "4.2").split("."))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.skipif(VERSION < (4, 2), reason="Spark 4.2 brought repartitioning"),
]

BY_NAME = {case.name: case for case in CASES}
FEW = matrix_but("join-one-store".__eq__, ["two-operators", "join-one-store"])
ON_ROCKSDB = [
    case.name
    for case in CASES
    if "RocksDB" in case.confs.get(f"{STATE}.providerClass", "") and not case.named_sink
]
TRIED = ON_ROCKSDB if paths.SPARK else FEW
"""All of them in the runs of each Spark, a few in every run."""


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    confs = {"spark.sql.session.timeZone": "UTC", f"{STATE}.minDeltasForSnapshot": "2"}
    with local_session(spark_paths, confs) as session:
        yield session


class Taken:
    """A savepoint of a case's query, and what the query wrote, which ran on."""

    def __init__(self, spark: SparkSession, case: Case, folder: Path) -> None:
        self.lab: OperatorLab = lab_of(spark, case)
        self.root = folder / "root"
        self.repository = SavepointRepository(LocalStore(self.root), "job")
        live = folder / "live"
        self.manifest, self.unbroken = take_while_it_runs(
            self.lab, str(live), LocalStore(live), self.repository
        )
        live.rename(live.with_name("away"))
        if self.manifest.queries[0].planned_offsets is not None:  # refused where that batch's number is taken
            self.repository.delete_manifest("sp-1")
            self.manifest = as_between_batches(self.manifest)
            self.repository.publish(self.manifest)

    def repartitioned(self, partitions: int, savepoint: str = "sp-1") -> Manifest:
        done = repartition_savepoint(self.lab.spark, str(self.root), "job", partitions, savepoint)
        assert done.keys > 0
        return done.savepoint

    def partitions_of(self, manifest: Manifest) -> set[str]:
        files = [re.match(r"state/\d+/(\d+)/", entry.path) for entry in manifest.queries[0].files]
        return {match[1] for match in files if match}


@pytest.mark.matrix
@pytest.mark.parametrize("name", TRIED)
def test_query_goes_on_from_more_partitions_and_from_as_many_as_before(
    spark: SparkSession, tmp_path: Path, name: str
):
    taken = Taken(spark, BY_NAME[name], tmp_path)
    more = taken.repartitioned(5)
    back = taken.repartitioned(BY_NAME[name].partitions, more.savepoint_id)
    for manifest, expected in ((more, 5), (back, BY_NAME[name].partitions)):
        verify_savepoint(manifest, taken.repository, level="full")
        assert taken.partitions_of(manifest) == {str(number) for number in range(expected)}
        copy = tmp_path / manifest.savepoint_id
        restore_query(manifest, manifest.queries[0], taken.repository, LocalStore(copy))
        shift = manifest.queries[0].batch_id - taken.manifest.queries[0].batch_id
        assert_goes_on(taken.lab, manifest, str(copy), taken.unbroken, shift=shift)
    assert taken.repository.read(more.savepoint_id).parent == "sp-1"


@pytest.mark.nightly
def test_what_cannot_be_repartitioned_is_refused(spark: SparkSession, tmp_path: Path):
    taken = Taken(spark, BY_NAME["hdfs"], tmp_path)
    with refuses(REPARTITION, match="keeps its in HDFSBackedStateStoreProvider"):
        taken.repartitioned(5)
    with refuses(REPARTITION, match="in another number of partitions than 2"):
        taken.repartitioned(2)
    with refuses(REPARTITION, match="from 1 on, found 0"):
        taken.repartitioned(0)
    assert taken.repository.ids() == ("sp-1",)


@pytest.mark.nightly
def test_state_without_keys_that_spark_puts_where_no_batch_finds_it_is_refused(
    spark: SparkSession, tmp_path: Path
):
    """Spark keeps it in partition 0, and spreads it by the hash of no fields: the totals would begin anew."""
    case = replace(BY_NAME["without-keys"], name="without-keys-rocksdb", confs=BY_NAME["rocksdb"].confs)
    taken = Taken(spark, case, tmp_path)
    with refuses(REPARTITION, match="state without keys, in partition 0"):
        taken.repartitioned(5)
    assert taken.repository.ids() == ("sp-1",)
