"""A job's numbers as Airflow's metrics, and the dashboard that shows them."""

from __future__ import annotations

import asyncio
import json
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.dags import measure_dag
from airflow_flinkstyle.hooks import metrics as metrics_of
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.hooks.metrics import Measured, emit, knows_tags, measure
from airflow_flinkstyle.jobs.status import Closed, Failed, NeverStarted
from airflow_flinkstyle.operators import MeasureJobsOperator, TakeSavepointOperator
from airflow_flinkstyle.protocol.query_records import Pace, SourcePace
from airflow_flinkstyle.savepoint.repository.summary import newest_summary
from airflow_flinkstyle.triggers import metrics
from airflow_flinkstyle.triggers.metrics import MetricsTrigger
from airflow_flinkstyle.types import BatchId
from tests.airflow_names import TaskDeferred
from tests.unit.airflow_layer.conftest import a_context
from tools import dashboard

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import Mood, World

pytestmark = pytest.mark.airflow
PACE = Pace(
    batch_id=BatchId(4),
    begun_at_ms=1,
    batch_ms=1500,
    rows=300,
    input_rows_per_s=20.5,
    processed_rows_per_s=200.0,
    watermark_ms=1_000,
    state_rows=77,
    sources=(SourcePace(description="KafkaV2[Subscribe[orders]]", lag_records=12),),
)


class Stats:
    """Keeps what was set."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], float] = {}

    def gauge(self, stat: str, value: float, *, tags: dict[str, str]) -> None:
        self.found[stat, ",".join(tags.values())] = value


def test_every_number_of_a_job_is_measured(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(pace=PACE)
    client = world.start()
    TakeSavepointOperator(task_id="take", job=world.job, deferrable=False).execute(a_context("take"))
    newest = newest_summary(world.repository)
    assert newest is not None
    found = list(measure(world.job, client.view.status(), newest, now_ms=newest.taken_at_ms + 2_000))
    assert {one.name for one in found} == {*dashboard.OF_A_JOB, *dashboard.OF_A_QUERY}
    told = {one.name: one.value for one in found}
    assert (told["up"], told["generation"], told["savepoint_age_s"]) == (1, 1, 2)
    assert (told["lag_records"], told["rows"], told["state_rows"], told["batch_ms"]) == (12, 300, 77, 1500)
    assert {one.query for one in found if one.name in dashboard.OF_A_QUERY} == {"orders"}


def test_job_that_does_not_run_is_down_and_what_nobody_knows_is_left_out(world: World):
    assert list(measure("none", NeverStarted(), None, now_ms=1)) == [
        Measured(name="up", value=0, job="none"),
        Measured(name="stopped", value=1, job="none"),
    ]
    client = world.start()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    told = {one.name: one.value for one in measure(world.job, client.view.status(), None, now_ms=1)}
    assert (told["up"], told["stopped"]) == (0, 1)
    assert told["batch"] == 0
    assert "lag_records" not in told


def told_of(world: World) -> dict[str, float]:
    found = measure(world.job, world.client().view.status(), None, now_ms=now_ms())
    return {one.name: one.value for one in found}


def test_job_that_failed_was_not_stopped_by_who_saved_it(world: World, mood: type[Mood]):
    world.start()
    world.moods["v1.py"] = mood(fails_in_batch=True)
    world.kill(1)
    world.client().drivers.ensure_running()
    world.logs.produce(3)
    world.until(lambda: isinstance(world.client().view.status(), Failed))
    TakeSavepointOperator(task_id="take", job=world.job, deferrable=False).execute(a_context("take"))
    assert isinstance(world.client().view.status(), Closed)
    stats = Stats()
    metrics_of.measure_job(StreamingJobHook(), world.job, stats, tagged=True)
    assert (stats.found["flinkstyle.up", world.job], stats.found["flinkstyle.stopped", world.job]) == (0, 0)


def test_job_that_is_gone_is_down_and_was_not_stopped(world: World):
    world.start()
    assert (told_of(world)["up"], told_of(world)["stopped"]) == (1, 0)
    world.kill(1)
    assert (told_of(world)["up"], told_of(world)["stopped"]) == (0, 0)


@pytest.mark.parametrize(("ended_s_ago", "rates"), [(1, (20.5, 200.0)), (61, (0, 0))])
def test_rate_of_a_query_without_a_new_batch_for_a_minute_is_none(
    world: World, mood: type[Mood], ended_s_ago: int, rates: tuple[float, float]
):
    begun_at_ms = now_ms() - PACE.batch_ms - 1000 * ended_s_ago
    world.moods["v1.py"] = mood(pace=replace(PACE, begun_at_ms=begun_at_ms))
    client = world.start()
    told = told_of(world)
    assert (told["input_rows_per_s"], told["processed_rows_per_s"]) == rates
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    told = told_of(world)
    assert (told["input_rows_per_s"], told["processed_rows_per_s"], told["lag_records"]) == (0, 0, 12)


@pytest.mark.parametrize(
    ("setting", "tagged"),
    [
        ("OTEL_ON", True),
        ("STATSD_DATADOG_ENABLED", True),
        ("STATSD_INFLUXDB_ENABLED", True),
        ("STATSD_ON", False),
    ],
)
def test_number_says_whose_it_is_by_a_tag_or_by_its_name(
    monkeypatch: pytest.MonkeyPatch, setting: str, tagged: bool
):
    monkeypatch.setenv(f"AIRFLOW__METRICS__{setting}", "True")
    assert knows_tags() is tagged
    stats = Stats()
    emit(iter([Measured(name="batch", value=3, job="orders.eu", query="totals")]), stats, tagged=tagged)
    name = ("flinkstyle.batch", "orders.eu,totals") if tagged else ("flinkstyle.batch.orders__eu.totals", "")
    assert stats.found == {name: 3}


def test_trigger_measures_all_jobs_below_the_root_again_and_again(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.start()
    world.store.write("broken/runs/000001/claim.json", b"{}")
    world.store.write("broken/current.json", b"no json")
    stats = Stats()
    monkeypatch.setattr(metrics, "airflow_stats", lambda *, in_triggerer: stats)
    monkeypatch.setenv("AIRFLOW__METRICS__OTEL_ON", "True")
    operator = MeasureJobsOperator(task_id="measure", every_s=0.05, for_s=1.0)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(a_context("measure"))
    path, kwargs = deferred.value.trigger.serialize()
    assert path == "airflow_flinkstyle.triggers.metrics.MetricsTrigger"
    event = asyncio.run(anext(MetricsTrigger(**kwargs).run()))
    assert operator.execute_complete(a_context("measure"), event.payload) >= 2
    assert stats.found["flinkstyle.up", world.job] == 1
    assert [name for name, owner in stats.found if owner == "broken"] == [], "it keeps no other one out"


def test_triggerer_that_is_started_again_measures_no_longer_than_the_task_waits(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(metrics, "airflow_stats", lambda *, in_triggerer: Stats())
    begun_s = time.time()
    operator = MeasureJobsOperator(task_id="measure", every_s=0.01, for_s=3600)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(a_context("measure"))
    _, kwargs = deferred.value.trigger.serialize()
    assert begun_s + 3600 <= kwargs["until_s"] <= time.time() + 3600
    assert MetricsTrigger(**kwargs).serialize()[1] == kwargs
    over = MetricsTrigger(**{**kwargs, "until_s": begun_s})
    assert asyncio.run(anext(over.run())).payload == {"rounds": 1}


def test_dag_begins_the_next_hour_by_itself():
    dag = measure_dag(jobs=["orders"], every_s=10)
    (task,) = dag.tasks
    assert (task.jobs, task.every_s, dag.max_active_runs, dag.schedule) == (["orders"], 10, 1, "@continuous")


def test_dashboard_shows_every_metric_and_no_other():
    written = dashboard.FILE.read_text()
    assert written == dashboard.text(), "run python -m tools.dashboard"
    panels = json.loads(written)["panels"]
    shown = {name for panel in panels for name in re.findall(r'prefix}_(\w+)"', panel["targets"][0]["expr"])}
    assert shown == {*dashboard.OF_A_JOB, *dashboard.OF_A_QUERY}
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert dashboard.unit_of("input_rows_per_s") == "rowsps"
    assert dashboard.unit_of("batch_age_s") == "s"
