"""One job's life through a real Airflow server; ``make test-airflow-versions`` runs it on each version."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks.urls import manifest_url
from airflow_flinkstyle.jobs.status import Closed
from airflow_flinkstyle.links.savepoint import SavepointLink
from testbed import paths
from testbed.airflow import Airflow
from testbed.waiting import wait_until
from tests.integration.airflow_lab import Lab
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.airflow, pytest.mark.versions]

AMAZON = "s3://bucket/savepoints"
LIFE = """
from airflow.sdk import DAG, task

from airflow_flinkstyle.hooks import deferral
from airflow_flinkstyle.hooks.assets import savepoint_asset
from airflow_flinkstyle.operators import (
    ApproveMigrationOperator, StartStreamingJobOperator, StopStreamingJobOperator,
    TakeSavepointOperator)
from airflow_flinkstyle.operators.base import StreamingJobOperator

deferral.AT_ONCE_S = 0.0  # a small savepoint is done before a task would leave for the triggerer

class ShowOperator(StreamingJobOperator):
    def execute(self, context):
        self.show_savepoint(context, "sp-1")

with DAG("life", schedule=None, catchup=False, params={"script": ""}):
    start = StartStreamingJobOperator(task_id="start", job="counts", script="{{ params.script }}")
    take = TakeSavepointOperator(task_id="take", job="counts", deferrable=True)
    approve = ApproveMigrationOperator(
        task_id="approve", subject="Stop it?", body="{{ ti.xcom_pull(task_ids='take') }}")
    stop = StopStreamingJobOperator(task_id="stop", job="counts")
    show = ShowOperator(task_id="show", job="counts", flinkstyle_conn_id="amazon")
    start >> take >> show >> approve >> stop

with DAG("on_savepoint", schedule=[savepoint_asset("counts")], catchup=False):
    @task
    def seen(triggering_asset_events):
        return [event.extra["savepoint_id"] for event in triggering_asset_events[savepoint_asset("counts")]]
    seen()
"""


@pytest.fixture
def lab(tmp_path: Path, spark_paths: SparkPaths) -> Iterator[Lab]:
    lab = Lab(tmp_path, spark_paths)
    lab.connect("amazon", "flinkstyle", {"savepoint_root": AMAZON})
    yield lab
    lab.end_drivers()


def test_job_is_started_saved_from_the_triggerer_approved_and_stopped(lab: Lab, tmp_path: Path):
    dags = tmp_path / "dags"
    shutil.copytree(paths.ROOT / "dags", dags)
    (dags / "life.py").write_text(LIFE)
    with Airflow(tmp_path / "home", dags, connections=lab.connections) as airflow:
        api = airflow.api
        ours = {path.stem for path in (paths.ROOT / "dags").glob("*.py")}
        wait_until(
            "all DAGs are parsed, or fail to be", lambda: ours <= api.dag_ids() or bool(api.import_errors())
        )
        assert api.import_errors() == {}
        for dag_id in ("life", "on_savepoint"):
            api.wait_for_dag(dag_id)

        run = api.trigger("life", {"script": str(lab.script)})
        api.wait_for_task("life", run, "approve", ("awaiting_input", "deferred"))
        taken = api.xcom("life", run, "take")
        assert api.approval("life", run, "approve")["body"] == taken
        assert "DEFERRED" in api.logs("life", run, "take")
        page = f"{airflow.base_url}/plugin/savepoints#/flinkstyle_default/counts/{taken}"
        assert api.extra_links("life", run, "take") == {SavepointLink.name: page}
        shown = manifest_url(AMAZON, None, "counts", "sp-1")
        assert api.extra_links("life", run, "show") == {SavepointLink.name: shown}
        wait_until("the asset's DAG runs", lambda: bool(api.run_ids("on_savepoint")))
        (seen,) = api.run_ids("on_savepoint")
        assert api.wait_for_run("on_savepoint", seen) == "success"
        assert api.xcom("on_savepoint", seen, "seen") == [taken]

        api.respond("life", run, "approve", ["Approve"])
        assert api.wait_for_run("life", run) == "success", api.logs("life", run, "stop")
        last = api.xcom("life", run, "stop")["savepoint_id"]
        assert isinstance(lab.client.view.status(), Closed)
        api.clear("life", run, ["start"])  # which starts the job again: a retry would not
        wait_until("a second try", lambda: api.task_states("life", run)["start"] == ("success", 2))
        assert lab.client.view.status().run.generation == 2
    assert {manifest.savepoint_id for manifest in manifests_of(lab.client.view.repository)} == {taken, last}
