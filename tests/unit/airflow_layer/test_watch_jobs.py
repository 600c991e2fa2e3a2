"""All jobs of a root, looked after by one task."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from airflow_flinkstyle.dags import watch_dag
from airflow_flinkstyle.dags.watch import watch_dags
from airflow_flinkstyle.hooks import migration, watching
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.errors import ConnectionMissingError
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.hooks.watching import WatchedRoot
from airflow_flinkstyle.jobs import rounds, status
from airflow_flinkstyle.jobs.definition import SparkStreamingJob
from airflow_flinkstyle.jobs.deployments.base import Unknown
from airflow_flinkstyle.jobs.errors import ClusterLoginError, DriverFailedError
from airflow_flinkstyle.jobs.spec import JobSpec
from airflow_flinkstyle.jobs.status import OF_THIS_PROCESS, Closed, Failed, Running, Sightings
from airflow_flinkstyle.operators import WatchJobsOperator
from airflow_flinkstyle.protocol.pulse import PULSES_VARIABLE, pulses
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreUnavailableError
from airflow_flinkstyle.triggers import watch as watch_trigger
from airflow_flinkstyle.triggers.watch import WatchTrigger
from tests.airflow_names import TaskDeferred
from tests.unit.airflow_layer.conftest import a_context
from tests.unit.jobs.conftest import Mood, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_flinkstyle.jobs.view import JobView

pytestmark = pytest.mark.airflow
_QUICK = (("QUIET_S", 0.2), ("TURN_S", 0.05), ("SUSPECT_S", 0.02), ("DOWN_S", 0.1), ("WHOLE_S", 0.1))


class Root(World):
    """Several jobs of one root on one cluster; the first one is the world itself."""

    def __init__(self, first: World, jobs: list[str]) -> None:
        self.worlds = {first.job: first}
        for job in jobs:
            world = World(first.folder / job, job, first.store)
            world.drivers = first.drivers  # a process id is one of the cluster
            self.worlds[job] = world
        self.drivers, self.name, self.job, self.refused = first.drivers, first.name, first.job, None

    def submit(self, submission: Any) -> dict[str, str]:  # noqa: ANN401 - a submission
        return self.worlds[submission.marker[3]].submit(submission)

    def kill_job(self, job: str) -> None:
        for driver in self.drivers.values():
            if driver.world is self.worlds[job]:
                driver.kill()
                driver.join(5)

    def runs(self, job: str) -> bool:
        return isinstance(self.worlds[job].client().view.status(), Running)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (*_QUICK, ("BETWEEN_WHOLE_S", 0.0)):
        monkeypatch.setattr(rounds, name, seconds)
    monkeypatch.setattr(watching, "QUIET_S", 0.2)
    monkeypatch.setattr(watching, "_roots", {})


@pytest.fixture
def root(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Root]:
    root = Root(world, ["clicks", "views"])
    monkeypatch.setattr(StreamingJobHook, "deployment", root)
    for one in root.worlds.values():
        one.start()
    yield root
    root.kill_all()


def operator(root: Root | World, **arguments: Any) -> WatchJobsOperator:
    jobs = dict.fromkeys(getattr(root, "worlds", [root.job]))
    given: dict[str, Any] = {"jobs": jobs, "for_s": 30.0, "requests_per_s": 1000.0, **arguments}
    return WatchJobsOperator(task_id="watch", **given)


def watch(
    task: WatchJobsOperator, context: Context, until: Callable[[], bool] = lambda: False
) -> list[dict[str, Any]] | None:
    """Run a task as Airflow does, over its deferrals, until it ends or something has come true."""

    async def event_of(trigger: WatchTrigger) -> dict[str, Any] | None:
        firing = asyncio.ensure_future(anext(trigger.run()))
        while not firing.done() and not until():
            await asyncio.sleep(0.01)
        if firing.done():
            return dict(firing.result().payload)
        firing.cancel()
        return None

    step: Callable[[], Any] = lambda: task.execute(context)  # noqa: E731
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        try:
            return step()
        except TaskDeferred as deferred:
            path, kwargs = deferred.trigger.serialize()
            assert path == "airflow_flinkstyle.triggers.watch.WatchTrigger"
            event = asyncio.run(event_of(WatchTrigger(**{**kwargs, "poll_interval_s": 0.02})))
        if event is None:
            return None
        step = lambda event=event: task.execute_complete(context, event)  # noqa: E731
    raise AssertionError("it neither ended nor came true")


def test_several_drivers_that_die_at_once_are_all_started_again(root: Root):
    for job in ("clicks", "views"):
        root.kill_job(job)
    assert watch(operator(root), a_context("watch"), lambda: all(map(root.runs, root.worlds))) is None
    for one in root.worlds.values():
        one.judge()


def test_job_whose_records_are_damaged_is_told_and_the_others_are_watched(root: Root):
    place = "clicks/runs/000001/heartbeat.json"
    root.kill_job("clicks")
    root.worlds["clicks"].store.write(place, b"{")
    context = a_context("watch")
    (told,) = watch(operator(root), context) or [{}]
    assert told["job"] == "clicks"
    assert told["failure"]["block"].startswith("MESSAGE_FORMAT: A heartbeat of protocol version 1")
    with pytest.raises(AirflowFailException, match="MESSAGE_FORMAT"):
        _not_well(told)
    root.kill_job("views")  # the next run does not tell it again, and starts what is dead
    assert watch(operator(root), context, lambda: root.runs("views")) is None
    (again,) = watch(operator(root, for_s=0.5), context) or [{}]
    assert again["failure"] == told["failure"], "once its time is over it is"


def _not_well(found: dict[str, Any]) -> None:
    dag = watch_dag([SparkStreamingJob(job="orders", script="a.py")], dag_id="mine")
    dag.get_task("not_well_flinkstyle_default").python_callable(found)  # type: ignore[attr-defined]


def test_driver_that_failed_for_good_is_told_once_and_not_started(world: World, mood: type[Mood]):
    world.start()
    world.moods["v1.py"] = mood(fails_in_batch=True)
    world.kill(1)
    context, task = a_context("watch"), operator(world)
    begun = watch(task, context, lambda: bool(world.logs.produce(1)) or failed(world))
    (told,) = (watch(task, context) if begun is None else begun) or [{}]
    assert "ZeroDivisionError" in told["failure"]["block"]
    submits = world.board.newest_submit(1)
    assert watch(operator(world, for_s=1.0), context) == [told]
    assert world.board.newest_submit(1) == submits


def test_driver_that_cannot_be_started_for_good_is_tried_and_told_once_an_hour(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Each try has a submit of its own, which is no other fault."""

    def refuse(_: object) -> NoReturn:
        raise DriverFailedError("Spark was expected in /opt/spark, found nothing.", "Nothing.", "Install it.")

    world.start()
    world.kill(1)
    monkeypatch.setattr(world, "submit", refuse)
    context = a_context("watch")
    (told,) = watch(operator(world), context) or [{}]
    assert "/opt/spark" in told["failure"]["block"]
    submits = world.board.newest_submit(1)
    (again,) = watch(operator(world, for_s=1.0), context) or [{}]
    assert again["failure"] == told["failure"]
    assert world.board.newest_submit(1) == submits + 1


def test_driver_that_dies_again_and_again_without_a_word_is_told_and_tried_once_an_hour(
    world: World, mood: type[Mood], monkeypatch: pytest.MonkeyPatch
):
    world.start()
    monkeypatch.setattr(status, "RETRY_FOR_S", 0.0)
    monkeypatch.setattr(status, "LEAST_RETRIES", 3)
    world.moods["v1.py"] = mood(slow_start_s=60)
    world.kill(1)
    context, deaths = a_context("watch"), []

    def dies() -> bool:
        for driver in [*world.drivers.values()]:
            if driver.incarnation is not None and not driver.killed.is_set():
                driver.killed.set()
                deaths.append(driver.pid)
        return False

    (told,) = watch(operator(world), context, dies) or [{}]
    assert "DRIVER_KEEPS_DYING: The driver of generation 1 of job orders-job" in told["failure"]["block"]
    assert len(deaths) >= 3
    submits = world.board.newest_submit(1)
    world.until(lambda: world.drivers[max(world.drivers)].incarnation is not None)
    dies()
    (again,) = watch(operator(world, for_s=0.5), context) or [{}]
    assert again["failure"]["block"].startswith("DRIVER_KEEPS_DYING")
    assert world.board.newest_submit(1) == submits + 1, "it is tried again all the same"


def test_connection_that_airflow_does_not_find_for_a_moment_is_told_once_it_lasts(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """It says so of each while its API server does not answer."""

    def missing(*_: object) -> NoReturn:
        raise ConnectionMissingError.of("spark_default")

    hook = StreamingJobHook()
    monkeypatch.setattr(StreamingJobHook, "client", missing)
    assert watching.keep_all_up(hook, {world.job: None}, {}) == {}
    errors = watching.keep_all_up(hook, {world.job: None}, {}, lasting={world.job})
    assert [error.code for error in errors.values()] == ["CONNECTION_MISSING"]


def failed(world: World) -> bool:
    return isinstance(world.client().view.status(), Failed)


def test_savepoint_that_is_too_old_is_told_and_a_stopped_job_left_alone(root: Root):
    root.worlds["clicks"].client().requests.stop("a-stop", savepoint=False, timeout_s=10)
    root.worlds["clicks"].until(lambda: isinstance(root.worlds["clicks"].client().view.status(), Closed))
    (told,) = watch(operator(root, jobs={"clicks": "36h", "views": "36h"}), a_context("watch")) or [{}]
    assert (told["job"], told["failure"]["block"].partition(":")[0]) == ("views", "SAVEPOINT_STALE")
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*fresh of views.*found 'soon'"):
        watch(operator(root, jobs={"views": "soon"}), a_context("watch"))


def test_job_that_hangs_keeps_no_other_one_down(root: Root, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(watching, "PATIENCE_S", 0.3)
    root.worlds["clicks"].moods["v1.py"] = Mood(slow_start_s=1.0)
    for job in ("clicks", "views"):
        root.kill_job(job)
    assert watch(operator(root), a_context("watch"), lambda: root.runs("views")) is None


def test_cutover_that_takes_longer_to_settle_than_others_wait_is_settled_to_its_end(
    root: Root, monkeypatch: pytest.MonkeyPatch
):
    """What the task leaves behind ends with its process: the next round would begin anew, for ever."""
    settled: list[str] = []

    def settles(_: StreamingJobHook, job: str, *, found: Callable[[], object]) -> None:
        if job == "clicks":
            found()
            time.sleep(0.6)
            settled.append(job)

    monkeypatch.setattr(migration, "settle_abandoned", settles)
    monkeypatch.setattr(watching, "PATIENCE_S", 0.1)
    assert watching.keep_all_up(StreamingJobHook(), {"clicks": None, "views": None}, {}) == {}
    assert settled == ["clicks"]


def test_lost_host_is_not_waited_for_again_by_the_task(world: World, monkeypatch: pytest.MonkeyPatch):
    world.start()
    world.kill(1)
    monkeypatch.setattr(world, "state", lambda _: Unknown("it was started on another host"))
    watched = WatchedRoot({world.job: None}, requests_per_s=1000.0)
    hook, found = StreamingJobHook(), {}
    world.until(lambda: found.update(watched.inspect_due(hook, {})) or found)
    seen = found[world.job].seen
    elsewhere = Sightings()
    monkeypatch.setattr(OF_THIS_PROCESS, "_seen", elsewhere._seen)  # as in the process of the task
    slept: list[float] = []
    monkeypatch.setattr(type(hook.client(world.job).view.clock), "sleep", lambda _, s: slept.append(s))
    assert watching.keep_all_up(hook, {world.job: None}, {world.job: seen}) == {}
    assert (world.board.newest_submit(1), slept) == (2, [])


# --- pulses -------------------------------------------------------------------------------------


def pulsing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = World.spec

    def spec(self: World, *args: Any, **kwargs: Any) -> JobSpec:
        found = plain(self, *args, **kwargs)
        return JobSpec(**{name: getattr(found, name) for name in found.__slots__} | {"env": _PULSES})

    monkeypatch.setattr(World, "spec", spec)


_PULSES = {PULSES_VARIABLE: "true"}


def test_driver_writes_pulses_if_its_environment_says_so_and_none_once_it_ends(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    client = world.start()
    assert pulses(world.store) == {}
    client.requests.stop("a-stop", savepoint=False, timeout_s=10)
    pulsing(world, monkeypatch)
    client = world.client()
    client.starts.start(world.spec(), world.target(), claim_key="again")
    world.until(lambda: pulses(world.store))
    before = pulses(world.store)
    world.until(lambda: pulses(world.store) != before)
    client.requests.stop("another-stop", savepoint=False, timeout_s=10)
    world.until(lambda: not world.alive())
    last = pulses(world.store)
    time.sleep(0.15)
    assert pulses(world.store) == last


def test_driver_that_may_not_write_pulses_runs_on(world: World, monkeypatch: pytest.MonkeyPatch):
    write = world.store.write

    def refuse(key: str, data: bytes) -> str:
        if key.startswith("_pulses/"):
            refused.append(key)
            raise StoreDeniedError("It was expected.", "Nothing was written.", "Add the right.")
        return write(key, data)

    refused: list[str] = []
    monkeypatch.setattr(world.store, "write", refuse)
    pulsing(world, monkeypatch)
    world.start()
    world.until(lambda: refused)
    world.logs.produce(5)
    world.judge()
    assert refused == [f"_pulses/{world.job}.json"], "it is tried once"


def test_store_that_is_away_ends_no_watch(root: Root, monkeypatch: pytest.MonkeyPatch):
    looks = []

    def away(*_: object, **__: object) -> Iterator[str]:
        looks.append(1)
        raise StoreUnavailableError.during("be listed", "s3://savepoints", "it is away")

    context = a_context("watch")
    with monkeypatch.context() as patched:
        patched.setattr(root.worlds["clicks"].store, "list", away)
        assert watch(operator(root), context, lambda: len(looks) > 3) is None
    root.kill_job("clicks")
    assert watch(operator(root), context, lambda: root.runs("clicks")) is None


def test_cluster_that_takes_no_driver_for_long_is_told_and_the_job_started_once_it_does(
    root: Root, monkeypatch: pytest.MonkeyPatch
):
    root.refused = ClusterLoginError(
        "A login was expected.", "Nothing was started.", "Look at the kubeconfig."
    )
    root.kill_job("clicks")
    context = a_context("watch")
    assert watch(operator(root, for_s=1.0), context) == [], "it may pass, and is tried again"
    monkeypatch.setattr(watching, "RETRY_FOR_S", 0.5)
    (told,) = watch(operator(root), context) or [{}]
    assert (told["job"], told["failure"]["retryable"]) == ("clicks", True)
    assert told["failure"]["block"].startswith("CLUSTER_LOGIN: A login was expected.")
    assert watch(operator(root, for_s=0.5), context) == [told], "at its end only, as it was told before"
    root.refused = None
    assert watch(operator(root, for_s=0.5), context) == []
    root.until(lambda: root.runs("clicks"))


def test_store_of_an_old_checkpoint_that_is_away_keeps_no_other_job_down(
    root: Root, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def away(view: JobView, _: str) -> None:
        if view.job == "views":
            asked.append(view.job)
            raise StoreUnavailableError.during("be read", "s3://old-checkpoints", "it is away")

    monkeypatch.setattr(watching, "require_old_job_ended", away)
    assert watch(operator(root), a_context("watch"), lambda: len(asked) > 2) is None
    root.kill_job("clicks")
    assert watch(operator(root), a_context("watch"), lambda: root.runs("clicks")) is None


def test_each_root_that_is_defined_has_a_dag_of_its_own(tmp_path: Path):
    """A fault ends a run, and the next one begins only once all its tasks have ended."""
    jobs = [
        SparkStreamingJob(job="orders", script="a.py", fresh="36h"),
        SparkStreamingJob(job="clicks", script="b.py", flinkstyle_conn_id="other"),
    ]
    dags = watch_dags(jobs, dag_id="mine", default_args={"retries": 3})
    found = {
        dag.dag_id: [(task.jobs, task.flinkstyle_conn_id) for task in dag.tasks if hasattr(task, "jobs")]
        for dag in dags
    }
    assert found == {
        "mine_flinkstyle_default": [({"orders": "36h"}, "flinkstyle_default")],
        "mine_other": [({"clicks": None}, "other")],
    }
    assert [sorted(task.task_id for task in dag.tasks) for dag in dags] == [
        ["not_well_flinkstyle_default", "watch_flinkstyle_default"],
        ["not_well_other", "watch_other"],
    ]
    assert {(dag.schedule, dag.max_active_runs) for dag in dags} == {("@continuous", 1)}
    assert dags[0].get_task("not_well_flinkstyle_default").retries == 0
    assert watch_dag(jobs[:1], dag_id="mine").dag_id == "mine"
    one_by_one = watch_dag(jobs, dag_id="mine", schedule=timedelta(minutes=5), default_args={"retries": 3})
    assert {task.task_id: (task.job, task.fresh) for task in one_by_one.tasks} == {
        "orders": ("orders", "36h"),
        "clicks": ("clicks", None),
    }
    assert {task.retries for task in one_by_one.tasks} == {3}


def test_root_that_cannot_be_watched_is_told_after_a_while(root: Root, monkeypatch: pytest.MonkeyPatch):
    def denied(*_: object, **__: object) -> Iterator[str]:
        raise StoreDeniedError("It was expected.", "Nothing was read.", "Add the right.")

    monkeypatch.setattr(root.worlds["clicks"].store, "list", denied)
    trigger = WatchTrigger(
        flinkstyle_conn_id="flinkstyle_default",
        jobs={"clicks": None},
        told={},
        until_s=time.time() + 60,
        requests_per_s=1000.0,
    )
    assert [trigger.poll() for _ in range(3)] == [None, None, None]
    monkeypatch.setattr(watch_trigger, "_FAILS_AFTER_S", 0.0)
    with pytest.raises(AirflowFailException, match="STORE_DENIED"):
        operator(root).execute_complete(a_context("watch"), trigger.poll() or {})


def test_dag_without_jobs_does_not_run_all_the_time():
    assert watch_dag([], dag_id="mine").schedule == timedelta(hours=1)
