"""Queries that a script starts one after another: each is one query, as plain Spark has it, or is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.declared import Declaration, declaration
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.agent.spark.session import PySparkSession
from airflow_flinkstyle.agent.spark.sources import sources_of
from tests.integration.agent_lab import Lab, plain_submit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    yield lab
    lab.close()


HEAD = """
import json, os, sys, threading
from pyspark.sql import SparkSession, functions as F
folder = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
def rows():
    return spark.readStream.schema("value string").text(folder + "/in")
def once(frame):
    return frame.writeStream.trigger(availableNow=True)
"""

THREE = (
    HEAD
    + """
for n in range(3):
    if os.path.exists(f"{folder}/done-{n}"):
        continue
    writer = once(rows()).format("json").option("checkpointLocation", f"{folder}/own-{n}")
    if "named" in sys.argv:
        writer = writer.queryName(f"part-{n}")
    writer.start(f"{folder}/out-{n}").awaitTermination()
    open(f"{folder}/done-{n}", "w").close()
"""
)


def an_input(folder: Path, rows: int) -> str:
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "first.txt").write_text("".join(f"{n}\n" for n in range(rows)))
    return str(folder)


def counts(folder: Path, parts: int = 3) -> list[int]:
    """Return how many rows stand in each output."""
    files = [list((folder / f"out-{n}").glob("*.json")) for n in range(parts)]
    return [sum(len(file.read_text().splitlines()) for file in part) for part in files]


def test_queries_of_one_loop_are_refused_without_names_and_run_as_in_plain_spark_with_them(lab: Lab):
    script, alone = lab.script(THREE), lab.folder / "alone"
    plain_submit(script, an_input(alone, 4))
    assert counts(alone) == [4, 4, 4]

    named = lab.folder / "named"
    driver = lab.start(1, script, an_input(named, 4), "named")
    assert driver.wait(200) == 0
    assert counts(named) == [4, 4, 4]

    unnamed = lab.folder / "unnamed"
    lab.claim(2, follows=1)
    lab.order_takeover(2)
    driver = lab.launch(2, script, an_input(unnamed, 4))
    assert driver.wait(200) == 1
    code, text = lab.heartbeat(2).error
    assert code == "QUERY_NAME"
    assert f"another checkpointLocation ({unnamed}/own-1, not {unnamed}/own-0)" in text
    assert f"another output (json {unnamed}/out-1, not json {unnamed}/out-0)" in text
    assert counts(unnamed) == [4, 0, 0]

    # The script would now begin with its second query, under the name of its first.
    relaunched = lab.launch(2, script, str(unnamed))
    assert relaunched.wait(200) == 1
    code, text = lab.heartbeat(2).error
    assert code == "QUERY_NAME"
    assert counts(unnamed) == [4, 0, 0]


AGAIN = (
    HEAD
    + """
def start():
    def write(batch, batch_id):
        if not os.path.exists(f"{folder}/failed"):
            open(f"{folder}/failed", "w").close()
            raise ValueError("as the first attempt does")
        batch.write.mode("append").json(f"{folder}/out-0")
    return once(rows()).foreachBatch(write).option("checkpointLocation", f"{folder}/own").start()
while True:  # a restart loop, with a new function each time
    try:
        start().awaitTermination()
        break
    except Exception:
        continue
with open(f"{folder}/in/second.txt", "w") as file:
    file.write("4\\n5\\n")
start().awaitTermination()
"""
)


def test_query_that_is_started_again_goes_on_as_in_plain_spark(lab: Lab):
    script, alone, under_agent = lab.script(AGAIN), lab.folder / "alone", lab.folder / "agent"
    plain_submit(script, an_input(alone, 4))
    driver = lab.start(1, script, an_input(under_agent, 4))
    assert driver.wait(200) == 0
    assert counts(alone, 1) == counts(under_agent, 1) == [6]
    assert list(lab.heartbeat(1).queries) == ["query"]


TABLES = (
    HEAD
    + """
spark.conf.set("spark.sql.streaming.checkpointLocation", f"{folder}/own")
def in_thread():
    writer = once(rows()).queryName("same")
    writer.toTable("a", format="json", path=f"{folder}/out-0").awaitTermination()
    writer.toTable("a").awaitTermination()  # the same writer again
    writer.toTable("b", path=f"{folder}/out-1").awaitTermination()
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
"""
)


@pytest.mark.matrix
def test_tables_that_a_thread_writes_under_one_name_are_refused(lab: Lab):
    folder = lab.folder / "tables"
    driver = lab.start(1, lab.script(TABLES), an_input(folder, 4))
    assert driver.wait(200) == 1
    code, text = lab.heartbeat(1).error
    assert code == "QUERY_NAME"
    assert "query 'same'" in text
    assert f"another output (table b {folder}/out-1, not table a {folder}/out-0)" in text
    assert counts(folder) == [4, 0, 0]


def test_what_is_compared_of_a_query_is_the_same_for_frames_made_anew(
    two_tasks: SparkSession, tmp_path: Path
):
    from pyspark.sql import functions

    folder = an_input(tmp_path / "x", 4)

    def said(key: str, fmt: str = "text") -> Declaration:
        frame = two_tasks.readStream.schema("value string").format(fmt).load(f"{folder}/in")
        ticks = two_tasks.readStream.format("rate").load().selectExpr("cast(value as string)")
        frame = frame.filter(functions.col("value") == key).union(ticks)
        writer = frame.writeStream.foreachBatch(lambda batch, batch_id: batch.show(key))
        return declaration(PySparkSession.of(frame.sparkSession), StreamOptions.of(writer), sources_of(frame))

    first = said("a")
    assert said("a") == first
    assert said("a", "json").sources != first.sources
    assert f"text {folder}/in, rate" in first.sources.shown
    assert first.location is None
