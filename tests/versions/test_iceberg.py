"""A job on Iceberg tables, on each Spark that Iceberg runs on; ``make test-versions`` runs it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.start.choice import plan_start
from airflow_flinkstyle.jobs.start.origins import Fresh, FromSavepoint
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.table_records import TablesToRestore
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.types import Generation
from testbed.paths import SPARK, jar_set
from tests.integration.agent_lab import Lab
from tests.integration.table_race import KEPT, race

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.start.origins import Origin
    from airflow_flinkstyle.protocol.records import Command
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from tests.integration.agent_lab import Driver

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.iceberg]

ROWS = 10
JOB = """
import json, sys
from pyspark.sql import SparkSession
source, out = sys.argv[1:3]
spark = SparkSession.builder.getOrCreate()
for name in ("first", "second"):
    spark.sql(f"CREATE TABLE IF NOT EXISTS lake.db.{name} (id BIGINT) USING iceberg")

def note(batch, batch_id):
    with open(out, "a") as file:
        file.write(json.dumps({"batch": batch_id, "ids": [row.id for row in batch.collect()]}) + "\\n")

def copy(name, rows):
    rows.writeStream.queryName(name).format("iceberg").outputMode("append").toTable(f"lake.db.{name}")

copy("first", spark.readStream.schema("id BIGINT").json(source))
copy("second", spark.readStream.table("lake.db.first"))
seen = spark.readStream.table("lake.db.second")
seen.writeStream.queryName("seen").foreachBatch(note).start()
spark.streams.awaitAnyTermination()
"""
"""Files to a table, that to another, and that to a function: Iceberg as source and as sink."""

TABLE_JOB = """
import json, os, sys
from pyspark.sql import SparkSession
source, out = sys.argv[1:3]
spark = SparkSession.builder.getOrCreate()
spark.sql("CREATE TABLE IF NOT EXISTS lake.db.copy (id BIGINT) USING iceberg")
rows = spark.readStream.schema("id BIGINT").json(source)
copy = rows.writeStream.queryName("copy").format("iceberg").outputMode("append").toTable("lake.db.copy")
while not copy.awaitTermination(1):
    with open(out + ".part", "w") as file:
        file.write(json.dumps([row.id for row in spark.table("lake.db.copy").collect()]))
    os.replace(out + ".part", out)
"""
"""Files to a table, which it reads again and again."""


class Lake:
    """A job, its files, and what has come through both tables."""

    def __init__(self, folder: Path, script: str = JOB) -> None:
        self.lab = Lab(folder / "lab", lease_s=15, patience_s=600)
        jars = [str(jar) for jar in jar_set(f"iceberg-{SPARK}")]
        self.lab.conf = {
            "spark.jars": ",".join(jars),
            "spark.driver.extraClassPath": ":".join(jars),
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "warehouse"),
            "spark.flinkstyle.keepTableVersions": "true",
        }
        self._metadata = folder / "warehouse" / "db" / "copy" / "metadata"
        self._files, self._script, self.fed = folder / "in", self.lab.script(script), 0
        self._files.mkdir()

    def feed(self) -> None:
        part = self._files / f".{self.fed}.json"
        part.write_text("".join(f'{{"id": {n}}}\n' for n in range(self.fed, self.fed + ROWS)))
        part.rename(self._files / f"{self.fed}.json")
        self.fed += ROWS

    def start(self, generation: int, origin: Origin) -> Driver:
        self.lab.claim(generation, follows=generation - 1 or None)
        board, repository = self.lab.board, self.lab.repository
        view = JobView(board=board, repository=repository, deployment=DetachedDeployment())
        plan = plan_start(view, origin, f"test-{generation}")
        if plan.own_ids:
            board.create_tables_to_restore(Generation(generation), TablesToRestore(own_ids=plan.own_ids))
        board.create_takeover_order(Generation(generation), plan.order)
        return self.launch(generation)

    def launch(self, generation: int) -> Driver:
        return self.lab.launch(generation, self._script, str(self._files), str(self.lab.out))

    def tags(self) -> set[str]:
        """Return of which savepoints snapshots are tagged."""
        newest = (self._metadata / "version-hint.text").read_text()
        metadata = (self._metadata / f"v{newest}.metadata.json").read_text()
        return {name.rpartition("/copy/")[2] for name in json.loads(metadata)["refs"]} - {"main"}

    def until_held(self, expected: Counter[int], driver: Driver) -> None:
        def held() -> bool:
            assert driver.process.poll() is None, driver.text[-8000:]
            return self.lab.out.exists() and Counter(json.loads(self.lab.out.read_text())) == expected

        self.lab.until(f"{expected} in the table", held)

    def until_seen(self, expected: Counter[int], driver: Driver) -> None:
        def seen() -> bool:
            assert driver.process.poll() is None, driver.text[-8000:]
            lines = self.lab.out.read_text().splitlines() if self.lab.out.exists() else []
            return Counter(number for line in lines for number in json.loads(line)["ids"]) == expected

        self.lab.until(f"{expected} through both tables", seen)

    def savepoint(self, generation: int, *, stop: bool = False, incarnation: int = 1) -> Manifest:
        command: Command = "stop_with_savepoint" if stop else "savepoint"
        request = self.lab.ask(generation, command, incarnation=incarnation)
        end = self.lab.end_of(generation, request)
        assert end.outcome == "done", end.detail
        manifest = self.lab.repository.read(end.savepoint_id)
        verify_savepoint(manifest, self.lab.repository, level="full")
        return manifest


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    lake.lab.close()


def once(first: int, last: int) -> Counter[int]:
    return Counter(range(first, last))


def test_job_on_iceberg_goes_on_and_a_fork_writes_its_rows_beside_the_old_ones(lake: Lake):
    lake.feed()
    first = lake.start(1, Fresh())
    lake.until_seen(once(0, 10), first)
    hot = lake.savepoint(1)
    for name, is_source, is_sink in (("first", False, True), ("second", True, True), ("seen", True, False)):
        query = hot.query(name)
        assert query is not None
        assert [at.format for at in query.tables.values()] == ["iceberg"] * is_source
        assert (query.sink_table is not None) == is_sink

    lake.feed()
    lake.until_seen(once(0, 20), first)
    stopped = lake.savepoint(1, stop=True)
    assert first.wait(120) == 0
    second = lake.start(2, FromSavepoint(savepoint_id=stopped.savepoint_id))
    lake.feed()
    lake.until_seen(once(0, 30), second)
    lake.savepoint(2, stop=True)
    assert second.wait(120) == 0

    lake.lab.out.rename(lake.lab.folder / "out-before.jsonl")
    third = lake.start(3, FromSavepoint(savepoint_id=hot.savepoint_id, rewind="fork"))
    # From the savepoint on: the rows that both tables hold from before, the first table's once more through
    # the fork of the second, and the fork of the first table's.
    lake.until_seen(once(10, 30) + once(10, 30) + once(10, 30), third)


def test_rewinds_take_rows_back_from_an_iceberg_table_and_a_driver_that_dies_behind_that_is_followed(
    tmp_path: Path,
):
    lake = Lake(tmp_path, TABLE_JOB)
    try:
        lake.feed()
        first = lake.start(1, Fresh())
        lake.until_held(once(0, 10), first)
        hot = lake.savepoint(1)
        assert lake.tags() == {hot.savepoint_id}
        lake.feed()
        lake.until_held(once(0, 20), first)
        lake.savepoint(1, stop=True)
        assert first.wait(120) == 0

        for generation, rewind in ((2, "re-emit"), (3, "fork")):
            back = FromSavepoint(savepoint_id=hot.savepoint_id, rewind=rewind, restore_tables=True)
            driver = lake.start(generation, back)
            done = lake.lab.until(
                "rows taken back",
                lambda: lake.lab.board.restored_table(Generation(generation), "copy"),  # noqa: B023
            )
            assert done.rows == 10
            driver.kill()
            lake.lab.out.unlink()
            driver = lake.launch(generation)
            lake.until_held(once(0, 20), driver)
            lake.savepoint(generation, stop=True, incarnation=2)
            assert driver.wait(120) == 0
    finally:
        lake.lab.close()


def test_rows_that_others_write_while_a_table_is_put_back_are_kept(tmp_path: Path):
    found = race("iceberg", tmp_path)
    assert "which others wrote since" in str(found.pop("problem"))
    assert found == KEPT
