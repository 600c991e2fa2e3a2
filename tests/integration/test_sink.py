"""The transactional sink on real Spark and a real broker: every record once for read_committed readers."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import InheritableThread

from airflow_flinkstyle.kafka.errors import GROUP_IN_USE, GROUP_MISSING
from airflow_flinkstyle.kafka.groups import group_offsets
from airflow_flinkstyle.sinks.control_topic import default_name
from airflow_flinkstyle.sinks.errors import (
    CONTROL_TOPIC,
    PLAN_CHANGED,
    RECORD_REFUSED,
    REPLAY_DIFFERS,
    RUN_SUPERSEDED,
    SHARD_COUNT,
    SINK_CONFIG,
    SINK_INPUT,
    SINK_LINEAGE,
    TRANSACTION_ABORTED,
    TRANSACTION_TIMEOUT,
)
from airflow_flinkstyle.sinks.frame import HASH, SHARD, chunks_of
from airflow_flinkstyle.sinks.lineage import begin_lineage, open_lineage
from airflow_flinkstyle.sinks.marker import Completion
from airflow_flinkstyle.sinks.resume import Resume, failure, states
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.shard import Chunk
from airflow_flinkstyle.sinks.spread import Spread
from airflow_flinkstyle.sinks.task import write_shards
from airflow_flinkstyle.spark_versions import ends_the_rows_of_a_killed_task
from testbed.refusals import refuses
from testbed.waiting import PATIENCE_S, wait_until
from tests.integration.sink_lab import ROWS, Lab, as_records, die, once, refused, topic_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from airflow_flinkstyle.sinks import TransactionalKafkaSink
    from airflow_flinkstyle.sinks.lineage import Opened
    from testbed.kafka import Broker

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture
def topic(old_broker: Broker, request: pytest.FixtureRequest) -> str:
    name = topic_of(request)
    old_broker.create_topic(name, partitions=3)
    return name


@pytest.fixture
def lab(two_tasks: SparkSession, old_broker: Broker, topic: str, tmp_path: Path) -> Lab:
    return Lab(two_tasks, old_broker, topic, tmp_path)


def test_each_record_is_there_once_over_two_runs(lab: Lab):
    sink = lab.sink()
    lab.run(sink.foreach_batch, batches=3)
    lab.run(lab.sink().foreach_batch, batches=2)
    assert lab.counts() == once(5)
    assert sink.last_batch is not None
    assert sink.last_batch.records == ROWS
    assert {"init", "data", "pre-commit", "marker", "commit"} <= sink.last_batch.phase_s.keys()


def test_batch_that_spark_runs_again_is_not_written_again(lab: Lab):
    lab.run(lab.sink().foreach_batch, batches=2)
    lab.forget_commit(1)
    sink = lab.sink()
    lab.run(sink.foreach_batch, batches=1)
    assert sink.last_batch is not None
    assert (sink.last_batch.batch_id, sink.last_batch.skipped_shards) == (1, 2)
    lab.run(lab.sink(shards=3).foreach_batch, batches=1)  # and the number of shards may change there
    assert lab.counts() == once(3)


def test_batch_without_rows_leaves_the_markers_that_the_brokers_have(lab: Lab):
    """Batch 1 has no partition, as far as Spark knows beforehand, and no task: nothing is marked.

    Spark 3.5 runs its tasks all the same, on the way that it is given the rows by.
    """
    sink = lab.sink()

    def without_batch_1(frame: DataFrame, batch_id: int) -> None:
        sink.foreach_batch(frame.where("false") if batch_id == 1 else frame, batch_id)

    lab.run(without_batch_1, batches=2)
    told = states(lab.query_id)[-1]
    opened = open_lineage(settings_of(lab, 2, "look"), query_id=lab.query_id, batch_id=2)
    found = {shard: marker.batch_id for shard, marker in opened.markers.items()}
    marked = int(ends_the_rows_of_a_killed_task(lab.spark.sparkContext._jvm))
    assert (told.completed_batch, dict(told.markers)) == (1, {0: marked, 1: marked})
    assert (opened.completed.batch_id, found) == (1, {0: marked, 1: marked})
    lab.forget_commit(1)
    lab.run(without_batch_1, batches=2)  # the empty one again, and the next
    assert lab.counts() == Counter([*range(ROWS), *range(2 * ROWS, 3 * ROWS)])


@pytest.mark.parametrize("phase", ["begin", "pre-commit", "commit"])
def test_half_written_batch_is_completed_by_the_next_run(lab: Lab, phase: str):
    lab.run(lab.sink().foreach_batch, batches=1)
    with pytest.raises(Exception, match=f"dies in {phase}"):
        lab.run(lab.sink(on_phase=die(1, 1, phase)).foreach_batch, batches=2)
    half = lab.counts()
    assert half - once(1)  # shard 0 has committed its part
    assert half != once(2)
    with refused(SHARD_COUNT, "half written with 2 shards"):
        lab.run(lab.sink(shards=3).foreach_batch, batches=1)
    sink = lab.sink()
    lab.run(sink.foreach_batch, batches=1)
    assert sink.last_batch is not None
    assert sink.last_batch.skipped_shards == 1
    assert lab.counts() == once(2)


def test_replay_with_other_rows_is_refused_and_leaves_what_was_written(lab: Lab):
    with pytest.raises(Exception, match="dies in begin"):
        lab.run(lab.sink(on_phase=die(0, 1, "begin")).foreach_batch, batches=1)
    half = lab.counts()
    with refused(REPLAY_DIFFERS, "Batch 0"):
        lab.run(
            lab.sink().foreach_batch,
            batches=1,
            shape=lambda rows: rows.selectExpr(
                "cast(value % 7 as string) key", "cast(value + 1000 as string) value"
            ),
        )
    assert lab.counts() == half
    lab.run(lab.sink().foreach_batch, batches=1)
    assert lab.counts() == once(1)


def test_half_written_batch_is_completed_with_the_number_of_shards_it_was_begun_with(lab: Lab):
    lab.run(lab.sink().foreach_batch, batches=1)
    with pytest.raises(Exception, match="dies in begin"):
        lab.run(lab.sink(shards=3, on_phase=die(1, 1, "begin")).foreach_batch, batches=1)
    with refused(SHARD_COUNT, "half written with 3 shards"):
        lab.run(lab.sink().foreach_batch, batches=1)
    lab.run(lab.sink(shards=3).foreach_batch, batches=1)
    assert lab.counts() == once(2)


def settings_of(lab: Lab, shards: int, run: str) -> SinkSettings:
    line = f"{lab.topic}-line"
    return SinkSettings(
        cluster=lab.cluster,
        topic=lab.topic,
        lineage=line,
        shards=shards,
        control_topic=default_name(line),
        run=run,
    )


def write(settings: SinkSettings, batch_id: int, shard: int) -> None:
    chunk = Chunk(shard=shard, records=[(settings.topic, b"1")], count=1, digest=1)
    write_shards(settings, batch_id, [shard], f"{settings.shards}-columns", iter([chunk]))


def complete(settings: SinkSettings, opened: Opened, batch_id: int) -> None:
    for shard in range(settings.shards):
        write(settings, batch_id, shard)
    done = Completion(batch_id=batch_id, records=settings.shards, shards=settings.shards, query_id="q")
    opened.completer.complete(done)


def test_task_of_a_frozen_run_writes_nothing_when_it_wakes_after_the_sink_came_back(lab: Lab):
    old, new = settings_of(lab, 2, "old"), settings_of(lab, 2, "new")
    complete(old, open_lineage(old, query_id="q", batch_id=0), 0)  # and is frozen in batch 1
    back = Resume(mode="continue", after_batch=5, lineage=old.lineage, cluster_id="elsewhere", suffix="")
    opened = open_lineage(new, query_id="q", batch_id=6, resume=back)
    for shard in range(2):
        with refuses(RUN_SUPERSEDED, match="another run has begun to write since"):
            write(old, 1, shard)  # a batch that no marker here knows
    complete(new, opened, 6)
    assert len(lab.records()) == 2 + 2


@pytest.mark.nightly
def test_sink_does_not_come_back_to_where_a_frozen_run_wrote_while_it_was_away(lab: Lab):
    old = settings_of(lab, 2, "old")
    complete(old, open_lineage(old, query_id="q", batch_id=0), 0)
    write(old, 1, 0)
    back = Resume(mode="continue", after_batch=5, lineage=old.lineage, cluster_id="elsewhere", suffix="")
    with refuses(SINK_LINEAGE, match=r"shards \[0\] have written up to batch 1 there"):
        open_lineage(settings_of(lab, 2, "new"), query_id="q", batch_id=6, resume=back)


@pytest.mark.nightly
def test_query_that_is_refused_under_a_lineage_hurts_nobody_who_writes_it(lab: Lab):
    rightful = settings_of(lab, 2, "run")
    opened = open_lineage(rightful, query_id="q", batch_id=0)
    complete(rightful, opened, 0)
    with refuses(SINK_LINEAGE, match="written by query other"):
        open_lineage(settings_of(lab, 3, "another"), query_id="other", batch_id=0)
    complete(rightful, opened, 1)
    assert len(lab.records()) == 2 + 2


@pytest.mark.nightly
def test_lineages_with_one_control_topic_are_refused(lab: Lab):
    first = settings_of(lab, 2, "run")
    complete(first, open_lineage(first, query_id="q", batch_id=0), 0)
    with refuses(CONTROL_TOPIC, match="hold records of other-complete only"):
        open_lineage(replace(first, lineage="other"), query_id="p", batch_id=0)


def test_lineage_that_is_begun_by_hand_goes_on_behind_its_batch(lab: Lab):
    lab.run(lab.sink().foreach_batch, batches=2)
    new = replace(settings_of(lab, 2, ""), lineage="by-hand", control_topic=default_name("by-hand"))
    begin_lineage(new, query_id=lab.query_id, after_batch=1)
    begin_lineage(new, query_id=lab.query_id, after_batch=1)
    with refuses(SINK_LINEAGE, match="expected to be new, but has completed batch 1"):
        begin_lineage(new, query_id=lab.query_id, after_batch=0)
    lab.run(lab.sink(lineage="by-hand").foreach_batch, batches=1)
    assert lab.counts() == once(3)


@pytest.mark.nightly
def test_one_sink_may_serve_two_queries(lab: Lab):
    sink = lab.sink(lineage=None)
    lab.run(sink.foreach_batch, batches=1)
    lab.run(sink.foreach_batch, batches=1, checkpoint="another")
    lab.run(sink.foreach_batch, batches=1)
    assert lab.counts() == once(2) + once(1)


@pytest.mark.nightly
def test_task_of_a_frozen_run_with_another_number_of_shards_writes_nothing_when_it_wakes(lab: Lab):
    old, new, back = settings_of(lab, 3, "old"), settings_of(lab, 2, "new"), settings_of(lab, 3, "back")
    complete(old, open_lineage(old, query_id="q", batch_id=0), 0)
    opened = open_lineage(new, query_id="q", batch_id=1)  # the old run is frozen in batch 1
    for shard in range(3):
        with refuses(RUN_SUPERSEDED, match="another run has begun to write since"):
            write(old, 1, shard)
    complete(new, opened, 1)
    complete(back, open_lineage(back, query_id="q", batch_id=2), 2)
    assert len(lab.records()) == 3 + 2 + 3


def test_half_written_batch_with_other_columns_is_refused_by_that_name(lab: Lab):
    with pytest.raises(Exception, match="dies in begin"):
        lab.run(lab.sink(on_phase=die(0, 1, "begin")).foreach_batch, batches=1)
    half = lab.counts()
    with refused(PLAN_CHANGED, "shards 0 committed"):
        lab.run(lab.sink().foreach_batch, batches=1, shape=lambda rows: as_records(rows).drop("key"))
    assert lab.counts() == half


def test_speculation_is_refused(lab: Lab):
    conf = lab.spark.sparkContext._conf
    conf.set("spark.speculation", "True")
    try:
        with refused(SINK_CONFIG, "spark.speculation"):
            lab.run(lab.sink().foreach_batch, batches=1)
    finally:
        conf.set("spark.speculation", "false")
    assert not lab.counts()


def test_task_whose_rows_break_off_answers_nothing(two_tasks: SparkSession, tmp_path: Path):
    told = tmp_path / "told"

    def work(batches: Iterator[pa.RecordBatch], _: range) -> int:
        rows = sum(batch.num_rows for batch in batches)
        told.write_text(str(rows))
        return rows

    def spread(last: int) -> Spread:
        value = f"if(id = {last}, raise_error('cut'), repeat('x', 100)) value"
        rows = two_tasks.range(0, 100_000, 1, 1).selectExpr(value)
        return Spread(records=rows, tasks=1, shards=1)

    with pytest.raises(Exception, match="cut"):
        spread(95_000).answers(work)
    assert not told.exists()
    assert spread(100_000).answers(work) == [100_000]


@pytest.mark.nightly
def test_task_that_is_killed_while_it_reads_does_not_take_its_rows_for_whole(
    two_tasks: SparkSession, tmp_path: Path
):
    """As when another task of the batch fails, and Spark ends those that still run."""
    begun, told = tmp_path / "begun", tmp_path / "told"

    def work(batches: Iterator[pa.RecordBatch], _: range) -> None:
        rows = next(batches).num_rows
        begun.write_text(str(os.getpid()))
        rows += sum(batch.num_rows for batch in batches)
        told.write_text(f"{rows} rows")

    def run() -> None:
        two_tasks.sparkContext.setJobGroup("to be cut", "to be cut")
        with pytest.raises(Exception, match="cancelled"):
            Spread(records=slow, tasks=1, shards=1).answers(work)

    slow = two_tasks.range(0, 5_000, 1, 1).selectExpr(
        "reflect('java.lang.Thread', 'sleep', 20L) slept", "repeat('x', 10000) value"
    )
    two_tasks.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    reader = InheritableThread(target=run)
    reader.start()
    try:
        wait_until("the task reads", lambda: begun.exists() and bool(begun.read_text()))
        two_tasks.sparkContext.cancelJobGroup("to be cut")
        reader.join(PATIENCE_S)
        worker = Path("/proc") / begun.read_text()
        wait_until("the task has ended", lambda: told.exists() or not worker.exists())
    finally:
        two_tasks.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert not told.exists(), told.read_text()


def test_nothing_of_a_task_is_written_whose_rows_break_off(lab: Lab):
    """As when an executor is lost, and with it the rest of the shuffle that a task reads."""
    settings = settings_of(lab, 1, "run")
    open_lineage(settings, query_id="q", batch_id=0)
    rows = 20_000  # many times the 64 KiB that Spark sends at once

    def written(last: int) -> list[Any]:
        value = f"if(id = {last}, raise_error('cut'), binary(repeat('x', 100))) value"
        records = lab.spark.range(0, rows, 1, 1).selectExpr(value, f"id {HASH}", f"0 {SHARD}")

        def work(batches: Iterator[pa.RecordBatch], shards: range) -> int:
            chunks = chunks_of(batches, settings.topic, shards)
            return write_shards(settings, 0, shards, "1-columns", chunks)[0].records

        return Spread(records=records, tasks=1, shards=1).answers(work)

    with pytest.raises(Exception, match="cut"):
        written(rows - 1)
    assert not lab.records()
    assert written(rows) == [rows]
    assert len(lab.records()) == rows


def test_older_state_of_the_same_lineage_is_refused_not_skipped(lab: Lab):
    lab.run(lab.sink().foreach_batch, batches=3)
    for batch in (2, 1):
        lab.forget_commit(batch)
    (lab.folder / "checkpoint/offsets/2").unlink()
    (lab.folder / "checkpoint/offsets/.2.crc").unlink()
    with refused(SINK_LINEAGE, "completed batch 2"):
        lab.run(lab.sink().foreach_batch, batches=1)
    with refused(CONTROL_TOPIC, "does not exist"):  # a lineage that cannot have written batch 0
        lab.run(lab.sink(lineage="another").foreach_batch, batches=1)


@pytest.mark.nightly
def test_lineage_belongs_to_one_query(lab: Lab):
    lab.run(lab.sink().foreach_batch, batches=1)
    with refused(SINK_LINEAGE, "expected to be written by query"):
        lab.run(lab.sink().foreach_batch, batches=1, checkpoint="another")
    assert lab.counts() == once(1)


def test_columns_of_sparks_own_sink_arrive(lab: Lab, old_broker: Broker):
    old_broker.create_topic(f"{lab.topic}-b", partitions=1)
    lab.run(
        lab.sink(topic=None).foreach_batch,
        batches=1,
        shape=lambda rows: rows.selectExpr(
            f"if(value = 3, '{lab.topic}-b', '{lab.topic}') as topic",
            "if(value % 2 = 0, null, cast(string(value) as binary)) as key",
            "if(value = 4, null, cast(value as string)) as value",
            "array(struct('h' as key, cast('x' as binary) as value)) as headers",
            "cast(0 as int) as partition",
            "timestamp_millis(1000 + value) as timestamp",
        ),
    )
    found = {record.offset(): record for record in lab.records()}
    assert {record.partition() for record in found.values()} == {0}
    assert len(found) == ROWS - 1  # one is in the other topic
    assert {record.timestamp()[1] for record in found.values()} == {1000 + n for n in range(ROWS) if n != 3}
    assert all(record.headers() == [("h", b"x")] for record in found.values())
    assert [record.timestamp()[1] for record in found.values() if record.value() is None] == [1004]


def test_partition_of_a_key_is_that_of_sparks_own_sink(lab: Lab, old_broker: Broker):
    native = f"{lab.topic}-native"
    old_broker.create_topic(native, partitions=3)

    def both(frame: DataFrame, batch_id: int) -> None:
        lab.sink().foreach_batch(frame, batch_id)
        writer = frame.write.format("kafka").option("kafka.bootstrap.servers", old_broker.bootstrap)
        writer.option("topic", native).save()

    lab.run(both, batches=1)
    ours = {record.key(): record.partition() for record in lab.records()}
    lab.topic = native
    assert ours == {record.key(): record.partition() for record in lab.records()}
    assert len(set(ours.values())) > 1


@pytest.mark.parametrize(
    ("options", "shape", "error", "match"),
    [
        ({}, "cast(value as string) as text", SINK_INPUT, "missed value"),
        ({}, "value", SINK_INPUT, "value bigint"),
        ({"topic": None}, "cast(value as string) as value", SINK_INPUT, "missed topic"),
        ({"topic": "nowhere"}, "cast(value as string) as value", RECORD_REFUSED, "UNKNOWN_TOPIC"),
        ({}, "repeat('x', 2000000) as value", RECORD_REFUSED, "too large|size"),
        (
            {"transaction_timeout_ms": 900_001},
            "cast(value as string) as value",
            TRANSACTION_TIMEOUT,
            "900000",
        ),
    ],
    ids=["no-value", "type", "no-topic", "unknown-topic", "oversized", "timeout"],
)
def test_bad_input_is_refused_and_writes_nothing(
    two_tasks: SparkSession,
    old_broker: Broker,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    options: dict[str, Any],
    shape: str,
    error: type[Exception],
    match: str,
):
    topic = topic_of(request)
    old_broker.create_topic(topic, partitions=1)
    lab = Lab(two_tasks, old_broker, topic, tmp_path, {"topic.metadata.propagation.max.ms": "1000"})
    with refused(error, match):
        lab.run(lab.sink(**options).foreach_batch, batches=1, shape=lambda rows: rows.selectExpr(shape))
    assert not lab.counts()


def test_error_that_may_pass_reaches_the_driver_as_itself_behind_the_last_attempt_of_its_task(lab: Lab):
    def abort(at_batch: int, _: int, phase: str) -> None:
        if (at_batch, phase) == (1, "commit"):
            raise TRANSACTION_ABORTED.with_text("the brokers ended it", state_after="", remedy="")

    with refused(TRANSACTION_ABORTED, "the brokers ended it"):
        lab.run(lab.sink(on_phase=abort).foreach_batch, batches=2)
    noted = failure(lab.query_id)
    assert noted.code == TRANSACTION_ABORTED.code
    assert noted.retryable
    lab.run(lab.sink().foreach_batch, batches=1)
    assert lab.counts() == once(2)


def test_control_topic_that_is_gone_or_deletes_is_refused(lab: Lab, old_broker: Broker):
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    lab.run(lab.sink().foreach_batch, batches=1)
    control = f"flinkstyle-{lab.topic}-line.internal"
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, control, incremental_configs=[entry])
    old_broker.admin().incremental_alter_configs([resource])[resource].result(20)
    with refused(CONTROL_TOPIC, "compact only"):
        lab.run(lab.sink().foreach_batch, batches=1)
    old_broker.admin().delete_topics([control])[control].result(20)
    with refused(CONTROL_TOPIC, "does not exist"):
        lab.run(lab.sink().foreach_batch, batches=1)
    assert lab.counts() == once(1)


@pytest.mark.parametrize("materialise", [False, True])
def test_plan_that_is_not_deterministic_is_written_once_if_its_batches_are_stored(
    lab: Lab, materialise: bool
):
    def random_values(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("cast(value as string) as key", "uuid() as value")

    def run(batches: int, **options: Any) -> None:
        sink = lab.sink(materialise=materialise, **options)
        lab.run(sink.foreach_batch, batches=batches, shape=random_values)

    with pytest.raises(Exception, match="dies in begin"):
        run(1, on_phase=die(0, 1, "begin"))
    half = lab.records()
    if not materialise:
        with refused(REPLAY_DIFFERS, "Batch 0"):
            run(1)
        assert len(lab.records()) == len(half)
        return
    run(2)
    lab.forget_commit(1)
    run(1)
    assert Counter(int(record.key() or b"") for record in lab.records()) == once(2)
    stored = (lab.folder / f"checkpoint/materialised/{lab.topic}-line").iterdir()
    assert [folder.name.partition("-")[0] for folder in stored] == [
        "1"
    ]  # the newest, in case it is run again


def read_from(lab: Lab, source: Broker, sink: TransactionalKafkaSink, **options: str) -> str:
    """Run a query from a Kafka topic into the lab's until all is read; returns the query's id."""
    reader = lab.spark.readStream.format("kafka").option("kafka.bootstrap.servers", source.bootstrap)
    rows = reader.options(subscribe=f"{lab.topic}-in", startingOffsets="earliest", **options).load()
    writer = rows.select("key", "value").writeStream.foreachBatch(sink.foreach_batch)
    query = writer.option("checkpointLocation", str(lab.folder / "in")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(150)
    finally:
        query.stop()
    return str(query.id)


def fill(broker: Broker, topic: str, values: range) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, str(value), str(value % 7), partition=value % 2)
    producer.flush()


def test_consumed_offsets_are_committed_with_the_completion_and_only_there(lab: Lab, old_broker: Broker):
    source, group = f"{lab.topic}-in", f"{lab.topic}-group"
    old_broker.create_topic(source, partitions=2)
    fill(old_broker, source, range(ROWS))
    with pytest.raises(Exception, match="dies in commit"):  # shard 0 has committed by then
        read_from(lab, old_broker, lab.sink(commit_offsets=group, on_phase=die(0, 1, "commit")))
    assert lab.records()
    with refuses(GROUP_MISSING):
        group_offsets(lab.cluster, group, [source])
    query_id = read_from(lab, old_broker, lab.sink(commit_offsets=group))
    assert group_offsets(lab.cluster, group, [source]) == {(source, 0): ROWS // 2, (source, 1): ROWS // 2}
    fill(old_broker, source, range(ROWS, 2 * ROWS))
    read_from(lab, old_broker, lab.sink(commit_offsets=True), **{"kafka.group.id": group})
    assert group_offsets(lab.cluster, group, [source]) == {(source, 0): ROWS, (source, 1): ROWS}
    assert states(query_id)[0].commits_group == group
    assert lab.counts() == once(2)


@pytest.mark.nightly
def test_group_with_members_is_not_committed_for(lab: Lab, old_broker: Broker):
    from confluent_kafka import Consumer

    source, group = f"{lab.topic}-in", f"{lab.topic}-group"
    old_broker.create_topic(source, partitions=2)
    fill(old_broker, source, range(ROWS))
    member = Consumer({"bootstrap.servers": old_broker.bootstrap, "group.id": group})
    member.subscribe([source])
    try:
        while not member.assignment():
            member.poll(0.2)
        with refused(GROUP_IN_USE, "expected to have no members"):
            read_from(lab, old_broker, lab.sink(commit_offsets=group))
    finally:
        member.close()
    read_from(lab, old_broker, lab.sink(commit_offsets=group))
    assert lab.counts() == once(1)


@pytest.mark.nightly
def test_offsets_cannot_be_committed_across_clusters(lab: Lab, old_broker: Broker, new_broker: Broker):
    new_broker.create_topic(f"{lab.topic}-in", partitions=1)
    fill(new_broker, f"{lab.topic}-in", range(0, 2, 2))
    with refused(SINK_CONFIG, "since a transaction cannot span two"):
        read_from(lab, new_broker, lab.sink(commit_offsets="group"))
    with refused(SINK_CONFIG, "option kafka.group.id, found none"):
        read_from(lab, new_broker, lab.sink(commit_offsets=True))
    assert not lab.records()
