from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.base import PREPARING_S
from airflow_flinkstyle.jobs.errors import (
    JOB_UNKNOWN,
    STEP_TIMEOUT,
    DriverFailedError,
    DriverLostError,
    JobNotRunningError,
    JobRunningError,
    RequestBusyError,
    RequestFailedError,
    RequestPostponedError,
    RewindError,
)
from airflow_flinkstyle.jobs.request import SavepointOnly, Stopped
from airflow_flinkstyle.jobs.request_slot import CutMode, Ended, TooLate, Withdrawn, key_of_kill, request_for
from airflow_flinkstyle.jobs.start.origins import FromCheckpoint, FromSavepoint
from airflow_flinkstyle.jobs.status import Closed, Dead, NeverStarted, Running, Sightings, Starting
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.kafka.errors import LOGIN_MISSING
from airflow_flinkstyle.kafka.login import CONNECTION
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from airflow_flinkstyle.savepoint.ids import new_savepoint_id
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from testbed.refusals import refuses
from tests.unit.clocks import SleptClock
from tests.unit.jobs.drivers import written_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.types import Rewind
    from tests.unit.jobs.conftest import Mood, World


def test_start_runs_the_job_and_a_retry_finds_the_same_driver(world: World):
    client = world.start()
    again = client.starts.start(world.spec(), world.target(), claim_key="start")
    assert again.generation == 1
    assert world.alive() == [1]


def test_claim_names_the_task_that_asked_for_the_start(world: World):
    client = world.client()
    client.asked_by = {"dag_id": "start_job", "run_id": "manual__1", "task_id": "start"}
    client.starts.start(world.spec(), world.target(), claim_key="start")
    assert client.view.signed_claim(1).claim.asked_by == client.asked_by


def test_retry_after_a_crash_between_submit_and_handle_submits_nothing_twice(world: World):
    client = world.start()
    submit = client.view.board.submit(1)
    client.view.board.put_submit(1, replace(submit.value, state="asked", native_id={}), seen=submit.version)
    client.starts.start(world.spec(), world.target(), claim_key="start")
    assert len(world.drivers) == 1
    assert client.view.board.newest_submit(1) == 1


def test_second_start_while_one_runs_is_refused_and_names_the_holder(world: World):
    client = world.start()
    with pytest.raises(JobRunningError, match=r"generation 1 \(start\) is running"):
        client.starts.start(world.spec(), world.target(), claim_key="other")
    assert client.view.board.generations() == [1]


def test_driver_that_hangs_before_its_first_heartbeat_is_ended_and_started_again_after_half_an_hour(
    world: World, mood: type[Mood]
):
    """It downloads packages from a server that stalls, or reads a mount that hangs: no watchdog runs yet."""
    client = world.start()
    world.kill(1)
    world.moods["v1.py"] = mood(finds_no_room=True)
    client.drivers.ensure_running()
    clock = SleptClock()
    client.view.sightings = Sightings(clock)
    assert isinstance(client.view.status(), Starting)
    clock.sleep(PREPARING_S - 1)
    assert isinstance(client.drivers.ensure_running(), Starting)
    assert len(world.drivers) == 2
    clock.sleep(2)
    assert isinstance(client.view.status(), Dead)
    del world.moods["v1.py"]
    client.drivers.ensure_running()
    assert world.drivers[2].killed.is_set()
    client.drivers.wait_running(1, timeout_s=10)
    world.judge()


def test_second_start_while_one_is_coming_up_is_refused(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(slow_start_s=5)
    client = world.client()
    client.starts.start(world.spec(), world.target(), claim_key="start")
    with pytest.raises(JobRunningError, match="is starting"):
        client.starts.start(world.spec(), world.target(), claim_key="other")


class SlowStore:
    """Lets something happen before its first create."""

    def __init__(self, store: object, meanwhile: Callable[[], object]) -> None:
        self._store, self._meanwhile = store, [meanwhile]

    def __getattr__(self, name: str) -> object:
        if name == "create" and self._meanwhile:
            self._meanwhile.pop()()
        return getattr(self._store, name)


def test_start_that_slept_since_it_was_planned_does_not_begin_the_job_anew(world: World):
    def meanwhile() -> None:
        world.start()
        world.kill(1)

    late = world.client()
    late.view.repository = SavepointRepository(SlowStore(world.store, meanwhile), world.job)
    with pytest.raises(JobRunningError, match="another caller has just claimed generation 1"):
        late.starts.start(world.spec(), world.target(), claim_key="late")
    client = world.client()
    assert client.view.board.generations() == [1]
    client.starts.start(world.spec(), world.target(), claim_key="next")
    world.logs.produce(5)
    world.judge()


def test_start_that_slept_while_the_dead_job_was_started_again_refuses_and_its_clear_goes_by_what_is_then(
    world: World,
):
    """It was planned to go back to a savepoint; the driver that it follows has continued meanwhile."""
    client = world.start()
    world.logs.produce(5)
    _, saved = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    world.kill(1)

    def meanwhile() -> None:
        client.drivers.ensure_running(client.view.settled_status())
        world.until(lambda: isinstance(client.view.status(), Running))

    late, store = world.client(), SlowStore(world.store, meanwhile)
    late.view.board = JobBoard(store, world.job)
    back = FromSavepoint(savepoint_id=saved.savepoint_id, rewind="fork")
    started = late.starts.start(world.spec(), world.target(), claim_key="back", origin=back)
    with pytest.raises(DriverFailedError, match="driver 2 has continued the job since"):
        late.drivers.wait_running(started.generation, timeout_s=10)
    assert isinstance(client.view.status(), Running)
    with pytest.raises(JobRunningError, match=r"generation 1 \(start\) is running"):
        client.starts.start(world.spec(), world.target(), claim_key="back", origin=back)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    again = client.starts.start(world.spec(), world.target(), claim_key="back", origin=back)
    client.drivers.wait_running(again.generation, timeout_s=10)


def test_start_that_another_one_has_followed_is_not_gone_on_with(world: World, mood: type[Mood]):
    world.moods["v2.py"] = mood(fails_at_import=True)
    client = world.start()
    world.kill(1)
    other = client.starts.start(world.spec("v2.py"), world.target(), claim_key="other")
    with pytest.raises(DriverFailedError):
        client.drivers.wait_running(other.generation, timeout_s=10)
    with pytest.raises(JobRunningError, match="begun, was expected to be its newest, found that generation"):
        client.starts.start(world.spec(), world.target(), claim_key="start")
    client.starts.start(world.spec(), world.target(), claim_key="next")
    world.logs.produce(5)
    world.judge()


def test_status_of_a_job_nobody_started_is_never_started(world: World):
    client = world.client()
    assert client.view.status() == NeverStarted()
    with refuses(JOB_UNKNOWN, match="found no job at all"):
        client.requests.request_savepoint("k")


def test_driver_that_dies_at_import_is_an_error_with_its_words_and_its_log(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(fails_at_import=True)
    client = world.client()
    handle = client.starts.start(world.spec(), world.target(), claim_key="start")
    with pytest.raises(DriverFailedError, match=r"no module named nonsense(.|\n)*the end of the log"):
        client.drivers.wait_running(handle.generation, timeout_s=10)


def test_savepoint_and_stop_and_resume_count_every_record_once(world: World):
    client = world.start()
    _, end = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    assert end.outcome == "done"
    assert world.repository.find(end.savepoint_id) is not None
    stopped = client.requests.stop("stop", savepoint=True, timeout_s=10)
    assert isinstance(stopped, Stopped)
    assert isinstance(client.view.status(), Closed)
    world.logs.produce(5)
    origin = FromSavepoint(savepoint_id=stopped.savepoint_id)
    handle = client.starts.start(world.spec(), world.target(), claim_key="second", origin=origin)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    world.judge()


def test_start_from_the_checkpoint_of_a_closed_run_adopts_it(world: World):
    client = world.start()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    world.logs.produce(5)
    handle = client.starts.start(world.spec(), world.target(), claim_key="second", origin=FromCheckpoint())
    assert handle.checkpoint_location == client.view.run(1).claim.checkpoint_location
    world.judge()


def test_savepoint_that_the_job_has_run_past_needs_a_choice(world: World):
    client = world.start()
    _, hot = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    world.logs.produce(5)
    world.until(lambda: len(world.logs.counted) == 15)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    with pytest.raises(RewindError, match="batch 0, and the job continued to batch 1"):
        client.starts.start(
            world.spec(), world.target(), claim_key="s2", origin=FromSavepoint(savepoint_id=hot.savepoint_id)
        )
    origin = FromSavepoint(savepoint_id=hot.savepoint_id, rewind="fork")
    handle = client.starts.start(world.spec(), world.target(), claim_key="s3", origin=origin)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    forked = world.repository.read(client.view.board.takeover_order(handle.generation).savepoint_id)
    assert forked.parent == hot.savepoint_id
    world.until(lambda: client.view.status().heartbeat.queries)
    new_id = client.view.status().heartbeat.queries["orders"].query_id
    assert new_id != client.view.board.heartbeat(1).value.queries["orders"].query_id


def test_savepoint_of_batches_that_were_emitted_again_since_needs_a_choice_though_their_ids_are_equal(
    world: World,
):
    client = world.start()
    _, back = client.requests.wait(client.requests.request_savepoint("back"), timeout_s=10)
    world.logs.produce(5)
    world.until(lambda: len(world.logs.counted) == 15)
    _, left = client.requests.wait(client.requests.request_savepoint("left"), timeout_s=10)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    world.logs.produce(3)
    again = FromSavepoint(savepoint_id=back.savepoint_id, rewind="re-emit")
    handle = client.starts.start(world.spec(), world.target(), claim_key="s2", origin=again)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    world.until(lambda: client.view.status().heartbeat.queries["orders"].batch_id == 1)
    stopped = client.requests.stop("stop again", savepoint=True, timeout_s=10)
    ends = [world.repository.read(one.savepoint_id).query("orders") for one in (left, stopped)]
    assert [(end.query_id, end.batch_id) for end in ends] == [(ends[0].query_id, 1)] * 2
    with pytest.raises(
        RewindError, match=r"left it behind: generation 2 started from savepoint .* \(re-emit\)"
    ):
        client.starts.start(
            world.spec(), world.target(), claim_key="s3", origin=FromSavepoint(savepoint_id=left.savepoint_id)
        )
    origin = FromSavepoint(savepoint_id=stopped.savepoint_id)
    client.drivers.wait_running(
        client.starts.start(world.spec(), world.target(), claim_key="s4", origin=origin).generation,
        timeout_s=10,
    )


def test_batch_ids_are_not_used_again_where_the_sink_remembers_them(world: World):
    client = world.start()
    _, hot = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    taken = world.repository.read(hot.savepoint_id)
    into_files = replace(
        taken,
        savepoint_id="sp-files",
        queries=tuple(replace(query, sink="parquet") for query in taken.queries),
    )
    world.repository.publish(into_files)
    again = FromSavepoint(savepoint_id="sp-files", rewind="re-emit")
    with pytest.raises(SinkSkipsError, match="parquet of query orders") as refused:
        client.starts.start(world.spec(), world.target(), claim_key="s2", origin=again)
    assert refused.value.state_after == "Nothing was started."
    assert client.view.own_claim("s2") is None
    accepted = replace(again, skip_known_batches=True)
    order = client.view.board.takeover_order(
        client.starts.start(world.spec(), world.target(), claim_key="s3", origin=accepted).generation
    )
    assert (order.rewind, order.skip_known_batches) == ("re-emit", True)


@pytest.mark.parametrize(("sink", "has_it_at_once"), [("foreachBatch", True), ("foreach", False)])
def test_fork_is_told_a_number_that_no_batch_of_the_job_had(
    world: World, mood: type[Mood], sink: str, has_it_at_once: bool
):
    world.moods["v1.py"] = mood(sink=sink)
    client = world.start()
    _, hot = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    world.logs.produce(5)
    world.until(lambda: len(world.logs.counted) == 15)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    numbers = []
    for key in ("first", "second"):
        origin = FromSavepoint(savepoint_id=hot.savepoint_id, rewind="fork")
        generation = client.starts.start(
            world.spec(), world.target(), claim_key=key, origin=origin
        ).generation
        order = client.view.board.takeover_order(generation)
        numbers.append(order.unused_from["orders"])
        saved = world.repository.read(order.savepoint_id).queries[0].batch_id
        assert saved == (numbers[-1] if has_it_at_once else 0)
        client.drivers.wait_running(generation, timeout_s=10)
        client.requests.stop(f"stop {key}", savepoint=False, timeout_s=10)
    # Each fork commits one more; this world's driver does not look at the script.
    assert numbers == ([2, 4] if has_it_at_once else [2, 3])
    went_on = client.starts.start(world.spec(), world.target(), claim_key="on", origin=FromCheckpoint())
    assert client.view.board.takeover_order(went_on.generation).unused_from == {}


def test_killed_driver_is_relaunched_under_the_same_generation(world: World):
    client = world.start()
    world.kill(1)
    assert isinstance(client.view.status(), Dead)
    assert isinstance(client.drivers.ensure_running(), Starting)
    world.logs.produce(5)
    client.drivers.wait_running(1, timeout_s=10)
    assert client.view.status().heartbeat.incarnation == 2
    world.judge()


def test_closed_run_is_never_relaunched(world: World):
    client = world.start()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    assert isinstance(client.drivers.ensure_running(), Closed)
    assert len(world.drivers) == 1


def test_request_lost_with_its_driver_is_asked_anew_of_the_next_one(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(slow_takes_s=30)
    client = world.start()
    pending = client.requests.request_savepoint("hot")
    world.until(lambda: client.view.board.request(1).value.state == "accepted")
    world.moods["v1.py"] = mood()
    world.kill(1)
    found, end = client.requests.wait(pending, timeout_s=10)
    assert (pending.incarnation, found.incarnation, end.outcome) == (1, 2, "done")
    assert world.repository.ids() == (end.savepoint_id,)


def test_waiting_times_out_and_finds_the_same_request_again(world: World):
    client = world.start()
    world.deaf = True
    pending = client.requests.request_savepoint("hot")
    with refuses(STEP_TIMEOUT):
        client.requests.wait(pending, timeout_s=0.05)
    world.deaf = False
    assert client.requests.request_savepoint("hot") == pending
    assert client.requests.wait(pending, timeout_s=10)[1].outcome == "done"


def test_take_asked_of_a_script_that_ends_by_itself_is_not_waited_for(world: World):
    """Found by the differential run: seeds 100 and 206."""
    client = world.start()
    world.deaf = True
    pending = client.requests.request_savepoint("hot")
    world.script_ends = True
    with pytest.raises(JobNotRunningError, match="has closed"):
        client.requests.wait(pending, timeout_s=10)


def test_second_request_is_busy_and_a_stop_supersedes_a_take(world: World):
    client = world.start()
    world.deaf = True
    client.requests.request_savepoint("hot")
    with pytest.raises(RequestBusyError):
        client.requests.request_savepoint("other")
    client.requests.request_stop("stop", savepoint=False)
    assert client.view.board.request(1).value.command == "stop"


def test_cancelled_stop_leaves_the_job_running(world: World):
    client = world.start()
    world.deaf = True
    pending = client.requests.request_stop("stop", savepoint=True)
    assert client.requests.cancel(pending) == Withdrawn()
    world.deaf = False
    world.until(lambda: isinstance(client.requests.poll(pending), Ended))
    assert client.requests.poll(pending).outcome == "cancelled"
    assert isinstance(client.view.status(), Running)


def test_accepted_stop_cannot_be_cancelled(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(slow_takes_s=0.3)
    client = world.start()
    pending = client.requests.request_stop("stop", savepoint=False)
    world.until(lambda: client.view.board.request(1).value.state == "accepted")
    assert client.requests.cancel(pending) == TooLate()


def test_cancel_closes_an_empty_slot_against_a_late_sender(world: World):
    client = world.start()
    late = request_for("stop", "stop_with_savepoint", 1, 1)
    assert client.requests.cancel(late) == Withdrawn()
    assert client.requests.request_stop("stop", savepoint=True) == late
    assert client.requests.poll(late).outcome == "cancelled"
    assert isinstance(client.view.status(), Running)


def test_notice_of_a_stop_takes_no_slot_that_is_in_use_and_keeps_none_from_being_used(
    world: World, mood: type[Mood]
):
    world.moods["v1.py"] = mood(slow_takes_s=0.3)
    client = world.start()

    def attends() -> float:
        return client.view.board.request(1).value.attend_s

    client.requests.ask_to_attend(1, 60)
    assert attends() == 60
    pending = client.requests.request_savepoint("s1")
    client.requests.ask_to_attend(1, 60)
    assert attends() == 0, "the savepoint has not ended"
    _, ended = client.requests.wait(pending, timeout_s=10)
    assert ended.outcome == "done"
    client.requests.ask_to_attend(1, 60)
    assert attends() == 60
    assert isinstance(client.requests.stop("stop", savepoint=True, timeout_s=10), Stopped)


def test_sender_that_slept_between_look_and_write_is_refused(world: World):
    client = world.start()
    late = request_for("stop", "stop_with_savepoint", 1, 1)
    with pytest.raises(RequestBusyError):
        client.requests.request_stop("stop", savepoint=True, confirm=lambda: client.requests.cancel(late))
    assert isinstance(client.view.status(), Running)


def test_stop_is_believed_from_closed_only(world: World):
    client = world.start()
    world.deaf = True
    pending = client.requests.request_stop("stop", savepoint=False)
    world.drivers[1].end(client.view.board.request(1).value, "done")
    assert not isinstance(client.requests.poll(pending), Ended)


def test_stop_whose_savepoint_fails_is_an_error_and_leaves_no_savepoint(world: World):
    client = world.start()
    world.takes_fail = True
    with pytest.raises(RequestFailedError, match="the disk is full"):
        client.requests.stop("stop", savepoint=True, timeout_s=10)
    assert world.repository.ids() == ()


def test_failure_that_may_pass_is_asked_anew_by_a_retry_while_the_job_runs_on(world: World):
    client = world.start()
    world.store_throttles = True
    with pytest.raises(RequestPostponedError, match=r"SlowDown.* The job is as follows: .* is running"):
        client.requests.stop("stop", savepoint=True, timeout_s=10)
    assert RequestPostponedError.retryable
    with pytest.raises(RequestPostponedError):
        client.requests.finish_savepoint(client.requests.request_savepoint("hot"), timeout_s=10)
    world.store_throttles = False
    assert (
        client.requests.finish_savepoint(client.requests.request_savepoint("hot"), timeout_s=10) is not None
    )
    stopped = client.requests.stop("stop", savepoint=True, timeout_s=10)
    assert isinstance(stopped, Stopped)
    assert stopped.savepoint_id is not None
    assert stopped.savepoint_error is None


def test_failure_that_lasted_is_asked_anew_by_who_has_corrected_it_and_clears_the_task(world: World):
    client = world.start()
    world.takes_fail = True
    for ask in (lambda: client.requests.stop("stop", savepoint=True, timeout_s=10), lambda: taken(client)):
        with pytest.raises(RequestFailedError, match="the disk is full") as failed:
            ask()
        assert not failed.value.retryable
    world.takes_fail = False
    assert taken(client)
    stopped = client.requests.stop("stop", savepoint=True, timeout_s=10)
    assert isinstance(stopped, Stopped)
    assert stopped.savepoint_error is None


def test_failure_that_comes_late_of_what_an_earlier_try_asked_is_asked_anew(world: World):
    """The store refused the driver's answer too, and the caller has left; a person corrects it and clears."""
    client = world.start()
    world.takes_fail = True
    world.store.refuse(denied="create orders-job/reports/")
    sent = client.requests.request_stop("stop", savepoint=True)
    world.until(lambda: world.drivers[1].agent.inbox._owed)
    world.takes_fail = False
    world.store.refuse()
    stopped = client.requests.stop("stop", savepoint=True, timeout_s=10)
    assert isinstance(stopped, Stopped)
    assert stopped.savepoint_id != sent.savepoint_id is not None


def taken(client: JobClient) -> str:
    pending = client.requests.request_savepoint("hot")
    return client.requests.finish_savepoint(pending, timeout_s=10).savepoint_id


def test_stop_closes_the_job_without_a_savepoint_where_that_was_chosen(world: World):
    client = world.start()
    world.takes_fail = True
    stopped = client.requests.stop(
        "stop", savepoint=True, timeout_s=10, mode=CutMode(on_failed_savepoint="close")
    )
    assert isinstance(stopped, Stopped)
    assert stopped.savepoint_id is None
    assert "the disk is full" in str(stopped.savepoint_error)
    assert isinstance(client.view.status(), Closed)


def test_choice_for_a_savepoint_that_fails_must_be_one():
    for wrong in ({"on_failed_savepoint": "shrug"}, {"alignment": "aligned", "cut_id": "c"}):
        with pytest.raises(BadInputError, match="on_failed_savepoint"):
            CutMode(**{"on_failed_savepoint": "close", **wrong})  # type: ignore[arg-type]


def test_driver_that_ends_without_a_word_while_it_starts_is_lost_and_the_same_start_goes_on(
    world: World, mood: type[Mood]
):
    world.moods["v1.py"] = mood(slow_start_s=60)
    client = world.client()
    handle = client.starts.start(world.spec(), world.target(), claim_key="start")
    world.until(lambda: client.view.board.incarnations(handle.generation))
    world.kill(handle.generation)
    with pytest.raises(DriverLostError, match="ended without reporting why") as lost:
        client.drivers.wait_running(handle.generation, timeout_s=10)
    assert lost.value.retryable
    world.moods["v1.py"] = mood()
    again = client.starts.start(world.spec(), world.target(), claim_key="start")
    assert again.generation == handle.generation
    assert isinstance(client.drivers.wait_running(again.generation, timeout_s=10), Running)


def test_job_that_still_starts_is_stopped_and_the_same_start_begins_anew(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(slow_start_s=0.3)
    client = world.client()
    handle = client.starts.start(world.spec(), world.target(), claim_key="start")
    assert isinstance(client.view.status(), Starting)
    client.requests.ask_to_stop(key_of_kill("start"), started_by="start")
    world.until(lambda: isinstance(client.view.status(), Closed))
    again = client.starts.start(world.spec(), world.target(), claim_key="start")
    assert again.generation == handle.generation + 1
    assert isinstance(client.drivers.wait_running(again.generation, timeout_s=10), Running)


def test_start_that_is_killed_before_it_has_claimed_anything_stops_no_run_of_another_one(world: World):
    client = world.start()
    client.requests.ask_to_stop(key_of_kill("a second start"), started_by="a second start")
    assert world.board.request(1) is None
    assert isinstance(client.view.status(), Running)


def test_stop_of_a_job_that_comes_up_while_it_is_looked_at_stops_it(world: World, mood: type[Mood]):
    world.logs.produce(10)
    world.moods["v1.py"] = mood(slow_start_s=0.5)
    client = world.client()
    spec = replace(world.spec(), lease_s=60)  # its second heartbeat is that of its takeover
    handle = client.starts.start(spec, world.target(), claim_key="start")
    world.until(lambda: world.board.heartbeat(handle.generation))
    client.view.sightings = Sightings()  # as another process, which has not seen it change
    assert isinstance(client.view.status(), Starting)
    assert isinstance(client.requests.stop("stop", savepoint=True, timeout_s=10), Stopped)
    assert isinstance(client.view.status(), Closed)


def test_savepoint_that_exists_without_a_closed_run_is_not_a_stop(world: World):
    client = world.start()
    world.deaf = True
    pending = client.requests.request_stop("stop", savepoint=True)
    world.drivers[1].take(client.view.board.request(1).value)
    world.kill(1)
    outcome = client.requests.stop("stop", savepoint=True, timeout_s=10)
    assert isinstance(outcome, SavepointOnly)
    assert outcome.savepoint_id == pending.savepoint_id


def test_stopped_job_is_saved_by_the_caller_and_goes_on(world: World):
    client = world.start()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    manifest = take_stopped(client.view, "nightly")
    assert manifest.queries[0].batch_id == 0
    assert manifest.queries[0].sink == "kafka", "as its driver said"
    assert manifest.queries[0].sinks == written_by(1)
    assert take_stopped(client.view, "nightly") == manifest
    world.logs.produce(3)
    origin = FromSavepoint(savepoint_id=manifest.savepoint_id)
    client.starts.start(world.spec(), world.target(), claim_key="second", origin=origin)
    world.judge()


def test_state_files_that_a_savepoint_has_are_not_read_again_for_a_stopped_job(world: World):
    client = world.start()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    checkpoint, content = world.drivers[1].checkpoint, io.BytesIO()
    name = "000008-f29bb67d-199d-41e8-85e1-8b45de7a81bb.sst"
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": [{"dfsSstFileName": name}]}))
    checkpoint.write("state/0/0/1.zip", content.getvalue())
    checkpoint.write(f"state/0/0/SSTs/{name}", b"state")
    first = take_stopped(client.view, "monday").queries[0].file(f"state/0/0/SSTs/{name}")
    assert first is not None
    checkpoint.write(f"state/0/0/SSTs/{name}", b"other")  # Spark never does: whoever reads it would see
    assert take_stopped(client.view, "tuesday").queries[0].file(f"state/0/0/SSTs/{name}") == first


def test_retry_of_a_caller_that_was_given_up_while_it_was_frozen_takes_under_another_id(world: World):
    client = world.start()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    tombstoned = new_savepoint_id(client.view.job, "nightly")
    client.view.repository.tombstone(tombstoned, "its intent was not renewed")
    manifest = take_stopped(client.view, "nightly")
    assert manifest.savepoint_id != tombstoned
    assert take_stopped(client.view, "nightly") == manifest
    client.view.repository.dispose_with_tombstone(manifest.savepoint_id, "that one froze too")
    assert take_stopped(client.view, "nightly").savepoint_id not in {tombstoned, manifest.savepoint_id}


def test_running_job_is_not_saved_by_the_caller(world: World):
    client = world.start()
    with pytest.raises(JobRunningError, match="Ask its driver"):
        take_stopped(client.view, "nightly")


def test_start_from_the_checkpoint_of_a_killed_run_copies_it_under_an_offline_lock(world: World):
    client = world.start()
    world.kill(1)
    world.logs.produce(4)
    handle = client.starts.start(
        world.spec("v2.py"), world.target(), claim_key="second", origin=FromCheckpoint()
    )
    assert handle.generation == 3
    assert client.view.run(2).claim.claim_key == "lock:second/checkpoint"
    world.judge()


def test_batch_that_was_under_way_is_told_to_who_goes_on_behind_a_savepoint_of_the_dead_job(world: World):
    client = world.start()
    world.until(lambda: len(world.logs.counted) == 10)
    world.kill(1)
    checkpoint = world.drivers[1].checkpoint
    checkpoint.write("offsets/1", checkpoint.read("offsets/0"))
    take_stopped(client.view, "nightly")  # says that the run has closed
    handle = client.starts.start(world.spec(), world.target(), claim_key="second", origin=FromCheckpoint())
    order = client.view.board.takeover_order(handle.generation)
    assert world.repository.read(order.savepoint_id).queries[0].planned_offsets is not None
    world.logs.produce(4)
    world.judge()


def killed_within_a_batch(world: World) -> tuple[JobClient, str]:
    """Return the client of a job that died with batch 1 planned, and a savepoint from before that."""
    client = world.start()
    _, hot = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    world.kill(1)
    checkpoint = world.drivers[1].checkpoint
    checkpoint.write("offsets/1", checkpoint.read("offsets/0"))
    return client, hot.savepoint_id


def test_savepoint_without_the_batch_that_sinks_may_have_written_in_part_cannot_go_on(world: World):
    client, hot = killed_within_a_batch(world)
    since = take_stopped(
        client.view, "nightly"
    )  # says that the run has closed, at the batch of both savepoints
    with pytest.raises(
        RewindError, match=f"{hot} was expected to hold batch 1 of query orders, which a driver"
    ):
        client.starts.start(
            world.spec(), world.target(), claim_key="s2", origin=FromSavepoint(savepoint_id=hot)
        )
    origin = FromSavepoint(savepoint_id=since.savepoint_id)
    handle = client.starts.start(world.spec(), world.target(), claim_key="s3", origin=origin)
    planned = world.repository.read(client.view.board.takeover_order(handle.generation).savepoint_id).queries[
        0
    ]
    assert planned.planned_offsets is not None
    world.logs.produce(4)
    world.judge()


@pytest.mark.parametrize("sink", ["kafka", "parquet", "delta", "foreachBatch"])
def test_id_of_a_planned_batch_is_used_for_no_other_rows_by_going_on_whatever_the_sink(
    world: World, mood: type[Mood], sink: str
):
    world.moods["v1.py"] = mood(sink=sink)
    client, hot = killed_within_a_batch(world)
    take_stopped(client.view, "nightly")
    origin = FromSavepoint(savepoint_id=hot)
    with pytest.raises(RewindError, match="batch 1 of query orders, which a driver had planned"):
        client.starts.start(world.spec(), world.target(), claim_key="s2", origin=origin)


@pytest.mark.parametrize("rewind", ["re-emit", "fork"])
def test_batch_that_a_rewound_run_left_half_written_is_not_the_one_that_its_savepoint_holds(
    world: World, rewind: Rewind
):
    client, hot = killed_within_a_batch(world)
    back = take_stopped(client.view, "back").savepoint_id if rewind == "fork" else hot
    origin = FromSavepoint(savepoint_id=back, rewind=rewind)
    generation = client.starts.start(world.spec(), world.target(), claim_key="s2", origin=origin).generation
    client.drivers.wait_running(generation, timeout_s=10)
    world.until(lambda: client.view.status().heartbeat.queries)
    world.kill(generation)
    again = world.drivers[2].checkpoint
    again.write("offsets/1", again.read("offsets/0"))
    take_stopped(client.view, "again")  # says that the run has closed, at the batch of the savepoint
    restored = FromSavepoint(savepoint_id=client.view.board.takeover_order(generation).savepoint_id)
    back = rf"before it died \(generation {generation} started from .* \({rewind}\)\), found no offsets"
    with pytest.raises(RewindError, match=back):
        client.starts.start(world.spec(), world.target(), claim_key="s3", origin=restored)


def test_batch_that_is_planned_in_a_savepoint_is_not_the_one_of_a_run_that_went_back_to_another_one(
    world: World,
):
    client, hot = killed_within_a_batch(world)
    planned = take_stopped(client.view, "back").savepoint_id
    origin = FromSavepoint(savepoint_id=hot, rewind="re-emit")
    generation = client.starts.start(world.spec(), world.target(), claim_key="s2", origin=origin).generation
    client.drivers.wait_running(generation, timeout_s=10)
    world.until(lambda: client.view.status().heartbeat.queries)
    world.kill(generation)
    again = world.drivers[2].checkpoint
    again.write("offsets/1", again.read("offsets/0"))
    take_stopped(client.view, "again")
    back = rf"before it died \(generation {generation} started from savepoint {hot} \(re-emit\)\)"
    with pytest.raises(RewindError, match=back):
        client.starts.start(
            world.spec(), world.target(), claim_key="s3", origin=FromSavepoint(savepoint_id=planned)
        )


def test_batch_that_is_planned_in_a_savepoint_is_the_same_for_whoever_starts_from_it(
    world: World, mood: type[Mood]
):
    client, _ = killed_within_a_batch(world)
    world.moods["v1.py"] = mood(hangs_in_batch=True)
    back = take_stopped(client.view, "back").savepoint_id
    origin = FromSavepoint(savepoint_id=back, rewind="re-emit")
    generation = client.starts.start(world.spec(), world.target(), claim_key="s2", origin=origin).generation
    client.drivers.wait_running(generation, timeout_s=10)
    world.until(lambda: client.view.status().heartbeat.queries)
    world.kill(generation)
    take_stopped(client.view, "again")
    world.moods["v1.py"] = mood()
    client.starts.start(world.spec(), world.target(), claim_key="s3", origin=FromSavepoint(savepoint_id=back))
    world.logs.produce(4)
    world.judge()


def test_each_driver_gets_the_logins_its_overrides_name_as_they_are_then(world: World):
    spec = world.spec()
    rule = KafkaOverride(role="source", servers="old:9092", options={CONNECTION: "kafka_old"})
    passwords = ["first", "second"]
    client = world.client()
    client.kafka_logins = lambda names: {"LOGINS": f"{','.join(names)}={passwords[0]}"}
    generation = client.starts.start(
        replace(spec, overrides=(rule,)), world.target(), claim_key="s"
    ).generation
    client.drivers.wait_running(generation, timeout_s=10)
    passwords.pop(0)
    world.kill(1)
    client.drivers.ensure_running()
    client.drivers.wait_running(generation, timeout_s=10)
    assert [one.env["LOGINS"] for one in world.submissions] == ["kafka_old=first", "kafka_old=second"]
    assert not any(b"second" in world.store.read(info.key) for info in world.store.list())


def test_login_that_the_caller_does_not_have_is_refused_before_anything_is_claimed(world: World):
    rule = KafkaOverride(role="source", servers="old:9092", options={CONNECTION: "kafka_old"})
    with refuses(LOGIN_MISSING, match="kafka_old"):
        world.client().starts.start(replace(world.spec(), overrides=(rule,)), world.target(), claim_key="s")
    assert world.client().view.board.generations() == []


def test_stop_of_a_run_that_ended_otherwise_says_that_it_made_no_savepoint(world: World):
    client = world.start()
    world.deaf = True  # the script is faster
    pending = client.requests.request_stop("stop", savepoint=True)
    world.script_ends = True
    _, end = client.requests.wait(pending, timeout_s=10)
    assert (end.outcome, end.savepoint_id) == ("done", None)
    assert end.savepoint_error == "The run was closed by the script."
