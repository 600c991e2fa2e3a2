"""A deletion request: a key goes from the state, and so does each savepoint that still holds it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.retention import dispose_of
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import DropKeys, savepoint_state, savepoints_with, transform_state
from airflow_flinkstyle.state.transform import Counts
from airflow_flinkstyle.storage.local import LocalStore
from testbed.session import local_session
from tests.golden.stateful import ROCKSDB, Case, totals
from tests.integration.operator_lab import assert_goes_on, lab_of, take_behind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from testbed.spark import SparkPaths

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.nightly,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

KEY = "key.k = 4"


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    with local_session(spark_paths, {"spark.sql.session.timeZone": "UTC"}) as session:
        yield session


def test_key_is_in_no_savepoint_after_it_was_dropped_and_the_job_counts_on(
    spark: SparkSession, tmp_path: Path
):
    plain, root = lab_of(spark, Case("deletion", totals, ROCKSDB)), str(tmp_path / "root")
    lab = replace(plain, given=lambda rows: rows.where("k <> 4 OR batch >= 2"))  # so that some hold key 4
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "job")
    _, unbroken = take_behind(lab, tmp_path / "live", repository, range(5))
    [gone] = savepoint_state(lab.spark, root, "job", "sp-5").where(KEY).collect()
    done = transform_state(lab.spark, root, "job", {0: DropKeys(KEY)}, "sp-5")
    assert done.counts[0] == Counts(added=0, removed=1, changed=0, kept=4)
    held = savepoints_with(lab.spark, root, "job", KEY)
    assert [(one.savepoint_id, one.keys) for one in held] == [("sp-3", 1), ("sp-4", 1), ("sp-5", 1)]
    for one in held:
        dispose_of(JobBoard(repository.store, "job"), repository, one.savepoint_id, holder="ada")
    assert savepoints_with(lab.spark, root, "job", KEY) == []
    left = ("sp-1", "sp-2", done.savepoint.savepoint_id)
    assert sorted(repository.ids()) == sorted(left)
    for savepoint in left:
        verify_savepoint(repository.read(savepoint), repository, level="full")
    expected = {}
    for batch, texts in unbroken.items():
        rows = [json.loads(text) for text in texts]
        for row in rows:
            if row["k"] == 4:
                row["n"] -= gone.value["count"]
                row["s"] -= gone.value["sum"]
        expected[batch] = sorted(map(json.dumps, rows))
    copy = tmp_path / "copy"
    restore_query(done.savepoint, done.savepoint.queries[0], repository, LocalStore(copy))
    assert_goes_on(lab, done.savepoint, str(copy), expected)
