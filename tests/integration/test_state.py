"""A savepoint's state, opened with Spark's own reader: of each operator and store that Spark 4.2 can make.

The savepoints are of the golden checkpoints, whose input is known: ten rows a batch, five batches
(``tests/golden/make_checkpoints.py``).
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.state import savepoint_operators, savepoint_state, state_changes
from airflow_flinkstyle.state.errors import STATE_READ
from airflow_flinkstyle.storage.local import LocalStore
from testbed import paths
from testbed.refusals import refuses
from testbed.session import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.spark]

GOLDEN = paths.ROOT / "tests/golden"
ROWS = [(row % 5, batch * 10 + row) for batch in range(5) for row in range(10)]
TOTALS = {k: (10, sum(v for key, v in ROWS if key == k)) for k in range(5)}
KAFKA = {"0": KafkaLog(cluster_id="c", topic_ids={"golden": "t"}, log_range={})}


@pytest.fixture(scope="module")
def spark(spark_paths: SparkPaths) -> Iterator[SparkSession]:
    with local_session(spark_paths, {"spark.sql.session.timeZone": "UTC"}) as session:
        yield session


class Lab:
    """A root with savepoints of golden checkpoints, each a job of its case's name."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.root = str(folder / "root")

    def take(self, case: str, *, batch: int = 4, version: str = "4.2.0") -> str:
        """Take a savepoint of a golden checkpoint as it was after a batch, and return its id."""
        checkpoint = self.folder / f"{case}-{batch}"
        shutil.copytree(GOLDEN / version / case, checkpoint)
        for later in range(batch + 1, 5):
            (checkpoint / f"commits/{later}").unlink()
            (checkpoint / f"offsets/{later}").unlink()
        repository = SavepointRepository(LocalStore(Path(self.root)), case)
        source = QuerySource(
            name="q", checkpoint=LocalStore(checkpoint), kafka=KAFKA if case == "kafka" else {}
        )
        savepoint = f"sp-{batch}"
        label = SavepointLabel(
            savepoint_id=savepoint, taken_at_ms=batch + 1, spark_version=version, taken_from_generation=None
        )
        take_savepoint(repository, [source], label)
        return savepoint

    def state(self, case: str, **which: object) -> DataFrame:
        return savepoint_state(self.spark, self.root, case, **which)


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)


@pytest.mark.parametrize(
    "case", ["hdfs", "rocksdb", "rocksdb-changelog", "format-v2", "format-v2-changelog", "named-sink"]
)
def test_an_aggregation_is_what_its_input_adds_up_to(lab: Lab, case: str):
    lab.take(case)
    found = {row.key.k: tuple(row.value) for row in lab.state(case).collect()}
    assert found == TOTALS


def test_a_query_with_named_sources_can_be_opened_and_opened_again(lab: Lab):
    lab.take("named-sources")
    scratch = str(lab.folder / "scratch")
    twice = {k: (2 * count, 2 * total) for k, (count, total) in TOTALS.items()}  # both read the same input
    for _ in range(2):
        found = lab.state("named-sources", scratch=scratch).collect()
        assert {row.key.k: tuple(row.value) for row in found} == twice


def test_savepoints_of_older_sparks_can_be_opened(lab: Lab):
    lab.take("rocksdb-changelog", version="3.5.9")
    found = {row.key.k: tuple(row.value) for row in lab.state("rocksdb-changelog").collect()}
    assert found == TOTALS


@pytest.mark.parametrize("case", ["join", "join-format-v2", "join-one-store"])
def test_a_join_has_the_rows_of_each_side(lab: Lab, case: str):
    lab.take(case)
    sides = {side: lab.state(case, join_side=side).collect() for side in ("left", "right")}
    kept = {side: {row.value.v for row in rows} for side, rows in sides.items()}
    assert kept["left"] == kept["right"]  # both read the same rows and have the same watermark
    assert kept["left"] <= {v for _, v in ROWS}
    assert max(kept["left"]) == 49  # the newest row waits for its partner in any case


@pytest.mark.parametrize("case", ["transform-with-state", "transform-with-state-v2"])
def test_each_state_variable_can_be_opened(lab: Lab, case: str):
    lab.take(case)
    totals = {row.key[0]: row.value.s for row in lab.state(case, variable="total").collect()}
    assert totals == {k: total for k, (_, total) in TOTALS.items()}
    last = Counter(row.key[0] for row in lab.state(case, variable="last").collect())
    assert last == Counter(dict.fromkeys(range(5), 2))
    counts: Counter[int] = Counter()
    for row in lab.state(case, variable="counts").collect():
        counts[row.key[0]] += row.user_map_value.n
    assert counts == Counter(k for k, _ in ROWS)


def test_operators_are_listed(lab: Lab):
    lab.take("two-operators")
    found = savepoint_operators(lab.spark, lab.root, "two-operators").collect()
    assert {(row.operatorId, row.operatorName) for row in found} == {(0, "stateStoreSave"), (1, "dedupe")}
    assert lab.state("two-operators", operator=1).count() > 0


def test_changes_between_two_savepoints_are_those_of_the_batches_between(lab: Lab):
    early, late = lab.take("rocksdb-changelog", batch=3), lab.take("rocksdb-changelog", batch=4)
    before, after = (lab.state("rocksdb-changelog", savepoint=one) for one in (early, late))
    changes = {
        row.key.k: (row.change, *row.before, *row.after) for row in state_changes(before, after).collect()
    }
    assert {k: change for k, (change, *_) in changes.items()} == dict.fromkeys(range(5), "changed")
    read = (GOLDEN / "4.2.0/rocksdb-changelog/sources/0/4").read_text()
    number = int(re.search(r"part-(\d)", read)[1])  # files are not read in the order of their names
    for k, (_, old, new) in changes.items():
        added = [v for key, v in ROWS[10 * number :][:10] if key == k]
        gained = tuple(now - was for now, was in zip(new.value, old.value, strict=True))
        assert gained == (len(added), sum(added))
    assert state_changes(after, after).count() == 0


def test_added_and_removed_keys_are_told(lab: Lab):
    late = lab.take("dedup")
    state = lab.state("dedup", savepoint=late)
    some = state.where("key.k = 3")
    assert {row.change for row in state_changes(state, some).collect()} == {"removed"}
    assert (
        state_changes(some, state).where("change = 'added'").count() == state.where("key.k <> 3").count() > 0
    )


@pytest.mark.parametrize(
    ("case", "which", "told"),
    [
        ("rocksdb", {"operator": 7}, r"0 \(stateStoreSave\), found 7"),
        ("rocksdb", {"query": "other"}, "queries of savepoint sp-4, q, found query 'other'"),
        ("join", {}, "join of two streams"),
        ("transform-with-state", {}, "total, last, counts; expected one of them, found none"),
        ("transform-with-state", {"variable": "nope"}, "found 'nope'"),
        ("stateless", {}, "no stateful operator"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(lab: Lab, case: str, which: dict[str, object], told: str):
    lab.take(case)
    with refuses(STATE_READ, match=told):
        lab.state(case, **which)


def test_a_missing_savepoint_is_named(lab: Lab):
    lab.take("rocksdb")
    with pytest.raises(SavepointMissingError, match="sp-nope"):
        lab.state("rocksdb", savepoint="sp-nope")


def test_the_savepoint_is_as_it_was_and_no_setting_of_the_session_stays(lab: Lab):
    lab.take("format-v2")
    before = {path: path.read_bytes() for path in Path(lab.root).rglob("*") if path.is_file()}
    setting = "spark.sql.streaming.stateStore.checkpointFormatVersion"
    had = lab.spark.conf.get(setting, None)
    assert lab.state("format-v2").count() == 5
    assert lab.spark.conf.get(setting, None) == had
    after = {path: path.read_bytes() for path in Path(lab.root).rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() ^ before.keys()} <= {"intents"}
    assert {path: after[path] for path in before if path in after} == {
        p: before[p] for p in before if p in after
    }
