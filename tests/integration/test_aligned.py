"""All queries of a job cut at the same offsets, on real Spark and Kafka; what they counted is the judge."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.cut import cut_together, find_cut
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.errors import CUT_FAILED
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.cuts import CutBoard, Positions
from airflow_flinkstyle.types import Generation, NextOffset
from testbed.refusals import refuses
from testbed.waiting import PATIENCE_S
from tests.integration.agent_lab import Driver, Lab, logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.jobs.cut import JobsCut
    from airflow_flinkstyle.protocol.records import Request
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
    from testbed.kafka import Broker
    from tests.integration.warm_lab import WarmJvms

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]

QUERIES = ("fast", "slow")
JOB = """
import json, os, sys, threading, time
from pyspark.sql import SparkSession, functions as F
servers, topic, out = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
def blocked_from():
    try:
        return int(open(out + ".block").read())
    except FileNotFoundError:
        return 1 << 31
def count(name, seconds, **options):
    rows = spark.readStream.format("kafka").options(**{
        "kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest",
        **options}).load()
    def note(batch, batch_id):
        n = batch.agg(F.sum("count")).first()[0]
        with open(out, "a") as f:
            pool = spark.sparkContext.getLocalProperty("spark.scheduler.pool")
            f.write(json.dumps({"query": name, "batch": batch_id, "n": n, "pool": pool}) + "\\n")
        while name == "slow" and batch_id >= blocked_from():
            time.sleep(0.05)
    spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    counts = rows.groupBy((F.expr("cast(cast(value as string) as int)") % 5).alias("k")).count()
    return (counts.writeStream.queryName(name).outputMode("complete").foreachBatch(note)
        .trigger(processingTime=f"{seconds} seconds").start())
fast = count("fast", 0.5)
slow = count("slow", 1, maxOffsetsPerTrigger="100")
def stop_slow():
    while not os.path.exists(out + ".stop"):
        time.sleep(0.05)
    slow.stop()
def await_fast():
    fast.awaitTermination()
    print("FAST ENDED", flush=True)
threading.Thread(target=stop_slow, daemon=True).start()
awaits = threading.Thread(target=await_fast, daemon=True)
awaits.start()
while fast.isActive or slow.isActive:
    spark.streams.awaitAnyTermination(1)
    time.sleep(0.1)
awaits.join()  # else the process may end before it prints
print("BOTH ENDED")
"""
"""Two queries on one topic; the slow one stays in its batch while a file says so."""


class Topic:
    """A topic with two partitions, and a producer that can be held."""

    def __init__(self, broker: Broker) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import NewTopic

        self.broker, self.name = broker, f"aligned-{uuid.uuid4().hex[:8]}"
        broker.admin().create_topics([NewTopic(self.name, 2, 1)])[self.name].result(20)
        self._producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
        self._ended, self._held = threading.Event(), threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._produce)
        self._thread.start()

    def _produce(self) -> None:
        while not self._ended.wait(0.05):
            if self._held.is_set():
                continue
            for _ in range(3):
                self._producer.produce(self.name, str(self.sent).encode(), partition=self.sent % 3 // 2)
                self.sent += 1
            self._producer.flush(10)

    def hold(self) -> None:
        self._held.set()
        time.sleep(0.2)
        self._producer.flush(10)

    def release(self) -> None:
        self._held.clear()

    def end(self) -> None:
        self._ended.set()
        self._thread.join(20)


@pytest.fixture
def topic(old_broker: Broker) -> Iterator[Topic]:
    topic = Topic(old_broker)
    yield topic
    topic.end()


class AlignedLab(Lab):
    """A job of two queries."""

    def begin(self, topic: Topic, generation: int = 1, **order: Any) -> Driver:
        driver = self.start(generation, self.script(JOB), *self.arguments(topic), **order)
        self.until_batches(generation, above=0)
        return driver

    def arguments(self, topic: Topic) -> tuple[str, str, str]:
        return topic.broker.bootstrap, topic.name, str(self.out)

    def until_batches(self, generation: int = 1, *, above: int) -> None:
        for query in QUERIES:
            self.until_batch(generation, query, above=above)

    @contextlib.contextmanager
    def slow_is_blocked(self) -> Iterator[None]:
        """Keep the slow query in its batch."""
        self.block_slow_from(0)
        try:
            self.until("slow has a batch that is not committed", self.slow_is_behind)
            yield
        finally:
            Path(f"{self.out}.block").unlink()

    def block_slow_from(self, batch: int) -> None:
        temporary = Path(f"{self.out}.block.tmp")
        temporary.write_text(str(batch))
        temporary.rename(f"{self.out}.block")

    def slow_is_behind(self) -> bool:
        offsets, commits = logs_of(str(self.folder / "checkpoints-1"), "slow")
        return max(offsets) > max(commits)

    def goes_on(self, generation: int = 1, queries: tuple[str, ...] = QUERIES) -> None:
        """Require that queries commit batches."""
        for query in queries:
            at = max(logs_of(str(self.folder / f"checkpoints-{generation}"), query)[1])
            self.until(
                f"{query} goes on",
                lambda at=at, query=query: (
                    max(logs_of(str(self.folder / f"checkpoints-{generation}"), query)[1]) > at
                ),
            )

    def planned(self, query: str) -> tuple[int, dict[int, int]]:
        """Return the newest batch in a query's offset log, and where it ends."""
        location = str(self.folder / "checkpoints-1")
        batch = max(logs_of(location, query)[0])
        log = offset_log.parse(Path(location, query, "offsets", str(batch)).read_text())
        return batch, dict(*log.kafka_offsets(*log.kafka_sources).by_topic.values())

    def counted(self, query: str, batch: int) -> int:
        return next(
            row["n"] for row in reversed(self.rows()) if (row["query"], row["batch"]) == (query, batch)
        )

    def last_count(self, query: str) -> int:
        return next(row["n"] for row in reversed(self.rows()) if row["query"] == query)

    def savepoint(self, request: Request, generation: int = 1) -> Manifest:
        end = self.end_of(generation, request)
        assert (end.outcome, end.detail) == ("done", end.detail)
        return self.repository.read(request.savepoint_id)


def _kafka(query: QuerySnapshot) -> KafkaPosition:
    (position,) = query.kafka.values()
    return position


def positions(manifest: Manifest) -> dict[str, dict[int, int]]:
    return {query.name: dict(*_kafka(query).offsets.by_topic.values()) for query in manifest.queries}


def counts_in(lab: AlignedLab, manifest: Manifest) -> set[int]:
    """Return what the queries had counted at their batches; each counts all that it had read."""
    counts = set()
    for query in manifest.queries:
        (offsets,) = _kafka(query).offsets.by_topic.values()
        counts.add(lab.counted(query.name, query.batch_id))
        assert lab.counted(query.name, query.batch_id) == sum(offsets.values())
    return counts


def test_job_is_cut_hot_at_one_offset_and_drained(topic: Topic, tmp_path: Path, warm_jvms: WarmJvms | None):
    lab = AlignedLab(tmp_path / "lab", warm=warm_jvms)
    try:
        driver = lab.begin(topic)
        with lab.slow_is_blocked():
            lab.goes_on(queries=("fast",))
            apart = lab.savepoint(lab.ask(1, "savepoint"))
            aligned = lab.ask(1, "savepoint", alignment="aligned")  # slow ends its batch behind fast
        assert apart.alignment == "none"
        at = positions(apart)
        assert at["fast"] != at["slow"]
        assert len(counts_in(lab, apart)) == 2  # records that only one of the queries has counted

        hot = lab.savepoint(aligned)
        assert hot.alignment == "aligned"
        at = positions(hot)
        assert at["fast"] == at["slow"]
        assert len(counts_in(lab, hot)) == 1
        lab.goes_on()

        topic.hold()
        stop = lab.ask(1, "stop_with_savepoint", alignment="aligned", drain=True)
        drained = lab.savepoint(stop)
        assert driver.wait() == 0
        assert "BOTH ENDED" in driver.text
        assert sum(positions(drained)["slow"].values()) == topic.sent
        assert positions(drained)["fast"] == positions(drained)["slow"]
        assert lab.last_count("fast") == lab.last_count("slow") == topic.sent
        assert lab.heartbeat(1).batches() == {query.name: query.batch_id for query in drained.queries}

        topic.release()
        again = lab.begin(topic, 2, savepoint_id=hot.savepoint_id)
        topic.hold()
        lab.until("all is counted", lambda: {lab.last_count(name) for name in QUERIES} == {topic.sent})
        assert lab.end_of(2, lab.ask(2, "stop")).outcome == "done"
        assert again.wait() == 0
    finally:
        lab.close()


@pytest.mark.matrix
def test_job_goes_on_uncut_when_it_is_not_cut(topic: Topic, tmp_path: Path, warm_jvms: WarmJvms | None):
    """A barrier behind, a cancel while held, a caller that never answers; then a query's own end."""
    lab = AlignedLab(tmp_path / "lab", warm=warm_jvms)
    cuts = CutBoard(lab.board.store)
    try:
        driver = lab.begin(topic)

        behind = lab.ask(1, "stop_with_savepoint", alignment="aligned", cut_id="cut-behind")
        held = lab.until("it is held", lambda: cuts.held("cut-behind", lab.job)).places()
        before = {query: lab.planned(query) for query in QUERIES}
        cuts.create_barrier(
            "cut-behind", Positions.of({place: NextOffset(at - 1) for place, at in held.items()})
        )
        end = lab.end_of(1, behind)
        assert (end.outcome, end.detail.partition(":")[0]) == ("failed", "BARRIER_BEHIND")
        lab.goes_on()
        for query, (_, ends) in before.items():
            assert all(lab.planned(query)[1][number] >= at for number, at in ends.items())

        cancelled = lab.ask(1, "savepoint", alignment="aligned", cut_id="cut-cancelled")
        lab.until("it is held", lambda: cuts.held("cut-cancelled", lab.job))
        slot = lab.board.request(Generation(1))
        lab.board.put_request(Generation(1), replace(slot.value, state="cancelled"), seen=slot)
        assert lab.end_of(1, cancelled).outcome == "cancelled"
        lab.goes_on()

        alone = lab.ask(1, "savepoint", alignment="aligned", cut_id="cut-alone", hold_s=0.5)
        assert "no barrier within the 0.5 s" in lab.end_of(1, alone).detail
        assert cuts.decision("cut-alone").verdict == "abandoned"
        lab.goes_on()
        assert [lab.repository.find(request.savepoint_id) for request in (behind, cancelled, alone)] == [
            None
        ] * 3

        # What the script stops while it is held stays stopped, and what it awaits is not over.
        held_for_script = lab.ask(1, "savepoint", alignment="aligned", cut_id="cut-script", hold_s=4.0)
        lab.until("it is held", lambda: cuts.held("cut-script", lab.job))
        Path(f"{lab.out}.stop").touch()
        assert lab.end_of(1, held_for_script).outcome == "failed"
        stopped_at = lab.planned("slow")
        lab.goes_on(queries=("fast",))
        assert lab.planned("slow") == stopped_at
        assert "ENDED" not in driver.text
        assert {(row["query"], row["pool"]) for row in lab.rows()} == {(query, query) for query in QUERIES}

        refused = lab.end_of(1, lab.ask(1, "savepoint", alignment="aligned"))
        assert (refused.outcome, "found that slow ended" in refused.detail) == ("refused", True)
        assert lab.planned("slow") == stopped_at

        topic.hold()
        assert lab.end_of(1, lab.ask(1, "stop_with_savepoint")).outcome == "done"
        assert driver.wait() == 0
        assert "FAST ENDED" in driver.text
        for query in QUERIES:
            offsets, commits = logs_of(str(lab.folder / "checkpoints-1"), query)
            assert max(offsets) == max(commits)
    finally:
        lab.close()


@pytest.mark.matrix
def test_barrier_of_a_killed_driver_is_run_by_the_next_one(
    topic: Topic, tmp_path: Path, warm_jvms: WarmJvms | None
):
    lab = AlignedLab(tmp_path / "lab", warm=warm_jvms)
    try:
        driver = lab.begin(topic)
        with lab.slow_is_blocked():
            lab.goes_on(queries=("fast",))  # so that slow stands behind fast
            topic.hold()
            request = lab.ask(1, "savepoint", alignment="aligned")
            lab.until("it is held", lambda: lab.board.request(Generation(1)).value.state == "accepted")
            time.sleep(0.5)
            injected = lab.planned("slow")[0] + 1
            lab.block_slow_from(injected)
            lab.until("the barrier is written", lambda: lab.planned("slow")[0] == injected)
            driver.kill()
        assert lab.planned("slow")[1] == lab.planned("fast")[1]
        assert injected not in logs_of(str(lab.folder / "checkpoints-1"), "slow")[1]
        topic.release()
        again = lab.launch(1, lab.folder / "app.py", *lab.arguments(topic))
        lab.until_state(1, "running", incarnation=2)
        assert lab.end_of(1, request).outcome == "lost"
        lab.goes_on()
        topic.hold()
        lab.until("all is counted", lambda: {lab.last_count(name) for name in QUERIES} == {topic.sent})

        # A stop that overtakes an aligned savepoint ends it, although its queries are held.
        held = lab.ask(1, "savepoint", alignment="aligned", cut_id="cut-overtaken", incarnation=2)
        lab.until("it is held", lambda: CutBoard(lab.board.store).held("cut-overtaken", lab.job))
        assert lab.end_of(1, lab.ask(1, "stop", incarnation=2)).outcome == "done"
        assert lab.end_of(1, held).outcome == "cancelled"
        assert again.wait() == 0
    finally:
        lab.close()


@pytest.mark.nightly
def test_two_jobs_are_cut_together_or_both_go_on(topic: Topic, tmp_path: Path, warm_jvms: WarmJvms | None):
    labs = [
        AlignedLab(tmp_path / job, job=job, root=tmp_path / "root", warm=warm_jvms)
        for job in ("first-job", "second-job")
    ]
    clients = [
        JobClient(view=JobView(board=lab.board, repository=lab.repository, deployment=DetachedDeployment()))
        for lab in labs
    ]

    def members(cut: JobsCut) -> list[Manifest]:
        return [lab.repository.read(cut.savepoints[lab.job]) for lab in labs]

    try:
        drivers = [lab.start(1, lab.script(JOB), *lab.arguments(topic)) for lab in labs]
        for lab in labs:
            lab.until_batches(above=0)
        hot = cut_together(clients, "hot", timeout_s=PATIENCE_S)
        first, second = members(hot)
        assert {first.cut_id, second.cut_id} == {hot.cut_id}
        assert find_cut(labs[0].board.store, hot.cut_id).members == hot.savepoints
        at = [*positions(first).values(), *positions(second).values()]
        assert at == [at[0]] * 4
        for lab, manifest in zip(labs, (first, second), strict=True):
            assert counts_in(lab, manifest) == {sum(at[0].values())}
            lab.goes_on()

        with labs[1].slow_is_blocked(), refuses(CUT_FAILED, match="second-job is held"):
            cut_together(clients, "fails", timeout_s=4)
        for lab in labs:
            lab.goes_on()
            assert len(lab.repository.ids()) == 1

        stopped = cut_together(clients, "stop", stop=True, timeout_s=PATIENCE_S)
        assert stopped.not_stopped == {}
        at = [ends for manifest in members(stopped) for ends in positions(manifest).values()]
        assert at == [at[0]] * 4
        for lab, driver, manifest in zip(labs, drivers, members(stopped), strict=True):
            assert driver.wait() == 0
            assert lab.heartbeat(1).savepoint_id == manifest.savepoint_id
            assert {lab.last_count(query) for query in QUERIES} == {sum(at[0].values())}
    finally:
        for lab in labs:
            lab.close()
