"""Small batches of the transactional sink, which the driver writes itself: the same promises as of tasks."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.sinks import frame as frames
from airflow_flinkstyle.sinks.control_topic import default_name
from airflow_flinkstyle.sinks.errors import RUN_SUPERSEDED
from airflow_flinkstyle.sinks.lineage import Opened, open_lineage
from airflow_flinkstyle.sinks.marker import Completion
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.small import SmallBatches, collected
from airflow_flinkstyle.sinks.spread import Spread
from airflow_flinkstyle.sinks.task import write_shards
from testbed.drivers import spark_env
from testbed.refusals import refuses
from tests.integration.sink_lab import ROWS, Lab, as_records, die, once, topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.sinks.shard import Chunk
    from testbed.kafka import Broker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]
PLAN = "2-plan"
NIGHTLY = pytest.mark.nightly
PHASES = ["commit", *(pytest.param(one, marks=NIGHTLY) for one in ("begin", "marker", "data", "pre-commit"))]
SHARDS = [1, pytest.param(0, marks=NIGHTLY)]


@pytest.fixture
def topic(old_broker: Broker, request: pytest.FixtureRequest) -> str:
    name = topic_of(request)
    old_broker.create_topic(name, partitions=3)
    return name


@pytest.fixture
def lab(two_tasks: SparkSession, old_broker: Broker, topic: str, tmp_path: Path) -> Lab:
    return Lab(two_tasks, old_broker, topic, tmp_path)


# --- in a query -----------------------------------------------------------------------------------


def test_driver_writes_batches_that_follow_a_small_one_and_tasks_all_others(lab: Lab):
    sink, by = lab.sink(small_batch_rows=ROWS), {}

    def write(frame: DataFrame, batch_id: int) -> None:
        if batch_id == 2:
            frame = frame.union(frame.selectExpr("key", "cast(value + 1000 as string) as value"))
        sink.foreach_batch(frame, batch_id)
        assert sink.last_batch is not None
        by[batch_id] = "driver" if sink.last_batch.from_driver else "tasks"

    lab.run(write, batches=6)
    # After one that was taken for small and is not, two have to be small.
    assert by == {0: "tasks", 1: "driver", 2: "tasks", 3: "tasks", 4: "tasks", 5: "driver"}
    lab.forget_commit(5)
    again = lab.sink(small_batch_rows=ROWS)
    lab.run(again.foreach_batch, batches=2)
    assert again.last_batch is not None
    assert (again.last_batch.batch_id, again.last_batch.from_driver) == (6, True)
    assert lab.counts() == once(7) + Counter(range(1000 + 2 * ROWS, 1000 + 3 * ROWS))


@pytest.mark.parametrize("phase", [*PHASES, *(pytest.param(one, marks=NIGHTLY) for one in ("init", "done"))])
def test_small_batch_that_breaks_off_is_there_whole_or_not_at_all_and_once_in_the_end(lab: Lab, phase: str):
    with pytest.raises(Exception, match=f"dies in {phase}"):
        lab.run(lab.sink(small_batch_rows=ROWS, on_phase=die(1, 1, phase)).foreach_batch, batches=2)
    assert lab.counts() == (once(2) if phase == "done" else once(1))
    lab.run(lab.sink(small_batch_rows=ROWS).foreach_batch, batches=2)
    assert lab.counts() == once(3)


@pytest.mark.nightly
def test_state_of_a_query_is_whole_behind_small_batches_and_those_that_are_run_twice(lab: Lab):
    """Batch 2 is taken for small: of its plan, with its state, a part runs first, and then all."""
    sink = lab.sink(small_batch_rows=15)
    by = []

    def write(frame: DataFrame, batch_id: int) -> None:
        sink.foreach_batch(frame, batch_id)
        assert sink.last_batch is not None
        by.append("driver" if sink.last_batch.from_driver else "tasks")

    def new_ones(rows: DataFrame) -> DataFrame:
        some = rows.where("value between 40 and 44 or value >= 80")
        return as_records(some.dropDuplicates(["value"]))

    lab.run(write, batches=4, shape=new_ones)
    assert by == ["tasks", "driver", "tasks", "tasks"]
    lab.run(lab.sink(small_batch_rows=ROWS).foreach_batch, batches=2, shape=new_ones)
    assert lab.counts() == Counter([*range(40, 45), *range(80, 6 * ROWS)])


# --- what is collected ----------------------------------------------------------------------------


def test_collected_rows_are_the_records_that_tasks_would_write(two_tasks: SparkSession, lab: Lab):
    rows = two_tasks.range(50).selectExpr(
        "case when id % 5 = 0 then null else cast(id as string) end as key",
        "case when id % 7 = 0 then null else cast(cast(id as string) as binary) end as value",
        "case when id % 3 = 0 then null else 'there' end as topic",
        "case when id % 4 = 0 then null else cast(id % 3 as int) end as partition",
        "case when id % 2 = 0 then null else timestamp_millis(id * 1000) end as timestamp",
        "case when id % 6 = 0 then null else array(named_struct('key', 'h', 'value', cast('v' as binary)), "
        "named_struct('key', 'n', 'value', cast(null as binary))) end as headers",
    )
    settings = replace(settings_of(lab, "run"), shards=3)

    def seen(batches: Iterator[pa.RecordBatch], shards: range) -> list[tuple[int, int, int, list[Any]]]:
        chunks = frames.chunks_of(batches, "usual", shards)
        return [(one.shard, one.count, one.digest, list(one.records)) for one in chunks]

    by_tasks = [found for answer in Spread.of(rows, settings).answers(seen) for found in answer]
    assert collected(frames.records_of(rows, shards=3), 49) is None
    batch = collected(frames.records_of(rows, shards=3), 50)
    assert batch is not None
    by_driver = seen(iter([batch]), range(3))
    assert {one[:3] for one in by_driver} == {one[:3] for one in by_tasks}
    shown = [sorted(map(repr, (one for found in way for one in found[3]))) for way in (by_driver, by_tasks)]
    assert shown[0] == shown[1]


CUT = """
import os, signal, sys
from pyspark.sql import SparkSession
from airflow_flinkstyle.sinks.small import served_rows
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.range(1_000_000).selectExpr("id", "repeat('x', 20) as text")
served = frame._jdf.collectToPython()  # more than its connection holds: it waits to be read
jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
os.kill(jvm, signal.SIGKILL)
try:
    rows = served_rows(frame, served)
except Exception as error:
    print("REFUSED", type(error).__name__)
else:
    print("TAKEN FOR WHOLE", len(rows))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.nightly
def test_rows_that_break_off_with_their_jvm_are_not_taken_for_whole(tmp_path: Path):
    script = tmp_path / "cut.py"
    script.write_text(CUT)
    done = subprocess.run(
        [sys.executable, str(script)], env=spark_env(), capture_output=True, text=True, timeout=300
    )
    assert "REFUSED" in done.stdout, done.stdout + done.stderr[-3000:]


# --- beside others who write the lineage ------------------------------------------------------------


def settings_of(lab: Lab, run: str) -> SinkSettings:
    line = f"{lab.topic}-line"
    return SinkSettings(
        cluster=lab.cluster,
        topic=lab.topic,
        lineage=line,
        shards=2,
        control_topic=default_name(line),
        run=run,
    )


def rows_of(lab: Lab, batch_id: int) -> pa.RecordBatch:
    """Return a batch of ten records, of both shards."""
    numbers = lab.spark.range(10 * batch_id, 10 * batch_id + 10).selectExpr(
        "cast(id as string) as key", "cast(id as string) as value"
    )
    found = collected(frames.records_of(numbers, shards=2), 10)
    assert found is not None
    return found


def task(lab: Lab, settings: SinkSettings, batch_id: int, shards: list[int]) -> None:
    """Write shards of the batch as a task does."""
    chunks: list[Chunk] = list(frames.chunks_of(iter([rows_of(lab, batch_id)]), lab.topic, range(2)))
    mine = [chunk for chunk in chunks if chunk.shard in shards]
    write_shards(settings, batch_id, shards, PLAN, iter(mine))


def small(settings: SinkSettings, at: str = "", then: Callable[[], None] = lambda: None) -> SmallBatches:
    """Return what writes small batches; something else happens once, when a phase begins."""
    left = [then]

    def tell(_batch: int, shard: int, phase: str) -> None:
        if shard == 0 and phase == at and left:
            left.pop()()

    return SmallBatches(replace(settings, on_phase=tell), most_rows=100)


def complete(settings: SinkSettings, opened: Opened, batch_id: int) -> None:
    done = Completion(batch_id=batch_id, records=10, shards=settings.shards, query_id="q")
    opened.completer.complete(done)


def numbers(batches: int) -> Counter[int]:
    return Counter(range(10 * batches))


@pytest.mark.parametrize("phase", PHASES)
def test_driver_that_is_frozen_in_a_small_batch_writes_nothing_once_another_run_has_begun(
    lab: Lab, phase: str
):
    old, new = settings_of(lab, "old"), settings_of(lab, "new")
    complete(old, open_lineage(old, query_id="q", batch_id=0), -1)
    opened: list[Opened] = []
    frozen = small(old, phase, lambda: opened.append(open_lineage(new, query_id="q", batch_id=0)))
    with refuses(RUN_SUPERSEDED, match="another run has begun to write since"):
        frozen.write(0, rows_of(lab, 0), PLAN)
    assert lab.counts() == Counter()
    rightful = small(new)
    rightful.write(0, rows_of(lab, 0), PLAN)
    complete(new, opened[0], 0)
    rightful.write(1, rows_of(lab, 1), PLAN)
    assert lab.counts() == numbers(2)


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("phase", PHASES)
def test_task_of_a_frozen_run_that_wakes_beside_a_small_batch_is_refused_and_hurts_nobody(
    lab: Lab, phase: str, shard: int
):
    """It finds what the driver has begun to write, and must not take that for left open by a broker."""
    old, new = settings_of(lab, "old"), settings_of(lab, "new")
    complete(old, open_lineage(old, query_id="q", batch_id=0), -1)
    open_lineage(new, query_id="q", batch_id=0)

    def wakes() -> None:
        with refuses(RUN_SUPERSEDED, match="another run has begun to write since"):
            task(lab, old, 0, [shard])

    small(new, phase, wakes).write(0, rows_of(lab, 0), PLAN)
    assert lab.counts() == numbers(1)


@pytest.mark.parametrize("shard", SHARDS)
@pytest.mark.parametrize("phase", PHASES)
def test_late_attempt_of_the_batch_before_beside_a_small_batch_writes_nothing(
    lab: Lab, phase: str, shard: int
):
    run = settings_of(lab, "run")
    open_lineage(run, query_id="q", batch_id=0)
    task(lab, run, 0, [0, 1])
    small(run, phase, lambda: task(lab, run, 0, [shard])).write(1, rows_of(lab, 1), PLAN)
    assert lab.counts() == numbers(2)


def test_small_batch_that_was_committed_without_an_answer_is_compared_and_not_written_again(lab: Lab):
    run = settings_of(lab, "run")
    open_lineage(run, query_id="q", batch_id=0)
    first = small(run).write(0, rows_of(lab, 0), PLAN)
    again = small(run).write(0, rows_of(lab, 0), PLAN)
    assert [one.skipped for one in first + again] == [False, False, True, True]
    assert lab.counts() == numbers(1)


def test_tasks_and_driver_take_turns_in_a_lineage(lab: Lab):
    run = settings_of(lab, "run")
    open_lineage(run, query_id="q", batch_id=0)
    driver = small(run)
    for batch_id in range(6):
        if batch_id % 3:
            driver.write(batch_id, rows_of(lab, batch_id), PLAN)
        else:
            driver.release()
            task(lab, run, batch_id, [0, 1])
    assert lab.counts() == numbers(6)


def test_producer_that_was_kept_is_not_used_once_another_run_has_begun(lab: Lab):
    old, new = settings_of(lab, "old"), settings_of(lab, "new")
    complete(old, open_lineage(old, query_id="q", batch_id=0), -1)
    driver = small(old)
    driver.write(0, rows_of(lab, 0), PLAN)
    open_lineage(new, query_id="q", batch_id=0)
    with refuses(RUN_SUPERSEDED, match="another run has begun to write since"):
        driver.write(1, rows_of(lab, 1), PLAN)
    assert lab.counts() == numbers(1)
