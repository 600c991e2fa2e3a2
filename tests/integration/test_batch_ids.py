"""Functions that remember batch ids, like Delta's recipe for idempotent writes, and savepoints run past."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.start.choice import plan_start
from airflow_flinkstyle.jobs.start.origins import Fresh, FromSavepoint
from airflow_flinkstyle.jobs.start.rewinds import UNSEEN_BATCHES
from airflow_flinkstyle.jobs.view import JobView
from testbed.delta import delta_settings, read_delta
from tests.integration.agent_lab import COUNT_JOB, Lab
from tests.integration.numbered_files import NumberedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.start.origins import Origin
    from tests.integration.agent_lab import Driver
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark]

RECIPE = """
import sys
from pyspark.sql import SparkSession, functions as F
source, out, version = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(source)
rows = rows.withColumn("version", F.lit(version))

def append(batch, batch_id):
    writer = batch.write.format("delta").mode("append")
    writer.option("txnAppId", "orders").option("txnVersion", batch_id).save(f"{out}/append")

def merge(batch, batch_id):
    session = batch.sparkSession
    session.conf.set("spark.databricks.delta.write.txnAppId", "orders")
    session.conf.set("spark.databricks.delta.write.txnVersion", str(batch_id))
    session.sql(f"CREATE TABLE IF NOT EXISTS delta.`{out}/merge` (id LONG, version STRING) USING delta")
    batch.createOrReplaceTempView("news")
    session.sql(f"MERGE INTO delta.`{out}/merge` t USING news n ON t.id = n.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")

for function in (append, merge):
    rows.writeStream.queryName(function.__name__).foreachBatch(function).start()
spark.streams.awaitAnyTermination()
"""


def start(
    lab: Lab, generation: int, script: Path, *args: str, origin: Origin, follows: int | None = None
) -> Driver:
    """Start a generation as a caller does."""
    lab.claim(generation, follows=follows or generation - 1 or None)
    view = JobView(board=lab.board, repository=lab.repository, deployment=DetachedDeployment())
    lab.board.create_takeover_order(generation, plan_start(view, origin, f"test-{generation}").order)
    return lab.launch(generation, script, *args)


class Recipe:
    """A job that appends and merges into Delta tables by batch id, its files, and what the tables hold."""

    QUERIES = ("append", "merge")

    def __init__(self, folder: Path, warm_jvms: WarmJvms | None) -> None:
        self.lab = Lab(folder / "lab", lease_s=15, patience_s=300, warm=warm_jvms)
        self.files, self.out = NumberedFiles(folder), folder / "tables"
        self.lab.conf = delta_settings()
        self.script = self.lab.script(RECIPE)

    def start(self, generation: int, version: str, origin: FromSavepoint | None = None) -> Driver:
        args = (str(self.files.source), str(self.out), version)
        return start(self.lab, generation, self.script, *args, origin=origin or Fresh())

    def until_read(self, generation: int, batches: dict[str, int]) -> None:
        for query, batch in batches.items():
            self.lab.until_batch(generation, query, above=batch - 1)

    def rows(self, table: str) -> Counter[tuple[int, str]]:
        return Counter((row["id"], row["version"]) for row in read_delta(self.out / table))


@pytest.fixture
def recipe(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Recipe]:
    recipe = Recipe(tmp_path, warm_jvms)
    yield recipe
    recipe.lab.close()


def rows(first: int, last: int, version: str) -> Counter[tuple[int, str]]:
    return Counter((number, version) for number in range(first, last))


@pytest.mark.nightly
@pytest.mark.delta
def test_fork_gives_deltas_recipe_numbers_that_no_batch_had(recipe: Recipe):
    lab, files = recipe.lab, recipe.files
    files.feed(2)
    first = recipe.start(1, "old")
    recipe.until_read(1, dict.fromkeys(recipe.QUERIES, 1))
    hot = lab.end_of(1, lab.ask(1, "savepoint")).savepoint_id
    files.feed(2)
    recipe.until_read(1, dict.fromkeys(recipe.QUERIES, 3))
    lab.end_of(1, lab.ask(1, "stop"))
    assert first.wait(120) == 0
    assert recipe.rows("append") == recipe.rows("merge") == rows(0, 40, "old")

    files.feed(1)
    second = recipe.start(2, "new", FromSavepoint(savepoint_id=hot, rewind="fork"))
    behind = lab.board.takeover_order(2).unused_from
    assert all(behind[query] > 3 for query in recipe.QUERIES)
    recipe.until_read(2, {query: batch + 3 for query, batch in behind.items()})
    lab.end_of(2, lab.ask(2, "stop"))
    assert second.wait(120) == 0
    assert recipe.rows("append") == rows(0, 40, "old") + rows(20, 50, "new")
    assert recipe.rows("merge") == rows(0, 20, "old") + rows(20, 50, "new")


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab", lease_s=15, patience_s=300, warm=warm_jvms)
    yield lab
    lab.close()


@pytest.mark.matrix
def test_ids_used_again_are_refused_where_a_function_may_leave_them_out(lab: Lab):
    script = lab.script(COUNT_JOB)
    killed = start(lab, 1, script, origin=Fresh())
    lab.until_batch(1)
    hot = lab.end_of(1, lab.ask(1, "savepoint")).savepoint_id
    lab.until_batch(1, above=lab.repository.read(hot).queries[0].batch_id)
    killed.kill()

    refused = start(lab, 2, script, origin=FromSavepoint(savepoint_id=hot, rewind="re-emit"))
    beat = lab.until_state(2, "failed")
    assert refused.wait(120) == 1
    assert beat.error[0] == "SINK_SKIPS"
    assert "foreachBatch of query counts, which may leave out batch ids that it has seen" in beat.error[1]
    assert lab.current().generation == 1

    before = max(row["batch"] for row in lab.rows())
    start(lab, 3, script, origin=FromSavepoint(savepoint_id=hot, rewind="fork"), follows=1)
    first = lab.board.takeover_order(3).unused_from["counts"] + 1
    assert before < UNSEEN_BATCHES < first  # it died without a word
    lab.until_batch(3, above=first)
    forked = [row for row in lab.rows() if row["batch"] > before]
    assert forked[0]["batch"] == first
    assert all(row["n"] == row["top"] + 1 for row in forked)
