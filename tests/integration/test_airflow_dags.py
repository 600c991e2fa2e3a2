"""DAGs in a real Airflow with all its parts, on a real driver and a local store."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from testbed import paths
from testbed.airflow import Airflow
from testbed.keys import SIGNING_KEY
from testbed.waiting import Patience, wait_until
from tests.integration.airflow_lab import Lab
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.s3 import S3Server
    from testbed.spark import SparkPaths

pytestmark = [pytest.mark.integration, pytest.mark.airflow]


CONSUMER = """
from airflow.sdk import DAG, task
from airflow_flinkstyle.hooks.assets import savepoint_asset

COUNTS = savepoint_asset("counts")

with DAG("on_savepoint", schedule=[COUNTS], catchup=False):
    @task
    def seen(triggering_asset_events):
        return [dict(event.extra) for event in triggering_asset_events[COUNTS]]
    seen()
"""


OUTSIDE = """
from airflow.sdk import DAG, task
from airflow_flinkstyle.triggers.new_savepoint import watched_savepoint_asset

COUNTS = watched_savepoint_asset("counts", every_s=1)

with DAG("on_any_savepoint", schedule=[COUNTS], catchup=False):
    @task
    def seen(triggering_asset_events):
        return [event.extra["payload"]["savepoint_id"] for event in triggering_asset_events[COUNTS]]
    seen()
"""


def runs_of(airflow: Airflow, dag_id: str, *, more_than: int = 0) -> list[str]:
    """Wait for runs of a DAG that nobody triggers; returns their ids, the first one first."""
    deadline_s = time.monotonic() + 120
    while len(runs := airflow.api.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"]) <= more_than:
        assert time.monotonic() < deadline_s, f"DAG {dag_id} was never run"
        time.sleep(0.3)
    return sorted(run["dag_run_id"] for run in runs)


ROTATION = """
from airflow_flinkstyle.dags import rotation_dag

dag = rotation_dag(dag_id="rotate_when_asked", schedule=None)
in_one_task = rotation_dag(dag_id="rotate_in_one_task", schedule=None, tasks=1)
"""
WATCH = """
from airflow_flinkstyle.dags import watch_dag
from airflow_flinkstyle.jobs.definition import SparkStreamingJob

dag = watch_dag([SparkStreamingJob(job="counts", script="counts.py", fresh="1s")], dag_id="watch_all")
"""
JOBS = "job: nobody\nscript: none.py\n---\njob: counts\nscript: counts.py\nmax_count: 1\n"
# Airflow passes over files in which it does not find the word.
BROKEN = "from airflow_flinkstyle.operators import NoSuchOperator  # a dag"


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory, spark_paths: SparkPaths, s3_server: S3Server
) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("airflow-dags"), spark_paths)
    s3_server.create_bucket("wrong-keys")
    wrong = {"savepoint_root": "s3://wrong-keys/sp", "aws_conn_id": "aws_wrong", "dags": "take_savepoint"}
    lab.connect("flink_s3", "flinkstyle", wrong)
    usual = json.loads(lab.connections["flinkstyle_default"])["extra"]
    lab.connect("flinkstyle_default", "flinkstyle", {**usual, "pulses": True}, password=SIGNING_KEY)
    lab.connect(
        "aws_wrong",
        "aws",
        {"endpoint_url": s3_server.endpoint, "region_name": "us-east-1"},
        login="AKIAWRONG",
        password="never-shown-anywhere",  # noqa: S106 - invented
    )
    yield lab
    lab.end_drivers()


@pytest.fixture(scope="module")
def live(lab: Lab) -> Iterator[Airflow]:
    """An Airflow with all its parts, which tells OpenLineage of its tasks in a file."""
    folder = lab.folder / "live"
    dags = folder / "dags"
    shutil.copytree(paths.ROOT / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in (
        ("on_savepoint", CONSUMER),
        ("on_any_savepoint", OUTSIDE),
        ("rotate_when_asked", ROTATION),
        ("watch_all", WATCH),
        ("broken", BROKEN),
    ):
        (dags / f"{name}.py").write_text(text)
    (lab.folder / "jobs.yaml").write_text(JOBS)
    transport = {"type": "file", "log_file_path": str(folder / "lineage.jsonl"), "append": True}
    env = {**lab.settings, "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport)}
    with Airflow(folder, dags, connections=lab.connections, env=env) as airflow:
        yield airflow


@pytest.fixture(scope="module")
def started(lab: Lab, live: Airflow) -> None:
    """Let a DAG start the job."""
    form = {"job": "counts", "script": str(lab.script)}
    assert ended(live, "start_job", form).state == "success"


@pytest.fixture(scope="module")
def taken(live: Airflow, started: None) -> tuple[str, str]:
    """Take a savepoint, the first one: the run that took it, and its id."""
    for dag_id in ("on_savepoint", "on_any_savepoint"):
        live.api.wait_for_dag(dag_id)
    run = ended(live, "take_savepoint", {"job": "counts"})
    assert run.state == "success"
    return run.run_id, live.api.xcom("take_savepoint", run.run_id, "take_savepoint")


class Ended(NamedTuple):
    """A run of a DAG that has ended."""

    run_id: str
    state: str
    logs: str


def ended(airflow: Airflow, dag_id: str, conf: dict[str, Any]) -> Ended:
    """Trigger a DAG and wait for its end."""
    api = airflow.api
    api.wait_for_dag(dag_id)
    run_id = api.trigger(dag_id, conf)
    state = api.wait_for_run(dag_id, run_id)
    tasks = [task for task, (_, tries) in api.task_states(dag_id, run_id).items() if tries]
    return Ended(run_id, state, "\n".join(api.logs(dag_id, run_id, task) for task in tasks))


def test_every_dag_is_imported_without_errors(live: Airflow):
    ours = {path.stem for path in (paths.ROOT / "dags").glob("*.py")}
    wait_until("every file is parsed", lambda: ours <= live.api.dag_ids() and bool(live.api.import_errors()))
    assert [Path(file).name for file in live.api.import_errors()] == ["broken.py"]


def test_dag_that_cannot_be_imported_is_named(live: Airflow):
    wait_until("the file is parsed", lambda: bool(live.api.import_errors()))
    (trace,) = live.api.import_errors().values()
    assert "NoSuchOperator" in trace


def test_started_job_outlives_its_task_and_a_dag_takes_its_savepoint(
    lab: Lab, live: Airflow, started: None, taken: tuple[str, str]
):
    status = lab.client.view.status()
    assert isinstance(status, Running), "the driver lives on in a process of its own"

    again = ended(live, "start_job", {"job": "counts", "script": str(lab.script)})
    assert again.state == "failed"
    assert re.search(r"JOB_RUNNING.*generation 1", again.logs), again.logs

    (savepoint,) = manifests_of(lab.client.view.repository)
    assert savepoint.savepoint_id == taken[1]
    logs = live.api.logs("take_savepoint", taken[0], "take_savepoint")
    assert f"Savepoint {savepoint.savepoint_id} holds batch" in logs
    assert isinstance(lab.client.view.status(), Running)


@pytest.mark.nightly
def test_dag_scheduled_on_the_asset_of_a_job_runs_on_each_new_savepoint(
    lab: Lab, live: Airflow, taken: tuple[str, str]
):
    api = live.api
    (found,) = runs_of(live, "on_savepoint")
    assert api.wait_for_run("on_savepoint", found) == "success"
    assert api.xcom("on_savepoint", found, "seen") == [{"job": "counts", "savepoint_id": taken[1]}]
    before = runs_of(live, "on_any_savepoint")
    pending, _ = lab.client.requests.wait(
        lab.client.requests.request_savepoint("by hand"), timeout_s=60
    )  # outside of Airflow
    newest = runs_of(live, "on_any_savepoint", more_than=len(before))[-1]
    assert api.wait_for_run("on_any_savepoint", newest) == "success"
    assert pending.savepoint_id in api.xcom("on_any_savepoint", newest, "seen")
    assert len(runs_of(live, "on_savepoint")) == 1, "only operators make these events"


def test_lineage_names_the_savepoint_that_a_task_took(lab: Lab, live: Airflow, taken: tuple[str, str]):
    patience = Patience(60)
    while not (complete := [event for event in lineage(live) if event["eventType"] == "COMPLETE"]):
        assert not patience.is_over(len(lineage(live))), live.api.logs(
            "take_savepoint", taken[0], "take_savepoint"
        )
        time.sleep(0.3)
    facet = complete[0]["run"]["facets"]["flinkstyle"]
    assert (facet["job"], facet["generation"], facet["savepointId"]) == ("counts", 1, taken[1])
    now = lab.client.view.status()
    assert isinstance(now, Running)
    told = facet["batches"]  # as an earlier heartbeat told: perhaps none yet
    assert told.keys() <= {"counts"}
    assert 0 <= told.get("counts", 0) <= now.heartbeat.batches()["counts"]


def lineage(airflow: Airflow) -> list[dict[str, Any]]:
    """Return what OpenLineage was told of the task that takes savepoints."""
    file = airflow.folder / "lineage.jsonl"
    events = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [event for event in events if event["job"]["name"] == "take_savepoint.take_savepoint"]


def test_person_chooses_among_the_savepoints_that_there_are_when_the_dag_runs(
    lab: Lab, live: Airflow, taken: tuple[str, str]
):
    api, dag_id = live.api, "dispose_savepoints"
    api.wait_for_dag(dag_id)
    lab.client.requests.wait(
        lab.client.requests.request_savepoint("a newer one"), timeout_s=60
    )  # the last good one is kept
    run_id = api.trigger(dag_id, {"job": "counts"})
    api.wait_for_task(dag_id, run_id, "choose_savepoints", ("awaiting_input", "deferred"))
    asked = api.approval(dag_id, run_id, "choose_savepoints")
    ids = {manifest.savepoint_id for manifest in manifests_of(lab.client.view.repository)}
    assert {option.split(" ")[0] for option in asked["options"]} == ids
    assert taken[1] in asked["body"]
    (option,) = (option for option in asked["options"] if option.startswith(taken[1]))
    api.respond(dag_id, run_id, "choose_savepoints", [option])
    assert api.wait_for_run(dag_id, run_id) == "success"
    left = {manifest.savepoint_id for manifest in manifests_of(lab.client.view.repository)}
    assert ids - left == {taken[1]}


@pytest.mark.nightly
def test_rotation_takes_verifies_and_prunes_every_job_whatever_becomes_of_the_others(
    lab: Lab, live: Airflow, taken: tuple[str, str]
):
    older = manifests_of(lab.client.view.repository)
    rotated = ended(live, "rotate_when_asked", {}).logs
    assert "JOB_UNKNOWN: Expected a job nobody in" in rotated, rotated
    (newer,) = manifests_of(lab.client.view.repository)
    assert f"| {newer.savepoint_id} | keep | the newest complete and verified (quick) one |" in rotated
    assert older
    for one in older:
        assert f"| {one.savepoint_id} | dispose | 1 newer complete ones are kept" in rotated
    verify_savepoint(newer, lab.client.view.repository, level="full")
    assert lab.client.view.repository.blob_sizes().keys() == newer.blobs.keys()

    rotated = ended(live, "rotate_in_one_task", {}).logs
    (newest,) = manifests_of(lab.client.view.repository)
    assert newest.savepoint_id != newer.savepoint_id
    assert f"Job counts: took {newest.savepoint_id}, 1 disposed of" in rotated, rotated
    assert "ROTATION: The savepoints of 2 jobs were expected to be rotated, found 1 that were not." in rotated
    assert "nobody: JOB_UNKNOWN" in rotated


@pytest.mark.nightly
def test_jobs_are_watched_by_one_task_that_tells_once_and_starts_a_killed_driver_again(
    lab: Lab, live: Airflow, taken: tuple[str, str]
):
    """Its savepoint is too old from the first look on: that run fails, and the next one goes on watching."""
    api, dag_id = live.api, "watch_all"
    assert (lab.root / "_pulses" / "counts.json").exists()
    api.wait_for_dag(dag_id)
    api.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
    try:
        (first, *_) = runs_of(live, dag_id)
        assert api.wait_for_run(dag_id, first) == "failed"
        (told,) = api.xcom(dag_id, first, "watch_flinkstyle_default")
        assert told["job"] == "counts"
        assert "SAVEPOINT_STALE" in told["failure"]["block"]
        second = runs_of(live, dag_id, more_than=1)[1]
        api.wait_for_task(dag_id, second, "watch_flinkstyle_default", ["deferred"])

        before = lab.client.view.status()
        assert isinstance(before, Running)
        assert isinstance(lab.client.drivers.end_driver(before.run.generation), Gone)
        assert len(api.run_ids(dag_id)) == 2, "what was told is not told again at once"
        wait_until("the next driver runs", lambda: incarnation(lab) == before.heartbeat.incarnation + 1)
    finally:
        api.call("PATCH", f"/dags/{dag_id}", {"is_paused": True})


def incarnation(lab: Lab) -> int | None:
    """Return which driver runs."""
    status = lab.client.view.status()
    return status.heartbeat.incarnation if isinstance(status, Running) else None


def test_job_nobody_started_is_named_in_the_error(live: Airflow):
    refused = ended(live, "take_savepoint", {"job": "nobody"})
    assert refused.state == "failed"
    assert "JOB_UNKNOWN: Expected a job nobody in" in refused.logs, refused.logs


def test_wrong_s3_keys_are_named_and_not_shown(live: Airflow, s3_server: S3Server):
    refused = ended(live, "take_savepoint", {"job": "counts", "flinkstyle_conn_id": "flink_s3"})
    assert refused.state == "failed"
    assert "STORE_DENIED" in refused.logs, refused.logs
    assert s3_server.endpoint in refused.logs
    assert "never-shown-anywhere" not in refused.logs
