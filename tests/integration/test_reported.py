"""Cases that people reported elsewhere, each of a kind that this package must not fail at.

- https://github.com/apache/spark/pull/23557: a query over several file streams could not be restarted from a
  batch that had no files for one of them.
- https://github.com/apache/spark/pull/26018: queries of several sessions of a driver know nothing of each
  other.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.integration.agent_lab import Lab

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly]

FILES_JOB = """
import json, sys
from pyspark.sql import SparkSession
out = sys.argv[1]
spark = SparkSession.builder.getOrCreate()

def lines(folder):
    return spark.readStream.schema("value STRING").text(f"{out}.{folder}")

def each_batch(df, batch_id):
    with open(out, "a") as file:
        for row in df.collect():
            file.write(json.dumps({"batch": batch_id, "value": row.value}) + "\\n")

both = lines("a").union(lines("b"))
often = {"processingTime": "200 milliseconds"}
both.writeStream.queryName("files").foreachBatch(each_batch).trigger(**often).start()
other = spark.newSession()
ticks = other.readStream.format("rate").option("rowsPerSecond", 20).load()
ticks.writeStream.queryName("ticks").format("noop").trigger(**often).start()
assert [query.name for query in other.streams.active] == ["ticks"]
spark.streams.awaitAnyTermination()
"""


def test_file_streams_and_queries_of_several_sessions_go_on_from_a_savepoint_and_a_kill(
    tmp_path: Path, warm_jvms: WarmJvms | None
):
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    written: list[str] = []

    def drop(folder: str) -> None:
        """Put a file, and wait until its line is out."""
        value = f"{folder}-{len(written)}"
        place = lab.folder / f"out.jsonl.{folder}"
        (lab.folder / "new").write_text(value)
        (lab.folder / "new").rename(place / f"{value}.txt")
        written.append(value)
        lab.until(value, lambda: value in {str(row["value"]) for row in lab.rows()})

    for folder in "ab":
        (lab.folder / f"out.jsonl.{folder}").mkdir()
    try:
        script = lab.script(FILES_JOB)
        lab.start(1, script)
        for folder in "aabba":  # most batches have nothing of one of them
            drop(folder)
        lab.until_batch(1, "ticks", above=0)
        hot = lab.end_of(1, lab.ask(1, "savepoint"))
        assert hot.outcome == "done", hot.detail
        assert set(hot.batches) == {"files", "ticks"}
        lab.drivers[-1].kill()
        lab.launch(1, script)  # again, in the same checkpoint
        drop("b")
        stop = lab.ask(1, "stop_with_savepoint", incarnation=2)
        end = lab.end_of(1, stop)
        assert (end.outcome, set(end.batches)) == ("done", {"files", "ticks"})
        assert lab.drivers[-1].wait() == 0
        lab.start(2, script, savepoint_id=stop.savepoint_id, closed_at=lab.heartbeat(1).batches())
        drop("a")
        drop("b")
        by_batch = {(row["batch"], row["value"]) for row in lab.rows()}
        assert Counter(value for _, value in by_batch) == Counter(written), "each once, in one batch"
    finally:
        lab.close()
