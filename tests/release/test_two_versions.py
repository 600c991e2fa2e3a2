"""Callers of one version and drivers of another, in both directions.

``wheels/`` holds the wheel of each released minor version (docs/releasing.md); until there is one, the
checkout's own stands for it.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.protocol.record import PROTOCOL_VERSION
from testbed.keys import SIGNING_ENV
from tests.nightly import matrix_but
from tests.release.installing import Environment, clean_environment, install
from tools.common import VENV_AIRFLOW, VENV_SPARK

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.release.installing import Job

pytestmark = pytest.mark.nightly
RELEASED = sorted((Path(__file__).parent / "wheels").glob("*.whl"))
CHECKOUT = Environment(VENV_AIRFLOW)


@pytest.fixture(scope="module", params=RELEASED or [None], ids=lambda path: path.name if path else "checkout")
def released(request: pytest.FixtureRequest) -> Path:
    """Yield the wheel of each released version."""
    found: Path = request.param or request.getfixturevalue("wheel")
    return found


@pytest.fixture(scope="module")
def released_cli(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(tmp_path_factory.mktemp("cli") / "venv", released, "[cli]", "airflow")


@pytest.fixture(scope="module")
def released_spark(released: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(tmp_path_factory.mktemp("spark") / "venv", released, "[spark]", "spark")


@pytest.mark.parametrize("older", matrix_but("driver".__eq__, ["driver", "callers"]))
def test_job_is_saved_and_stopped_across_two_versions(
    older: str,
    released_cli: Environment,
    released_spark: Environment,
    job_of: Callable[[Environment, Path], Job],
):
    if older == "driver":
        job = job_of(CHECKOUT, released_spark.python)
    else:
        job = job_of(released_cli, VENV_SPARK / "bin" / "python")
    job.start()
    taken = job.flinkstyle("savepoint", "take")
    assert job.flinkstyle("savepoint", "verify", taken["savepoint_id"], "--full")
    assert job.flinkstyle("job", "status")["status"] == "running"
    job.flinkstyle("job", "stop", "--yes")
    assert job.flinkstyle("job", "status")["status"] == "closed"
    job.flinkstyle("job", "start")  # where it was, from the records of its first run
    job.flinkstyle("job", "stop", "--yes")


def test_callers_of_another_protocol_are_refused_by_both_numbers_and_the_driver_runs_on(
    wheel: Path, job_of: Callable[[Environment, Path], Job], tmp_path_factory: pytest.TempPathFactory
):
    other = install(tmp_path_factory.mktemp("other") / "venv", wheel, "[cli]", "airflow")
    (record,) = other.folder.glob("lib/python3*/site-packages/airflow_flinkstyle/protocol/record.py")
    text, changed = re.subn(
        r"^(PROTOCOL_VERSION\b.*= )\d+$",
        rf"\g<1>{PROTOCOL_VERSION + 1}",
        record.read_text(),
        flags=re.MULTILINE,
    )
    assert changed == 1
    record.write_text(text)
    job = job_of(CHECKOUT, VENV_SPARK / "bin" / "python")
    job.start()
    asked = [other.folder / "bin" / "flinkstyle", "savepoint", "take", "--job", "ticks", "--json"]
    done = subprocess.run(
        [*asked, "--root", job.folder / "savepoints"],
        env={**clean_environment(other.folder), **SIGNING_ENV},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout
    error = json.loads(done.stderr[done.stderr.index("{") :])["error"]
    assert error["code"] == "PROTOCOL_VERSION"
    assert {str(PROTOCOL_VERSION), str(PROTOCOL_VERSION + 1)} <= set(re.findall(r"\d+", error["problem"]))
    assert job.flinkstyle("job", "status")["status"] == "running"
