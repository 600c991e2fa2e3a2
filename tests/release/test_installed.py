"""The wheel, not the checkout, in fresh environments: Airflow's, Spark's, and drivers of Python 3.10."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle import __version__
from airflow_flinkstyle.provider_info import get_provider_info
from tests.nightly import matrix_but
from tests.release.installing import Environment, install, python_3_10
from tools.common import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.release.installing import Job

pytestmark = pytest.mark.nightly
_IMPORT_ALL = """
import importlib, json, sys
import airflow_flinkstyle
from airflow_flinkstyle import dags, hooks, operators, sensors
from airflow_flinkstyle.provider_info import get_provider_info
info = get_provider_info()
rooms = ("operators", "sensors", "hooks", "triggers")
modules = [name for room in rooms for entry in info[room] for name in entry["python-modules"]]
for name in modules: importlib.import_module(name)
for room in (operators, dags): [getattr(room, name) for name in room.MODULES]
found = {"at": airflow_flinkstyle.__file__, "modules": modules, "operators": sorted(operators.MODULES)}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def airflow(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(tmp_path_factory.mktemp("airflow") / "venv", wheel, "[airflow,cli]", "airflow")


@pytest.fixture(scope="module")
def cli(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(tmp_path_factory.mktemp("cli") / "venv", wheel, "[cli]", "airflow")


@pytest.fixture(scope="module")
def spark(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(tmp_path_factory.mktemp("spark") / "venv", wheel, "[spark,sinks]", "spark")


@pytest.fixture(scope="module")
def spark_3_10(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    python = python_3_10()
    if python is None:
        pytest.skip("no Python 3.10 on the path or among pyenv's")
    return install(tmp_path_factory.mktemp("old") / "venv", wheel, "[spark]", "spark-3.5", python=python)


def test_airflow_imports_every_operator_sensor_hook_and_trigger(airflow: Environment):
    assert __version__ in airflow.said("flinkstyle", "--version")
    found = json.loads(airflow.said("python", "-c", _IMPORT_ALL).splitlines()[-1])
    assert found["at"].startswith(str(airflow.folder))
    listed = get_provider_info()
    assert len(found["modules"]) == sum(
        len(entry["python-modules"])
        for room in ("operators", "sensors", "hooks", "triggers")
        for entry in listed[room]
    )
    assert "StartStreamingJobOperator" in found["operators"]


def test_airflow_parses_every_dag_and_lists_the_provider(airflow: Environment, tmp_path: Path):
    shutil.copytree(ROOT / "dags", tmp_path / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    env = {
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    airflow.said("airflow", "db", "migrate", env=env)
    assert "No data found" in airflow.said("airflow", "dags", "list-import-errors", "--local", env=env)
    dags = json.loads(
        airflow.said("airflow", "dags", "list", "--local", "-o", "json", env=env).splitlines()[-1]
    )
    assert len(dags) >= len([*(ROOT / "dags").glob("*.py")])
    assert "airflow-flinkstyle" in airflow.said("airflow", "providers", "list", "-o", "plain", env=env)


@pytest.mark.parametrize("driver", matrix_but("spark".__eq__, ["spark", "spark_3_10"]))
def test_job_starts_from_the_wheel_is_saved_and_stops(
    driver: str, cli: Environment, job_of: Callable[[Environment, Path], Job], request: pytest.FixtureRequest
):
    job = job_of(cli, request.getfixturevalue(driver).python)
    job.start()
    taken = job.flinkstyle("savepoint", "take")
    assert job.flinkstyle("job", "status")["status"] == "running"
    assert job.flinkstyle("savepoint", "verify", taken["savepoint_id"], "--full")
    job.flinkstyle("job", "stop", "--yes")
    assert job.flinkstyle("job", "status")["status"] == "closed"
