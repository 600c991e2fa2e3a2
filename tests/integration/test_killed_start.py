"""The task of a start is killed while its driver, a real one, still comes up."""

from __future__ import annotations

import contextlib
import json
import threading
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.jobs.status import Closed, Running, Starting
from airflow_flinkstyle.operators.start import StartStreamingJobOperator
from testbed.keys import SIGNING_KEY
from testbed.waiting import PATIENCE_S, wait_until
from tests.integration.detached_lab import COUNTS, Lab
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.nightly, pytest.mark.integration, pytest.mark.airflow]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A job with real drivers, and the connections by which Airflow starts them."""
    lab = Lab(tmp_path)
    target = lab.target()
    flinkstyle = {
        "savepoint_root": str(tmp_path / "root"),
        "checkpoint_root": str(tmp_path / "checkpoints"),
        "log_dir": target.log_dir,
        "lease_s": 20,
    }
    spark = {"spark_home": target.spark_home, "python": target.python, "conf": dict(target.conf)}
    for name, fields in (
        ("FLINKSTYLE", {"conn_type": "flinkstyle", "password": SIGNING_KEY, "extra": flinkstyle}),
        ("SPARK", {"conn_type": "spark", "host": target.master, "extra": spark}),
    ):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}_DEFAULT", json.dumps(fields))
    yield lab
    lab.close()


def test_driver_that_still_starts_closes_without_a_batch_and_a_clear_starts_the_job(lab: Lab):
    spec = lab.spec(COUNTS)
    operator = StartStreamingJobOperator(
        task_id="start",
        job=spec.name,
        script=spec.script,
        args=list(spec.args),
        conf=dict(spec.conf),
        running_timeout_s=PATIENCE_S,
        stop_on_kill=True,
    )

    def execute() -> None:
        with contextlib.suppress(AirflowFailException):  # it says that the job was stopped
            operator.execute(a_context("start"))

    task = threading.Thread(target=execute, daemon=True)
    task.start()
    wait_until("the driver was submitted", lambda: lab.client.view.board.submit(1) is not None)
    assert isinstance(lab.client.view.status(), Starting)
    operator.on_kill()
    wait_until("the job has closed", lambda: isinstance(lab.client.view.status(), Closed))
    task.join(PATIENCE_S)
    assert not task.is_alive()
    assert lab.client.view.status().heartbeat.batches() == {}
    assert not lab.out.exists()

    assert operator.execute(a_context("start"))["generation"] == 2
    assert isinstance(lab.client.view.status(), Running)
    lab.client.requests.stop("stop", savepoint=False, timeout_s=PATIENCE_S)
