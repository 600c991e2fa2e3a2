"""Jobs on Delta tables: savepoints, forks, and schemas that change while the job runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint.schema_tracking import is_entry
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.start.choice import plan_start
from airflow_flinkstyle.jobs.start.origins import Fresh, FromSavepoint
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.table_records import TablesToRestore
from airflow_flinkstyle.savepoint.diff import diff_savepoints
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.types import Generation
from testbed.delta import DeltaTable, commit_again, delta_settings, read_delta
from tests.integration.agent_lab import Lab
from tests.integration.table_race import KEPT, race

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.start.origins import Origin, StartPlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from tests.integration.agent_lab import Driver
    from tests.integration.warm_lab import WarmDriver, WarmJvms

pytestmark = [pytest.mark.nightly, pytest.mark.integration, pytest.mark.spark, pytest.mark.delta]

ROWS = 10
JOB = """
import sys
from pyspark.sql import SparkSession, functions as F
source, out, home = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()

def rows(name):
    reader = spark.readStream.format("delta").option("maxFilesPerTrigger", 1)
    return reader.option("schemaTrackingLocation", f"{home}/{name}/_schema_{name}").load(source)

def start(name):
    frame, mode = rows(name), "append"
    if name == "counts":
        frame, mode = frame.groupBy((F.col("id") % 3).alias("key")).agg(F.count("*").alias("n")), "complete"
    writer = frame.writeStream.format("delta").option("mergeSchema", "true").outputMode(mode)
    return writer.queryName(name).option("checkpointLocation", f"{home}/{name}").start(f"{out}/{name}")

queries = {name: start(name) for name in ("copy", "counts")}
while True:  # Delta ends a query at each change of the schema, to be started again
    try:
        spark.streams.awaitAnyTermination()
    except Exception as error:
        print(str(error)[:300], flush=True)
    spark.streams.resetTerminated()
    queries = {name: query if query.isActive else start(name) for name, query in queries.items()}
"""


class Tables:
    """A job that counts and copies the rows of a Delta table, and the table."""

    def __init__(self, folder: Path, warm_jvms: WarmJvms | None) -> None:
        self.lab = Lab(folder / "lab", lease_s=15, patience_s=300, warm=warm_jvms)
        self.out = folder / "out"
        self.lab.conf = {
            **delta_settings(),
            "spark.databricks.delta.streaming.allowSourceColumnRename": "always",
            "spark.databricks.delta.streaming.allowSourceColumnDrop": "always",
        }
        self.source = DeltaTable(folder / "source", ["id", "k", "extra"])
        self._home, self._script, self.fed = folder / "home", self.lab.script(JOB), 0

    def feed(self, *names: str) -> None:
        rows = [dict.fromkeys(names, number) for number in range(self.fed, self.fed + ROWS)]
        self.source.append(rows)
        self.fed += ROWS

    def plan(self, generation: int, origin: Origin) -> StartPlan:
        board, repository = self.lab.board, self.lab.repository
        view = JobView(board=board, repository=repository, deployment=DetachedDeployment())
        return plan_start(view, origin, f"test-{generation}")

    def start(self, generation: int, origin: Origin) -> Driver | WarmDriver:
        self.lab.claim(generation, follows=generation - 1 or None)
        return self.begin(generation, self.plan(generation, origin))

    def begin(self, generation: int, plan: StartPlan) -> Driver | WarmDriver:
        board = self.lab.board
        if plan.own_ids:
            board.create_tables_to_restore(Generation(generation), TablesToRestore(own_ids=plan.own_ids))
        board.create_takeover_order(Generation(generation), plan.order)
        return self.launch(generation)

    def launch(self, generation: int) -> Driver | WarmDriver:
        args = (str(self.source.folder), str(self.out), str(self._home))
        return self.lab.launch(generation, self._script, *args)

    def until_read(self, copies: Counter[int]) -> None:
        """Wait until the copy holds each row as often as expected, and the counts all of them once."""
        keys = Counter(number % 3 for number in range(self.fed))
        self.lab.until("all rows copied", lambda: self.copied() == copies)
        self.lab.until("all rows counted", lambda: self.counted() == keys)

    def copied(self) -> Counter[int]:
        return Counter(row["id"] for row in self.rows("copy"))  # type: ignore[misc]

    def counted(self) -> Counter[int]:
        return Counter({row["key"]: row["n"] for row in self.rows("counts")})  # type: ignore[misc]

    def rows(self, query: str) -> list[dict[str, object]]:
        return read_delta(self.out / query) if (self.out / query / "_delta_log").exists() else []

    def savepoint(self, generation: int, *, stop: bool = False) -> Manifest:
        request = self.lab.ask(generation, "stop_with_savepoint" if stop else "savepoint")
        end = self.lab.end_of(generation, request)
        manifest = self.lab.repository.read(end.savepoint_id)
        verify_savepoint(manifest, self.lab.repository, level="full")
        return manifest


@pytest.fixture
def tables(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Tables]:
    tables = Tables(tmp_path, warm_jvms)
    yield tables
    tables.lab.close()


def once(first: int, last: int) -> Counter[int]:
    return Counter(range(first, last))


def schemas(manifest: Manifest, query: str) -> list[str]:
    snapshot = manifest.query(query)
    assert snapshot is not None
    return [entry.path for entry in snapshot.files if is_entry(entry.path)]


def test_job_on_delta_goes_on_and_forks_over_a_rename_and_a_drop(tables: Tables):
    for _ in range(2):
        tables.feed("id", "k", "extra")
    tables.start(1, Fresh())
    tables.until_read(once(0, 20))
    hot = tables.savepoint(1)
    for query in hot.queries:
        assert query.tables["0"].format == "delta"
        assert query.tables["0"].version <= tables.source.version + 1
        assert query.sink_table is not None
        (path,) = schemas(hot, query.name)
        assert path.startswith(f"sources/schema/_schema_{query.name}/_schema_log_")

    tables.source.rename("k", "key")
    tables.feed("id", "key", "extra")
    tables.until_read(once(0, 30))
    stopped = tables.savepoint(1, stop=True)
    assert [len(schemas(stopped, query)) for query in ("copy", "counts")] == [2, 2]
    for moved in diff_savepoints(hot, stopped).queries:
        assert moved.tables.keys() == {"source 0", "sink"}
        assert all(before.version < after.version for before, after in moved.tables.values())  # type: ignore[union-attr]

    tables.source.drop("extra")
    tables.feed("id", "key")
    going_on = tables.start(2, FromSavepoint(savepoint_id=stopped.savepoint_id))
    tables.until_read(once(0, 40))
    tables.savepoint(2, stop=True)
    assert going_on.wait(120) == 0
    row = next(row for row in tables.rows("copy") if row["id"] == 25)
    assert (row["key"], row["extra"]) == (25, 25)  # written between the rename and the drop

    tables.start(3, FromSavepoint(savepoint_id=hot.savepoint_id, rewind="fork"))
    tables.until_read(once(0, 40) + once(20, 40))
    assert [len(schemas(tables.savepoint(3), query)) for query in ("copy", "counts")] == [3, 3]


def rows_taken_back(tables: Tables, generation: int) -> tuple[int | None, ...] | None:
    """Return how many rows were taken back from both tables; None until that is done."""
    found = [tables.lab.board.restored_table(Generation(generation), query) for query in ("copy", "counts")]
    return tuple(one.rows for one in found if one is not None) if all(found) else None


def test_rows_that_others_write_while_a_table_is_put_back_are_kept(tmp_path: Path):
    found = race("delta", tmp_path)
    assert str(found.pop("problem")).endswith("others had written version 3 since.")
    assert found == KEPT


def test_fork_takes_rows_since_the_savepoint_back_from_both_tables_unless_others_wrote(tables: Tables):
    for _ in range(2):
        tables.feed("id", "k", "extra")
    tables.start(1, Fresh())
    tables.until_read(once(0, 20))
    hot = tables.savepoint(1)
    tables.feed("id", "k", "extra")
    tables.until_read(once(0, 30))
    tables.savepoint(1, stop=True)

    back = FromSavepoint(savepoint_id=hot.savepoint_id, rewind="fork", restore_tables=True)
    tables.start(2, back)
    assert tables.lab.until("both are put back", lambda: rows_taken_back(tables, 2)) == (10, 3)
    tables.until_read(once(0, 30))
    tables.feed("id", "k", "extra")
    tables.until_read(once(0, 40))
    tables.savepoint(2, stop=True)

    tables.lab.claim(3, follows=2)
    early = tables.plan(3, back)
    commit_again(tables.out / "copy")  # as somebody else, after the caller has looked
    with pytest.raises(FlinkstyleError, match="found some of others") as refused:
        tables.plan(3, back)
    assert refused.value.code == "TABLE_RESTORE"
    tables.begin(3, early)
    failed = tables.lab.until_state(3, "failed")
    assert failed.error is not None
    assert failed.error[0] == "TABLE_RESTORE"
    assert "found some of others" in failed.error[1]
    assert tables.counted() == Counter(number % 3 for number in range(40))
    assert sum(tables.copied().values()) == 50
