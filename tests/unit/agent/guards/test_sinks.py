from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.guards.sinks import admit, counted_on, sink_of, skipped_batches
from airflow_flinkstyle.agent.core.job_query import JobQuery, Sink
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import Writing
from airflow_flinkstyle.protocol.records import TakeoverOrder
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import RenumberError, SinkSkipsError
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.sinks import TransactionalKafkaSink
from airflow_flinkstyle.types import BatchId
from testbed.memory_store import MemoryStore
from tests.declared import AS_BEFORE

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Rewind

NOTHING: Any = None


def a_checkpoint(*, planned: int, committed: int) -> MemoryStore:
    store = MemoryStore()
    for batch in range(planned + 1):
        store.write(f"offsets/{batch}", b"")
    for batch in range(committed + 1):
        store.write(f"commits/{batch}", b"")
    return store


def a_query(checkpoint: MemoryStore) -> JobQuery:
    sink = Sink(name="json", path="/out")
    return JobQuery(
        name="files", start=NOTHING, checkpoint=checkpoint, location="x", sources=(),
        sink=sink, declared=AS_BEFORE,
    )  # fmt: skip


def an_order(
    rewind: Rewind = "continue", *, skip_known_batches: bool = False, unused_from: int | None = None
) -> TakeoverOrder:
    numbers = {} if unused_from is None else {"files": unused_from}
    return TakeoverOrder(
        savepoint_id=None, closed_at=None, expected={}, parent=BEGINNING, rewind=rewind,
        skip_known_batches=skip_known_batches, unused_from=numbers,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("planned", "committed", "newest", "batches"),
    [
        (5, 5, 5, []),
        (6, 5, 6, []),  # killed before its commit: it is run again with the same offsets
        (5, 5, 7, [6, 7]),
        (6, 5, 7, [6, 7]),
        (-1, -1, 2, [0, 1, 2]),  # from scratch, into an old output path
        (-1, -1, None, []),
    ],
)
def test_batches_are_left_out_if_the_sink_knows_more_than_the_checkpoint(
    planned: int, committed: int, newest: int | None, batches: list[int]
) -> None:
    checkpoint = a_checkpoint(planned=planned, committed=committed)
    assert list(skipped_batches(checkpoint, BatchId(newest) if newest is not None else None)) == batches


def test_batches_that_the_sink_knows_are_refused_unless_accepted() -> None:
    query = a_query(a_checkpoint(planned=2, committed=2))
    repository = SavepointRepository(MemoryStore(), "job")
    with pytest.raises(
        SinkSkipsError, match=r"json of query files in /out, .* leave out batches 3 to 5"
    ) as refused:
        admit(query, BatchId(5), an_order("re-emit"), None, repository)
    assert "rewind='fork'" in refused.value.remedy
    admit(query, BatchId(5), an_order("re-emit", skip_known_batches=True), None, repository)
    admit(query, BatchId(2), an_order(), None, repository)


def test_query_that_a_savepoint_does_not_hold_begins_anew_only_if_its_sink_forgets() -> None:
    query = replace(a_query(MemoryStore()), sink=Sink(name="foreachBatch", may_remember=True))
    repository = SavepointRepository(MemoryStore(), "job")
    order = replace(an_order("fork", unused_from=6), savepoint_id="sp-1")
    with pytest.raises(SinkSkipsError, match=r"query files, .* begin with batch 0, .* batches up to 5"):
        admit(query, None, order, None, repository)
    admit(query, None, replace(order, skip_known_batches=True), None, repository)
    admit(query, None, replace(order, unused_from={"another": 6}), None, repository)
    forgets = replace(query, sink=Sink(name="kafka"))
    admit(forgets, None, order, None, repository)
    begun = replace(query, checkpoint=a_checkpoint(planned=0, committed=0))
    admit(begun, None, order, None, repository)  # it was let begin by this order, and is started again


def test_place_that_a_sink_writes_to_is_told_as_far_as_the_script_says_it() -> None:
    seen = StreamOptions()
    seen.format = "kafka"
    seen.set_options({"kafka.bootstrap.servers": "a:9092", "topic": "totals", "kafka.sasl.jaas.config": "pw"})
    assert sink_of(NOTHING, seen).writing() == Writing(servers="a:9092", topic="totals")
    seen.set_options({"topic": "t" * 1001})
    assert sink_of(NOTHING, seen).writing() == Writing(servers="a:9092")
    seen = StreamOptions()
    seen.format, seen.function = "foreachBatch", lambda _frame, _batch: None
    assert sink_of(NOTHING, seen).writing() is None
    ours = TransactionalKafkaSink({"bootstrap.servers": "b:9092"}, topic="totals", shards=1)
    seen.function = ours.foreach_batch
    assert sink_of(NOTHING, seen).writing() == Writing(servers="b:9092", topic="totals")


def test_sink_is_known_by_what_the_script_set() -> None:
    seen = StreamOptions()
    seen.format = "Parquet"
    seen.set_target("start", "/out")
    assert sink_of(NOTHING, seen) == Sink(name="parquet", path="/out")
    seen.format = "foreachBatch"
    assert sink_of(NOTHING, seen).name == "foreachBatch"


class Emitter:
    def process(self, row: object) -> None: ...


class OpenedEmitter(Emitter):
    def open(self, partition_id: int, epoch_id: int) -> bool:
        return True


def around(frame: object, batch_id: int) -> None:
    """Call the transactional sink, and write to a table besides: nobody can tell from outside."""


@pytest.mark.parametrize(
    ("name", "function", "may_remember"),
    [
        ("foreachBatch", lambda frame, batch_id: None, True),
        ("foreachBatch", around, True),
        (
            "foreachBatch",
            TransactionalKafkaSink({"bootstrap.servers": "kafka"}, shards=1).foreach_batch,
            False,
        ),
        ("foreach", OpenedEmitter(), True),
        ("foreach", Emitter(), False),  # nothing hands the batch's id to it
        ("foreach", lambda row: None, False),
        ("hudi", None, True),
        ("kafka", None, False),
        ("delta", None, False),  # by query id: known to
        ("parquet", None, False),
    ],
)
def test_function_may_remember_if_it_is_handed_batch_ids_and_is_not_ours(
    name: str, function: object, may_remember: bool
) -> None:
    seen = StreamOptions()
    seen.format, seen.function = name, function
    assert sink_of(NOTHING, seen).may_remember == may_remember


class Restored:
    """A query into a function that may remember, restored from a savepoint of batch 2."""

    def __init__(self, *state: str) -> None:
        live = a_checkpoint(planned=-1, committed=-1)
        live.write("metadata", b'{"id":"q-1"}')
        for batch in range(3):
            live.write(f"offsets/{batch}", OFFSETS)
            live.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')
        for path in state:
            live.write(path, b"s")
        self.repository = SavepointRepository(MemoryStore(), "job")
        label = SavepointLabel(
            savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=1
        )
        source = QuerySource(name="files", checkpoint=live, kafka={}, sink="foreachBatch")
        self.manifest = take_savepoint(self.repository, [source], label)
        self.query = a_query(MemoryStore("target"))
        self.query.sink = Sink(name="foreachBatch", may_remember=True)
        self.restore(self.manifest)

    def restore(self, manifest: Manifest) -> None:
        restore_savepoint(manifest, self.repository, lambda _: self.query.checkpoint)

    def admit(self, order: TakeoverOrder) -> int:
        """Return the savepoint's last batch as it is from then on."""
        found = admit(self.query, None, order, self.manifest, self.repository)
        assert found is not None
        return found.queries[0].batch_id

    def run(self, batch: int) -> None:
        self.query.checkpoint.write(f"offsets/{batch}", OFFSETS)
        self.query.checkpoint.write(f"commits/{batch}", b"")


OFFSETS = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"logOffset":1}'


def test_fork_into_a_function_counts_on_behind_every_batch_of_the_job_and_stays_there() -> None:
    restored, order = Restored(), an_order("fork", unused_from=70)
    assert restored.admit(order) == 70
    assert restored.query.read_committed() == 70
    assert restored.admit(order) == 70  # a relaunch before its first batch
    restored.run(71)
    assert restored.admit(order) == 70  # and behind it
    assert restored.query.read_committed() == 71


def test_fork_that_is_restored_for_its_first_query_has_the_number_at_once() -> None:
    restored, order = Restored(), an_order("fork", unused_from=70)
    moved = counted_on(restored.manifest, restored.query, None, order)
    assert moved.queries[0].batch_id == 70
    assert counted_on(moved, restored.query, None, order) is moved


def test_fork_into_a_function_that_may_have_seen_any_batch_is_refused_unless_accepted() -> None:
    restored = Restored()
    with pytest.raises(
        SinkSkipsError, match="records do not tell which batches foreachBatch of query files has seen"
    ) as refused:
        restored.admit(an_order("fork"))
    assert "another txnAppId" in refused.value.remedy
    assert restored.admit(an_order("fork", skip_known_batches=True)) == 2
    restored.run(3)
    assert restored.admit(an_order("fork", skip_known_batches=True)) == 2


def test_fork_into_a_function_is_refused_unless_accepted_if_its_state_keeps_its_number() -> None:
    restored = Restored()
    young = restored.manifest.queries[0]
    stuck = replace(young, files=(*young.files, replace(young.files[0], path="state/0/0/3.delta")))
    restored.manifest = replace(restored.manifest, queries=(stuck,))
    with pytest.raises(RenumberError, match="no full version of the state") as refused:
        restored.admit(an_order("fork", unused_from=70))
    assert "skip_known_batches=True" in refused.value.remedy
    assert restored.admit(an_order("fork", unused_from=70, skip_known_batches=True)) == 2


def test_ids_used_again_are_refused_for_a_function_unless_accepted() -> None:
    restored = Restored()
    order = an_order("re-emit", unused_from=7)
    with pytest.raises(SinkSkipsError, match=r"may leave out batch ids .* begin with batch 3, .* up to 6"):
        restored.admit(order)
    with pytest.raises(
        SinkSkipsError, match="records do not tell which batches foreachBatch of query files has seen"
    ):
        restored.admit(replace(order, unused_from={"files": None}))
    assert restored.admit(replace(order, skip_known_batches=True)) == 2
    assert restored.admit(an_order("re-emit", unused_from=3)) == 2  # nothing is used again
    restored.run(3)
    restored.admit(order)  # a relaunch: whoever started it had accepted


def test_function_that_keeps_lineages_of_its_own_or_is_handed_no_ids_is_left_alone() -> None:
    restored = Restored()
    restored.query.sink = Sink(name="foreachBatch")
    assert restored.admit(an_order("fork", unused_from=70)) == 2
    assert restored.admit(an_order("re-emit", unused_from=70)) == 2
    assert Restored().admit(an_order("continue")) == 2


def test_savepoint_from_elsewhere_uses_no_number_that_a_function_may_have_seen_here() -> None:
    restored, order = Restored(), an_order(unused_from=9)
    with pytest.raises(SinkSkipsError, match=r"begin with batch 3, .* this job may have had batches up to 8"):
        restored.admit(order)
    assert restored.admit(replace(order, skip_known_batches=True)) == 2
    assert restored.admit(an_order(unused_from=3)) == 2
    restored.query.sink = Sink(name="kafka")
    assert restored.admit(order) == 2
