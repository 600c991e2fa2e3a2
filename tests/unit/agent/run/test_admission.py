"""How a driver comes to hold its job at the start of its first query, and what it lets start afterwards."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.board.inbox import Take
from airflow_flinkstyle.agent.core.board.takeover import NotOursError
from airflow_flinkstyle.agent.core.errors import (
    DROPPED,
    QUERY_NAME,
    QueryUnknownError,
)
from airflow_flinkstyle.agent.core.run.reasons import Drilled
from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.errors import CHECKPOINT_LOST, PREDECESSOR, PlaceOccupiedError
from airflow_flinkstyle.protocol.places import MARK_KEY, OwnersMark, is_own, own_place
from airflow_flinkstyle.protocol.query_records import Sinks
from airflow_flinkstyle.protocol.records import Current, WorkRecord
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import SPARK_INCOMPATIBLE
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.small_spark import SmallSpark
from tests.unit.agent.conftest import G1, G2, G3, I1
from tests.unit.agent.drivers import SmallDriver, a_request, commit, end_run, plan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.clocks import SleptClock as Clock


@pytest.fixture
def first(tmp_path: Path, clock: Clock) -> SmallDriver:
    driver = SmallDriver(tmp_path, clock=clock)
    driver.tell_order()
    return driver


def holder(driver: SmallDriver) -> int | None:
    current = driver.board.current()
    return current.value.generation if current else None


def state(driver: SmallDriver) -> str:
    slot = driver.board.heartbeat(driver.driver_run.generation)
    assert slot is not None
    return slot.value.state


def closed_at(driver: SmallDriver, **batches: int) -> SmallDriver:
    """Run a job up to these batches and close it."""
    for name, batch in batches.items():
        query = driver.start(name)
        for number in range(batch + 1):
            commit(query, number)
        end_run(query)
    driver.heartbeat_writer.end("closed")
    return driver


def test_driver_takes_over_only_once_it_knows_that_its_migration_holds_the_producers(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    driver = SmallDriver(tmp_path, clock=clock)
    driver.tell_order(while_held="m1")
    beats: list[int | None] = []
    sleep = clock.sleep

    def beat_meanwhile(seconds: float) -> None:
        sleep(seconds)
        beats.append(holder(driver))
        work = WorkRecord(
            cutover="migration",
            attempt=1,
            beat=len(beats),
            holder="here",
            lease_s=60.0,
            held_s=50.0,
            written_at_ms=1,
        )
        driver.board.write_work("m1", work)

    monkeypatch.setattr(clock, "sleep", beat_meanwhile)
    driver.start("orders")
    assert holder(driver) == G1
    assert beats == [None, None], "the first beat may be old; the second was begun behind it"
    monkeypatch.setattr(clock, "sleep", sleep)
    driver.relaunched().start("orders")  # it has the job: it waits for nobody


def test_run_that_ends_before_its_first_start_tells_of_the_batch_that_was_half_written(
    first: SmallDriver,
) -> None:
    query = first.start("orders")
    commit(query, 0)
    first.heartbeat_writer.beat()
    plan(query, 1)  # and it dies
    again = first.relaunched()
    query = again.register("orders")
    again.admission.admit(query)
    again.heartbeat_writer.end("closed")  # as SIGTERM makes it
    slot = again.board.heartbeat(G1)
    assert slot is not None
    told = slot.value.queries["orders"]
    assert (told.batch_id, told.sinks and told.sinks.under_way) == (0, True)
    again.run(query)
    commit(query, 1)
    assert query.status().sinks == Sinks()


def test_first_query_takes_the_job_over_and_the_next_one_is_only_named(first: SmallDriver) -> None:
    assert holder(first) is None
    first.admission.admit(first.register("orders"))
    assert (holder(first), state(first)) == (G1, "running")
    assert first.admission.starting, "until Spark has started it"
    first.admission.starting = False
    second = first.register("second")
    first.admission.admit(second)
    assert second.admitted
    assert not first.admission.starting
    slot = first.board.heartbeat(G1)
    assert slot is not None
    assert set(slot.value.queries) == {"orders", "second"}


def test_settings_that_count_are_those_of_the_querys_own_session(first: SmallDriver) -> None:
    first.spark.settings[SHUFFLE_PARTITIONS] = "2"
    first.start("orders")
    own = SmallSpark()
    own.settings[SHUFFLE_PARTITIONS] = "3"
    second = first.register("second", own)
    second.checkpoint.write("metadata", b'{"id":"7c2b1a3e-0000-4000-8000-000000000000"}')
    header = f'{{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{{"{SHUFFLE_PARTITIONS}":"3"}}}}'
    second.checkpoint.write("offsets/0", f"v1\n{header}\n0".encode())
    second.checkpoint.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
    first.admission.admit(second)
    first.queries.settle(second, None)
    with refuses(SPARK_INCOMPATIBLE, match="is 3 there and 2 here"):
        first.admission.admit(first.register("second"))


def test_driver_stands_by_until_it_is_told_to_go(tmp_path: Path) -> None:
    driver = SmallDriver(tmp_path)
    admitting = threading.Thread(target=driver.admission.admit, args=(driver.register("orders"),))
    admitting.start()
    wait = threading.Event()
    while driver.board.heartbeat(G1) is None:
        wait.wait(0.01)
    assert (state(driver), holder(driver)) == ("standby", None)
    driver.tell_order()
    admitting.join(60)
    assert (state(driver), holder(driver)) == ("running", G1)


def test_driver_is_told_to_go_before_a_start_that_was_put_off_changes_any_setting(tmp_path: Path) -> None:
    driver = SmallDriver(tmp_path)
    waiting = threading.Thread(target=driver.admission.await_order)
    waiting.start()
    wait = threading.Event()
    while driver.board.heartbeat(G1) is None:
        wait.wait(0.01)
    assert (state(driver), waiting.is_alive()) == ("standby", True)
    driver.tell_order()
    waiting.join(60)
    assert (state(driver), holder(driver)) == ("standby", None)
    driver.start("orders")
    assert (state(driver), holder(driver)) == ("running", G1)
    driver.admission.await_order()
    assert state(driver) == "running", "another thread of the script may have been first"


def saved(driver: SmallDriver, savepoint_id: str, *, at: int) -> None:
    """Let the driver's query commit one more batch, and save it."""
    (query,) = driver.queries.all()
    commit(query, at)
    query.checkpoint.write(f"state/0/0/{at + 1}.changelog", b"state of batch %d" % at)
    label = SavepointLabel(
        savepoint_id=savepoint_id, taken_at_ms=1, spark_version="4.2.0", taken_from_generation=G1
    )
    take_savepoint(
        driver.repository, [QuerySource(name="orders", checkpoint=query.checkpoint, kafka={})], label
    )


@pytest.mark.parametrize("damaged", [False, True])
def test_waiting_driver_copies_a_newer_savepoint_ahead_and_says_when_it_is_done(
    first: SmallDriver, clock: Clock, *, damaged: bool
) -> None:
    ran = first.start("orders")
    for number in range(3):
        saved(first, f"sp-{number}", at=number)
    first.heartbeat_writer.end("closed")
    second = first.followed_by(G2, adopts=False, prepare_savepoint_id="sp-0")
    query, ahead = second.register("orders"), []
    named = first.repository.read("sp-1").queries[0].file("state/0/0/2.changelog")
    assert named is not None
    store, key = first.repository.place(named.blob)

    def name() -> None:
        ahead.append(query.checkpoint.head("state/0/0/2.changelog"))
        if damaged:
            store.delete(key)
        second.board.write_precopy(G2, "sp-1")

    def order() -> None:
        slot = second.board.heartbeat(G2)
        assert slot is not None
        assert (slot.value.state, slot.value.precopied) == ("standby", "sp-1")
        ahead.append(query.checkpoint.head("state/0/0/2.changelog"))
        if damaged:
            store.create(key, b"state of batch 1")
        second.tell_order(savepoint_id="sp-2", closed_at={"orders": 2})

    clock.at = {clock.now_s + 3: name, clock.now_s + 9: order}
    second.admission.admit(query)
    assert [found is not None for found in ahead] == [False, not damaged]
    assert query.checkpoint.read("state/0/0/2.changelog") == b"state of batch 1"
    assert query.checkpoint.read("state/0/0/3.changelog") == b"state of batch 2"
    assert query.checkpoint.read("offsets/2") == ran.checkpoint.read("offsets/2")
    assert holder(second) == G2


@pytest.mark.parametrize("ordered", [False, True])
def test_driver_of_a_drill_ends_behind_its_rehearsal_and_never_holds_the_job(
    tmp_path: Path, *, ordered: bool
) -> None:
    driver = SmallDriver(tmp_path, rehearse=Rehearse(only=True))
    if ordered:  # nobody gives it one; it would not be obeyed
        driver.tell_order()
    with pytest.raises(SystemExit):
        driver.admission.admit(driver.register("orders"))
    assert driver.ended_by == [Drilled()]
    assert holder(driver) is None


def test_waiting_driver_leaves_when_its_run_ends_or_another_generation_has_the_job(tmp_path: Path) -> None:
    told_to_stop = SmallDriver(tmp_path)
    told_to_stop.ending.set()
    with pytest.raises(SystemExit):
        told_to_stop.admission.admit(told_to_stop.register("orders"))
    late = SmallDriver(tmp_path)
    late.board.take_current(Current(generation=G3, incarnation=I1), seen=None)
    with pytest.raises(NotOursError):
        late.admission.admit(late.register("orders"))
    assert holder(late) == G3


def test_end_that_begins_before_the_takeover_keeps_the_job_free(first: SmallDriver) -> None:
    with first.gate:  # the end of the run holds it while it begins
        admitting = threading.Thread(target=left, args=(first,))
        admitting.start()
        first.ending.set()
    admitting.join(60)
    assert holder(first) is None


def left(driver: SmallDriver) -> None:
    with pytest.raises(SystemExit):
        driver.admission.admit(driver.register("orders"))


def test_adopted_checkpoint_goes_on_where_the_run_before_closed(first: SmallDriver) -> None:
    closed_at(first, orders=1, other=0)
    second = first.followed_by(G2, adopts=True)
    second.tell_order(closed_at={"orders": 1, "other": 0})
    query = second.start("orders")
    assert (holder(second), query.read_committed()) == (G2, 1)
    slot = second.board.heartbeat(G2)
    assert slot is not None
    assert slot.value.queries["other"].waiting
    assert slot.value.batches() == {"orders": 1, "other": 0}


def test_checkpoint_of_a_run_that_did_not_close_is_not_adopted(first: SmallDriver) -> None:
    commit(first.start("orders"), 0)
    second = first.followed_by(G2, adopts=True)
    second.tell_order()
    with refuses(PREDECESSOR, match="is adopted, found it running"):
        second.start("orders")
    assert holder(second) == G1


def test_checkpoint_that_is_gone_is_refused_before_the_job_is_taken(first: SmallDriver) -> None:
    closed_at(first, orders=0)
    first.queries.checkpoint("orders").delete("metadata")
    second = first.followed_by(G2, adopts=True)
    second.tell_order(closed_at={"orders": 0})
    with refuses(CHECKPOINT_LOST):
        second.start("orders")
    assert holder(second) == G1


def test_place_without_the_mark_is_no_place_in_which_nothing_has_happened(first: SmallDriver) -> None:
    """The heartbeat has told of no batch yet: an empty folder is another machine's, and not a beginning."""
    first.start("orders")
    for key in list(everything_below(first.root)):
        (first.root / key).unlink()
    with refuses(CHECKPOINT_LOST, match="bear the mark of the job that ran there"):
        first.relaunched().start("orders")
    assert list(everything_below(first.root)) == [], "and none is made"


def test_place_in_which_a_driver_only_waited_is_not_the_one_in_which_the_job_ran(first: SmallDriver) -> None:
    """The same location on two machines' disks: each has a mark of the job, and one has what it did."""
    first.start("orders")
    place, ran_in = first.queries.place(), first.board.current().value.place_id
    mark = OwnersMark.from_bytes(place.read(MARK_KEY))
    assert mark.place_id == ran_in
    place.write(MARK_KEY, replace(mark, place_id="on-another-disk").to_bytes())
    with refuses(CHECKPOINT_LOST, match="found that of another place"):
        first.relaunched().start("orders")
    assert first.board.current().value.incarnation == I1


def test_query_that_the_job_has_under_another_name_is_refused_unless_it_was_dropped(
    first: SmallDriver,
) -> None:
    closed_at(first, orders=0)
    second = first.followed_by(G2, adopts=True)
    second.tell_order(closed_at={"orders": 0})
    with pytest.raises(QueryUnknownError, match="found renamed"):
        second.start("renamed")
    assert holder(second) == G1
    third = second.relaunched()
    third.spark.settings[DROPPED] = "orders"
    third.start("renamed")
    assert holder(third) == G2
    with pytest.raises(FlinkstyleError):
        third.start("orders")


def test_what_a_killed_run_left_of_its_first_write_is_deleted_once_the_job_is_held(
    first: SmallDriver,
) -> None:
    own_place(first.queries.place(), first.board, G1)
    checkpoint = first.queries.checkpoint("orders")
    checkpoint.write("offsets/.0.67b1b5be.tmp", b"")
    loser = first.followed_by(G2, adopts=True)
    loser.tell_order()
    with refuses(PREDECESSOR):
        loser.start("orders")
    assert checkpoint.head("offsets/.0.67b1b5be.tmp") is not None
    first.start("orders")
    assert checkpoint.head("offsets/.0.67b1b5be.tmp") is None


def test_savepoint_is_restored_before_the_job_is_taken_and_kept_as_the_newest(first: SmallDriver) -> None:
    commit(first.start("orders"), 0)
    saved = first.serving._taking.take(Take(a_request()), stopped_at={"orders": 0})
    assert first.admission.manifest == saved
    first.heartbeat_writer.end("closed")
    second = first.followed_by(G2, adopts=False)
    second.tell_order(savepoint_id="sp-1", closed_at={"orders": 0})
    query = second.start("orders")
    assert query.checkpoint.uri != first.queries.checkpoint("orders").uri
    assert (query.read_committed(), second.admission.manifest) == (0, saved)


def test_relaunch_waits_for_the_process_before_and_goes_on_in_its_own_checkpoint(
    first: SmallDriver, clock: Clock
) -> None:
    query = first.start("orders")
    commit(query, 0)
    plan(query, 1)
    first.heartbeat_writer.beat()
    began_s = clock.now_s
    second = first.relaunched()
    assert clock.now_s - began_s >= first.claim.lease_s
    assert second.admission.relaunched
    assert not second.admission.is_settled(), "what callers ask is not judged by an empty driver"
    assert second.start("orders").read_committed() == 0
    assert second.admission.is_settled()


def test_relaunch_does_not_let_a_script_leave_out_the_query_that_was_refused(
    first: SmallDriver,
) -> None:
    commit(first.start("orders"), 0)
    error = QUERY_NAME.with_text("two queries have one name", state_after="", remedy="")
    first.heartbeat_writer.end("failed", error=(error.code, str(error)))
    with refuses(QUERY_NAME):
        first.relaunched().start("orders")


def everything_below(folder: Path) -> dict[str, bytes]:
    return {info.key: LocalStore(folder).read(info.key) for info in LocalStore(folder).list()}


@pytest.mark.parametrize("prepares", [False, True])
def test_driver_of_another_root_never_runs_in_a_checkpoint_that_is_not_its_own(
    first: SmallDriver, *, prepares: bool
) -> None:
    """Fresh, and with a savepoint to copy ahead, before it waits for its order."""
    commit(first.start("orders"), 7)
    before = everything_below(first.root)
    other = SmallDriver(
        first.root,
        board=JobBoard(MemoryStore("production"), "orders"),
        clock=first.clock,
        prepare_savepoint_id="sp-1" if prepares else None,
    )
    if not prepares:
        other.tell_order()
    with pytest.raises(PlaceOccupiedError, match=r"of job orders of root .* with orders in it"):
        other.start("orders")
    assert everything_below(first.root) == before
    assert holder(other) is None


def test_job_that_was_begun_anew_never_starts_fresh_at_the_batch_of_its_former_life(
    first: SmallDriver,
) -> None:
    closed_at(first, orders=7)
    for info in list(first.board.store.list("orders/")):
        first.board.store.delete(info.key)
    anew = SmallDriver(first.root, board=JobBoard(first.board.store, "orders"), clock=first.clock)
    anew.tell_order()
    with pytest.raises(PlaceOccupiedError, match="generation 1 of job orders"):
        anew.start("orders")
    assert holder(anew) is None


def test_checkpoint_that_something_else_has_written_is_not_gone_on_in(first: SmallDriver) -> None:
    first.queries.checkpoint("orders").write("offsets/7", b"v1")
    with pytest.raises(PlaceOccupiedError, match="no mark, and orders in it"):
        first.start("orders")
    assert first.board.current() is None


def test_mark_is_there_before_all_else_and_in_no_savepoint(first: SmallDriver) -> None:
    query = first.register("orders")
    first.admission.admit(query)
    assert list(everything_below(first.root)) == [f"1/{MARK_KEY}"]
    first.run(query)
    saved(first, "sp-1", at=0)
    manifest = first.repository.read("sp-1")
    assert not [entry.path for entry in manifest.queries[0].files if "_owner" in entry.path]
    first.heartbeat_writer.end("closed")
    second = first.followed_by(G2, adopts=False)
    second.tell_order(savepoint_id="sp-1", closed_at={"orders": 0})
    second.start("orders")
    assert is_own(second.queries.place(), second.board)
    assert second.queries.names_in_checkpoint() == ["orders"]
