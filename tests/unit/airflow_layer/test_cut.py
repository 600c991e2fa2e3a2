"""Savepoints of several jobs that belong together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowException, AirflowFailException
from airflow_flinkstyle.hooks.assets import SAVEPOINTS, savepoint_asset
from airflow_flinkstyle.jobs.cut import find_cut
from airflow_flinkstyle.jobs.status import Closed
from airflow_flinkstyle.operators import CutJobsOperator
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def test_cut_of_one_job_is_complete_and_an_event(world: World):
    world.start()
    context = a_context("cut")
    operator = CutJobsOperator(task_id="cut", jobs=world.job, hold_s="20s")
    done = operator.execute(context)
    assert SAVEPOINTS in operator.outlets
    assert find_cut(world.store, done["cut_id"]).members == done["savepoints"]
    (event,) = context["outlet_events"][SAVEPOINTS].asset_alias_events
    assert event.dest_asset_key.to_asset() == savepoint_asset(world.job)
    assert event.extra["cut_id"] == done["cut_id"]
    assert operator.execute(a_context("cut")) == done, "a retry finds the same cut"


def test_cut_stops_the_jobs_if_that_was_asked(world: World):
    client = world.start()
    CutJobsOperator(task_id="cut", jobs=[world.job], stop="True").execute(a_context("cut"))
    assert isinstance(client.view.status(), Closed)


def test_cut_with_a_job_that_does_not_run_leaves_all_as_they_are(world: World):
    client = world.start()
    with pytest.raises(AirflowException, match=r"JOB_UNKNOWN.*found the jobs orders-job"):
        CutJobsOperator(task_id="cut", jobs=[world.job, "nobody"], timeout_s=5).execute(a_context("cut"))
    assert client.view.status().run.heartbeat.state == "running"


@pytest.mark.parametrize("jobs", ["a,a", []])
def test_jobs_are_named_once_each(world: World, jobs: object):
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*each once"):
        CutJobsOperator(task_id="cut", jobs=jobs).execute(a_context("cut"))
