"""Scripts as people write and start them: a package, an end without a word, errors, sources of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.agent_lab import COUNT_JOB, Lab

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark]
WAIT_S = 600.0
"""For a driver that starts, fails or ends on a busy machine."""


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab", patience_s=WAIT_S, warm=warm_jvms)
    yield lab
    lab.close()


@pytest.fixture
def submitted(tmp_path: Path) -> Iterator[Lab]:
    """The same where the driver is a spark-submit: what is shown is how its process ends."""
    lab = Lab(tmp_path / "lab", patience_s=WAIT_S)
    yield lab
    lab.close()


FILES_JOB = """
import json, os, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(sys.argv[2])
def note(batch, batch_id):
    with open(sys.argv[1], "a") as f:
        f.write(json.dumps({"batch": batch_id, "n": [row.n for row in batch.collect()]}) + "\\n")
writer = rows.writeStream.queryName("files").foreachBatch(note)
"""
LEAVES = """
if os.fork() == 0:
    os._exit(0)  # a child of the script ends only itself
writer.trigger(availableNow=True).start().awaitTermination()
sys.stdout.flush()
os._exit(0)
"""


def put(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text(json.dumps({"n": number}) + "\n")


def numbers(lab: Lab) -> list[int]:
    return [number for row in lab.rows() for number in row["n"]]  # type: ignore[attr-defined]


def test_files_are_read_on_from_a_savepoint_each_once(lab: Lab):
    put(lab.folder / "in", 1)
    script = lab.script(FILES_JOB + "writer.start().awaitTermination()\n")
    first = lab.start(1, script, str(lab.out), str(lab.folder / "in"))
    lab.until_batch(1, "files")
    stopped = lab.end_of(1, lab.ask(1, "stop_with_savepoint"))
    assert first.wait(WAIT_S) == 0
    put(lab.folder / "in", 2)
    second = lab.start(2, script, str(lab.out), str(lab.folder / "in"), savepoint_id=stopped.savepoint_id)
    lab.until_batch(2, "files", above=stopped.batches["files"])
    assert lab.end_of(2, lab.ask(2, "stop")).outcome == "done"
    assert second.wait(WAIT_S) == 0
    assert numbers(lab) == [1, 2]


@pytest.mark.matrix
def test_script_that_leaves_python_at_once_when_all_is_done_has_closed(submitted: Lab):
    put(submitted.folder / "in", 1)
    driver = submitted.start(
        1, submitted.script(FILES_JOB + LEAVES), str(submitted.out), str(submitted.folder / "in")
    )
    assert driver.wait(WAIT_S) == 0
    assert submitted.heartbeat(1).state == "closed"
    assert numbers(submitted) == [1]


@pytest.mark.nightly
def test_script_that_leaves_python_while_a_query_runs_ends_without_a_word(submitted: Lab):
    put(submitted.folder / "in", 1)
    script = FILES_JOB + "q = writer.start()\nwhile q.lastProgress is None: pass\nos._exit(0)\n"
    driver = submitted.start(1, submitted.script(script), str(submitted.out), str(submitted.folder / "in"))
    assert driver.wait(WAIT_S) == 0
    assert submitted.heartbeat(1).state == "running"  # so that it is relaunched: its files go on coming


@pytest.mark.nightly
def test_package_is_run_as_python_runs_it(lab: Lab):
    package = lab.folder / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "columns.py").write_text('KEY = "k"\n')
    main = COUNT_JOB.replace('alias("k")', "alias(KEY)")
    (package / "__main__.py").write_text("from shop.columns import KEY\n" + main)
    driver = lab.start(1, Path("-m"), "shop", str(lab.out))
    lab.until_batch(1)
    assert lab.end_of(1, lab.ask(1, "stop")).outcome == "done"
    assert driver.wait(WAIT_S) == 0


FAILING = """
import sys
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
def dividing(n):
    return 1 // (n - n)
def poisoned(batch, batch_id):
    raise ValueError("poisoned batch")
def run():
    if sys.argv[1] == "batch":
        rows.writeStream.foreachBatch(poisoned).start().awaitTermination()
    half = F.udf(dividing, "long")
    rows.select(half("value")).writeStream.format("noop").start().awaitTermination()
run()
"""


@pytest.mark.parametrize(
    ("kind", "own", "said"),
    [
        ("batch", ("in poisoned", 'raise ValueError("poisoned batch")'), "ValueError: poisoned batch"),
        ("function", ("in dividing", "return 1 // (n - n)"), "ZeroDivisionError: "),
    ],
)
def test_error_of_a_script_shows_its_own_lines_and_the_log_the_whole_traceback(
    lab: Lab, kind: str, own: tuple[str, ...], said: str
):
    driver = lab.start(1, lab.script(FAILING), kind)
    assert driver.wait(WAIT_S) == 1
    code, text = lab.heartbeat(1).error
    assert code == "SCRIPT_FAILED"
    for words in (*own, said, "in run", "app.py"):
        assert words in text
    assert "\tat org.apache" not in text
    assert "The script, or a query of it, failed\nTraceback (most recent call last)" in driver.text


SOCKET = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", "9").load()
lines.writeStream.format("noop").start().awaitTermination()
"""


def test_source_that_cannot_be_read_again_is_refused_by_name(lab: Lab):
    driver = lab.start(1, lab.script(SOCKET))
    assert driver.wait(WAIT_S) == 1
    code, text = lab.heartbeat(1).error
    assert code == "UNSUPPORTED_MODE"
    assert "the source socket, which cannot be read again" in text
