from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks import deferral
from airflow_flinkstyle.hooks.airflow_versions import AirflowException, AirflowFailException
from airflow_flinkstyle.hooks.assets import SAVEPOINTS
from airflow_flinkstyle.hooks.failures import airflow_errors, failure_of
from airflow_flinkstyle.hooks.keys import request_key
from airflow_flinkstyle.jobs.errors import RequestBusyError
from airflow_flinkstyle.jobs.status import Closed, Running, Starting
from airflow_flinkstyle.operators import (
    StartStreamingJobOperator,
    StopStreamingJobOperator,
    TakeSavepointOperator,
    UpgradeStreamingJobOperator,
    VerifySavepointOperator,
)
from airflow_flinkstyle.savepoint.files.verified import record_damaged
from airflow_flinkstyle.storage.errors import StoreDeniedError
from testbed.waiting import PATIENCE_S
from tests.airflow_names import TaskDeferred
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from types import SimpleNamespace

    from tests.unit.jobs.conftest import Mood, World

pytestmark = pytest.mark.airflow
LINK = "_link_SavepointLink"


def start(world: World, **kwargs: object) -> StartStreamingJobOperator:
    return StartStreamingJobOperator(task_id="start", job=world.job, script="v1.py", **kwargs)


def take(world: World, **kwargs: object) -> TakeSavepointOperator:
    return TakeSavepointOperator(task_id="take", job=world.job, **kwargs)


def stop(world: World, **kwargs: object) -> StopStreamingJobOperator:
    return StopStreamingJobOperator(task_id="stop", job=world.job, **kwargs)


def test_errors_nobody_can_retry_away_fail_the_task_at_once():
    with pytest.raises(AirflowFailException, match="BAD_INPUT: a\nNow: b\nNext: c"), airflow_errors():
        raise BadInputError("a", "b", "c")


def test_errors_that_may_pass_keep_the_tasks_retries():
    with pytest.raises(AirflowException, match="REQUEST_BUSY") as caught, airflow_errors():
        raise RequestBusyError("a", "b", "c")
    assert not isinstance(caught.value, AirflowFailException)


def test_task_ends_with_the_error_as_one_block_behind_what_else_there_is(
    caplog: pytest.LogCaptureFixture,
):
    problem = "Expected a batch, found that it failed.\nTraceback of the driver"
    error = BadInputError(problem, "The old version runs again.\nEnd of a log", "Mend it.")
    error.__cause__ = ValueError("of the cause")
    with pytest.raises(AirflowFailException) as caught, airflow_errors():
        raise error
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.splitlines()[-3:] == [
        "airflow.sdk.exceptions.AirflowFailException: BAD_INPUT: Expected a batch, found that it failed.",
        "Now: The old version runs again.",
        "Next: Mend it.",
    ]
    (record,) = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert record.getMessage() == "Details of what follows:\nTraceback of the driver\nEnd of a log"
    assert "of the cause" not in shown
    assert shown.count("Traceback (most recent call last)") == 1


def test_savepoint_in_a_local_root_has_no_link_and_the_log_says_why(
    connections: SimpleNamespace, caplog: pytest.LogCaptureFixture
):
    context = a_context()
    with caplog.at_level(logging.INFO):
        StopStreamingJobOperator(task_id="stop", job="orders").show_savepoint(context, "sp-1")
    assert context["ti"].xcoms == {}
    assert "Savepoint sp-1 has no link: a browser opens no file of the machine" in caplog.text
    assert "flinkstyle savepoint show sp-1 --job orders" in caplog.text


def test_savepoint_has_a_link_to_the_page_that_shows_its_connection(
    connections: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/team/")
    monkeypatch.setenv("AIRFLOW__FLINKSTYLE__PAGE", "flinkstyle_default")
    connections.set("flinkstyle_other", "flinkstyle", connections.extra)
    for conn_id, shown in (("flinkstyle_default", True), ("flinkstyle_other", False)):
        context = a_context()
        stop = StopStreamingJobOperator(task_id="stop", job="orders", flinkstyle_conn_id=conn_id)
        stop.show_savepoint(context, "sp-1")
        page = "https://airflow.example/team/plugin/savepoints#/flinkstyle_default/orders/sp-1"
        assert context["ti"].xcoms == ({LINK: page} if shown else {})


def test_start_returns_once_the_driver_runs_and_a_retry_finds_the_same_run(world: World):
    context = a_context("start")
    started = start(world).execute(context)
    assert started["generation"] == 1
    assert isinstance(world.client().view.status(), Running)
    assert start(world).execute(context) == started
    assert world.alive() == [1]


def test_second_start_by_another_run_is_refused(world: World):
    start(world).execute(a_context("start"))
    with pytest.raises(AirflowFailException, match="JOB_RUNNING"):
        start(world).execute(a_context("start", run_id="another"))


def test_start_records_script_arguments_and_settings(world: World):
    start(world, args="--x 1", conf={"spark.a": True}, kafka_overrides=[]).execute(a_context("start"))
    spec = world.board.claim(1).launch["spec"]
    assert (spec["script"], spec["args"], spec["conf"]) == ("v1.py", ["--x", "1"], {"spark.a": "true"})


def test_job_started_again_by_the_same_operator_goes_on_where_it_was(
    world: World, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    world.start()
    stop(world, savepoint=False).execute(a_context("stop"))
    at = world.board.heartbeat(1).value.batches()["orders"]
    world.logs.produce(5)
    started = start(world).execute(a_context("start", run_id="the next one"))
    assert started["checkpoint_location"] == world.board.claim(1).checkpoint_location
    world.until(lambda: world.board.heartbeat(2).value.batches()["orders"] == at + 1)
    assert f"in the checkpoint of generation 1, which closed at batch {at} of orders" in caplog.text
    world.judge()


def test_fresh_start_over_a_history_names_what_it_gives_up_and_never_twice_the_same(world: World):
    world.start()
    stop(world).execute(a_context("stop"))
    with pytest.raises(AirflowFailException, match=r"(?s)HISTORY.*discard_history='generation 1'"):
        start(world, start_from="fresh").execute(a_context("start"))
    anew = start(world, start_from="fresh", discard_history="generation 1")
    context = a_context("start", run_id="Monday")
    started = anew.execute(context)
    assert started["checkpoint_location"] != world.board.claim(1).checkpoint_location
    assert anew.execute(context) == started, "a retry finds its own start"
    world.until(lambda: world.board.heartbeat(2).value.batches())
    stop(world).execute(a_context("stop", run_id="Monday"))
    with pytest.raises(AirflowFailException, match=r"(?s)HISTORY.*discard_history='generation 2'"):
        anew.execute(a_context("start", run_id="Tuesday"))


def test_first_start_that_would_leave_a_checkpoint_behind_fails_at_once_until_that_is_named(
    world: World, mood: type[Mood]
):
    own = "s3a://shop/check points/orders"
    world.moods["v1.py"] = mood(own_checkpoint=own)
    context = a_context("start")
    with pytest.raises(AirflowFailException) as refused:
        start(world).execute(context)
    code, now, following = str(refused.value).splitlines()
    assert code.startswith("CHECKPOINT_FOUND: Query orders of job")
    assert now.startswith("Now: No record was read")
    assert f"leave_checkpoints=['{own}']" in following
    started = start(world, leave_checkpoints=[own]).execute(context)
    assert started["generation"] == 2
    assert start(world, leave_checkpoints=[own]).execute(context) == started
    assert world.board.claim(2).leave_checkpoints == (own,)


@pytest.mark.parametrize(
    ("said", "only"),
    [
        ({"savepoint_id": "sp-1"}, "savepoint"),
        ({"start_from": "checkpoint", "discard_history": "generation 1"}, "fresh"),
    ],
)
def test_argument_of_another_way_to_start_is_refused_and_not_left_out(
    world: World, said: dict[str, str], only: str
):
    with pytest.raises(AirflowFailException, match=f"with start_from='{only}' only"):
        start(world, **said).execute(a_context("start"))
    assert world.board.generations() == []


def test_start_from_latest_without_a_savepoint_is_refused(world: World):
    with pytest.raises(AirflowFailException, match="and no savepoint"):
        start(world, start_from="savepoint", savepoint_id="latest").execute(a_context("start"))


def test_choices_that_do_not_exist_are_refused_and_no_default_is_taken_instead(world: World):
    context = a_context("start")
    with pytest.raises(AirflowFailException, match="Expected start_from to be one of last_state, checkpoint"):
        start(world, start_from="anew").execute(context)
    with pytest.raises(AirflowFailException, match="Expected claim_mode to be one of no_claim, claim"):
        start(world, start_from="savepoint", savepoint_id="sp", claim_mode="claims").execute(context)
    start(world).execute(context)
    stop(world, savepoint=False).execute(a_context("stop"))
    with pytest.raises(AirflowFailException, match="aligned or none was expected, found 'alinged'"):
        take(world, alignment="alinged").execute(a_context("take"))
    assert world.repository.ids() == ()


def test_start_from_the_savepoint_of_a_stop_counts_every_record_once(world: World):
    world.start(records=10)
    context = a_context("stop")
    stopped = stop(world).execute(context)
    world.logs.produce(5)
    started = start(world, start_from="savepoint", savepoint_id="latest")
    context = a_context("start")
    started.execute(context)
    assert context["ti"].xcoms[LINK].endswith(f"/{world.job}/savepoints/{stopped['savepoint_id']}.json")
    world.judge()


def test_stop_says_where_it_stopped_and_shows_its_savepoint(world: World):
    world.start()
    context = a_context("stop")
    stopped = stop(world).execute(context)
    assert stopped["batches"] == {"orders": world.board.heartbeat(1).value.queries["orders"].batch_id}
    assert context["ti"].xcoms["savepoint_id"] == stopped["savepoint_id"]
    assert isinstance(world.client().view.status(), Closed)
    assert stop(world).execute(context) == stopped, "a retry finds its own stop"


def test_plain_stop_takes_no_savepoint(world: World):
    world.start()
    context = a_context("stop")
    assert stop(world, savepoint=False).execute(context)["savepoint_id"] is None
    assert context["ti"].xcoms == {}


def test_alignment_and_drain_are_asked_of_the_driver(world: World):
    world.start()
    taken = take(world, alignment="aligned").execute(a_context("take"))
    assert world.repository.read(taken).alignment == "aligned"
    stop(world, drain=True).execute(a_context("stop"))
    request = world.board.request(1).value
    assert (request.command, request.alignment, request.drain) == ("stop_with_savepoint", "aligned", True)


def test_aligned_savepoint_survives_the_triggerer(world: World):
    world.start()
    with pytest.raises(TaskDeferred) as deferred:
        take(world, alignment="aligned", deferrable=True).execute(a_context("take"))
    request = deferred.value.trigger.request
    taken = take(world, deferrable=True).execute_complete(a_context("take"), {"request": request})
    assert world.repository.read(taken).alignment == "aligned"


def test_savepoint_without_a_stop_fails_the_task_and_hands_the_savepoint_on(world: World):
    world.start()
    world.deaf = True
    context = a_context("stop")
    pending = world.client().requests.request_stop(request_key(context), savepoint=True)
    world.drivers[1].take(world.board.request(1).value)
    world.kill(1)
    with pytest.raises(AirflowException, match=r"STOP_INCOMPLETE: .* did not stop") as caught:
        stop(world).execute(context)
    assert not isinstance(caught.value, AirflowFailException), "a retry stops the next driver"
    assert context["ti"].xcoms["savepoint_id"] == pending.savepoint_id
    assert str(pending.savepoint_id) in str(caught.value)


def test_savepoint_of_a_running_job_is_waited_for_in_the_triggerer(world: World):
    world.start()
    context = a_context("take")
    with pytest.raises(TaskDeferred) as deferred:
        take(world, deferrable=True).execute(context)
    request = deferred.value.trigger.request
    assert request["savepoint_id"] in context["ti"].xcoms[LINK], "the link shows while it is taken"
    taken = take(world, deferrable=True).execute_complete(context, {"request": request})
    assert taken == request["savepoint_id"]
    assert world.repository.find(taken) is not None


def test_savepoint_that_is_taken_within_seconds_does_not_defer(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deferral, "AT_ONCE_S", 60.0)
    world.start()
    taken = take(world, deferrable=True).execute(a_context("take"))
    assert world.repository.ids() == (taken,)


def test_savepoint_without_deferring_is_waited_for_in_the_task(world: World):
    world.start()
    taken = take(world, deferrable=False).execute(a_context("take"))
    assert world.repository.ids() == (taken,)


def test_triggerer_that_waited_too_long_is_an_error_that_says_what_to_do(world: World):
    waits = take(world, deferrable=True)
    with pytest.raises(AirflowException, match=r"(?s)STEP_TIMEOUT.*of job orders-job.*A retry finds") as late:
        waits.resume_execution("__fail__", {"error": "Trigger timeout"}, a_context("take"))
    assert not isinstance(late.value, AirflowFailException), "its retries stay"


def test_rotation_saves_a_job_that_has_stopped_once(world: World):
    def rotate(run_id: str) -> str:
        return take(world, unless_saved=True).execute(a_context("take", run_id=run_id))

    client = world.start()
    running = rotate("1")
    world.logs.produce(3)
    world.until(lambda: client.view.status().heartbeat.batches()["orders"] > 0)
    client.requests.stop("plain", savepoint=False, timeout_s=10)
    at_rest = rotate("2")
    assert at_rest != running, "it has committed more since"
    runs, events = len(world.board.generations()), a_context("take", run_id="3")
    assert take(world, unless_saved=True).execute(events) == rotate("4") == at_rest
    assert len(world.board.generations()) == runs, "nobody holds a job that need not be saved again"
    assert events["outlet_events"][SAVEPOINTS].asset_alias_events == []
    start(world, start_from="checkpoint").execute(a_context("start", run_id="5"))
    assert rotate("6") != at_rest, "a job that runs is saved each time"
    of_the_stop = stop(world).execute(a_context("stop", run_id="7"))["savepoint_id"]
    assert rotate("8") == of_the_stop


def test_rotation_saves_a_stopped_job_anew_whose_savepoint_is_damaged(world: World):
    world.start()
    damaged = stop(world).execute(a_context("stop", run_id="1"))["savepoint_id"]
    record_damaged(world.repository, damaged, "full", "a file was altered")
    with pytest.raises(AirflowException, match="a file was altered"):
        VerifySavepointOperator(task_id="verify", job=world.job, savepoint_id=damaged).execute(
            a_context("verify")
        )
    taken = take(world, unless_saved=True).execute(a_context("take", run_id="2"))
    assert taken != damaged
    assert take(world, unless_saved=True).execute(a_context("take", run_id="3")) == taken


def test_savepoint_of_a_stopped_job_is_taken_by_the_task_itself(
    world: World, capfd: pytest.CaptureFixture[str]
):
    world.start()
    stop(world, savepoint=False).execute(a_context("stop"))
    taken = take(world, deferrable=True).execute(a_context("take"))
    assert world.repository.read(taken).queries[0].name == "orders"
    assert re.search(r"\d of \d+ files, 0\.0 of 0\.0 MiB", capfd.readouterr().out)


def test_savepoint_of_a_job_nobody_started_is_refused(world: World):
    with pytest.raises(
        AirflowFailException, match=r"JOB_UNKNOWN: Expected a job orders-job in .*"
    ) as refused:
        take(world).execute(a_context("take"))
    assert "start" not in str(refused.value).lower(), "a mistyped name must not be started"


def test_connection_that_is_missing_is_named_and_not_tried_again(connections: SimpleNamespace):
    for conn_id in ("flinkstyle_nowhere", "spark_nowhere"):
        known = {"flinkstyle_conn_id": conn_id} if "flinkstyle" in conn_id else {"spark_conn_id": conn_id}
        started = StartStreamingJobOperator(task_id="start", job="orders", script="v1.py", **known)
        with pytest.raises(AirflowFailException, match=f"CONNECTION_MISSING: A connection {conn_id}"):
            started.execute(a_context("start"))


def test_savepoint_lost_with_its_driver_is_asked_anew_of_the_next_one(world: World):
    world.start()
    world.deaf = True
    with pytest.raises(TaskDeferred) as deferred:
        take(world, deferrable=True).execute(a_context("take"))
    lost = deferred.value.trigger.request
    world.kill(1)
    world.deaf = False
    taken = take(world).execute_complete(a_context("take"), {"request": lost})
    assert taken != lost["savepoint_id"]
    assert world.repository.ids() == (taken,)


def test_failure_seen_by_the_triggerer_fails_the_task_with_its_words(world: World):
    failure = failure_of(StoreDeniedError("No such key.", "Nothing was changed.", "Correct the key."))
    with pytest.raises(AirflowFailException) as caught:
        take(world).execute_complete(a_context("take"), {"failure": failure})
    assert str(caught.value).splitlines() == [
        "STORE_DENIED: No such key.",
        "Now: Nothing was changed.",
        "Next: Correct the key.",
    ]


def test_killing_the_start_task_leaves_the_stream_alone_unless_asked(world: World):
    operator = start(world)
    operator.execute(a_context("start"))
    operator.on_kill()
    time.sleep(0.2)
    assert isinstance(world.client().view.status(), Running)

    asked = start(world, stop_on_kill=True)
    asked.execute(a_context("start"))
    asked.on_kill()
    world.until(lambda: isinstance(world.client().view.status(), Closed))


def test_killing_the_start_task_stops_a_job_that_still_starts(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(slow_start_s=0.5)
    operator, killed = start(world, stop_on_kill=True), threading.Event()

    def execute() -> None:
        with contextlib.suppress(AirflowFailException):  # unless it was running for a moment
            operator.execute(a_context("start"))
        killed.set()

    threading.Thread(target=execute, daemon=True).start()
    world.until(lambda: world.drivers)
    world.until(lambda: isinstance(world.client().view.status(), Starting))
    operator.on_kill()
    world.until(lambda: isinstance(world.client().view.status(), Closed))
    assert killed.wait(PATIENCE_S)


def test_upgrade_runs_the_new_version_and_a_retry_finds_it(world: World):
    world.start()
    operator = UpgradeStreamingJobOperator(
        task_id="up", job=world.job, script="v2.py", first_commit_timeout_s="1", leave_checkpoints=["/own"]
    )
    context = a_context("up")
    world.logs.produce(5)
    report = operator.execute(context)
    claim = world.board.claim(report["generation"])
    assert (claim.launch["spec"]["script"], claim.leave_checkpoints) == ("v2.py", ("/own",))
    assert report["savepoint_id"] in context["ti"].xcoms[LINK]
    assert operator.execute(context)["generation"] == report["generation"]
    world.judge()


@pytest.mark.parametrize(
    "wrong", [{"first_commit_timeout_s": "soon"}, {"conf": "spark.x=1"}, {"args": "--topic 'orders"}]
)
def test_upgrade_that_is_told_nonsense_is_refused_for_good(world: World, wrong: dict[str, Any]):
    world.start()
    operator = UpgradeStreamingJobOperator(task_id="up", job=world.job, **wrong)
    with pytest.raises(AirflowFailException, match="BAD_INPUT"):
        operator.execute(a_context("up"))
    assert world.alive() == [1]


def test_upgrade_to_a_broken_version_goes_back_and_says_so(world: World, mood: type):
    world.start()
    world.moods["v2.py"] = mood(fails_at_import=True)
    operator = UpgradeStreamingJobOperator(
        task_id="up", job=world.job, script="v2.py", first_commit_timeout_s="10"
    )
    with pytest.raises(AirflowFailException, match="UPGRADE_ROLLED_BACK"):
        operator.execute(a_context("up"))
    world.logs.produce(3)
    world.judge()
