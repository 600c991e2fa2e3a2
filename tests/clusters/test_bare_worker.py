"""A worker with Airflow and the base package only, no Java, no PySpark: a job's life by operators."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.status import Closed
from testbed import paths
from testbed.keys import SIGNING_KEY
from tests.clusters.connections import connections_of

if TYPE_CHECKING:
    from testbed.clusters import Cluster
    from tests.integration.cluster_lab import ClusterLab

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.parametrize("cluster", ["standalone", "spark-application"], indirect=True, scope="module"),
]
PYTHON = paths.HOME / "venv-bare" / "bin" / "python"
DAGS = Path(__file__).parent / "dags"
_TIMEOUT_S = 900


def bare(folder: Path, connections: dict[str, str]) -> dict[str, str]:
    """Return the environment of such a worker: its programs are Python's and a shell's."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("sh", "env"):
        (programs / name).symlink_to(str(shutil.which(name)))
    return {
        "PATH": f"{PYTHON.parent}:{programs}",
        "HOME": str(folder),
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        **{f"AIRFLOW_CONN_{name.upper()}": value for name, value in connections.items()},
    }


def run(env: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def flinkstyle(lab: ClusterLab) -> str:
    spec = lab.spec()
    extra = {
        "savepoint_root": lab.client.view.board.store.uri,
        "checkpoint_root": spec.checkpoint_root,
        "lease_s": spec.lease_s,
    }
    return json.dumps({"conn_type": "flinkstyle", "password": SIGNING_KEY, "extra": extra})


def test_job_is_started_saved_and_stopped_by_operators_without_java_and_pyspark(
    cluster: Cluster, lab: ClusterLab
):
    spec, connections = lab.spec(), connections_of(lab.target())
    env = bare(cluster.folder / "airflow", {**connections, "flinkstyle_default": flinkstyle(lab)})
    missing = "import importlib.util as u, shutil; print(u.find_spec('pyspark'), shutil.which('java'))"
    assert run(env, str(PYTHON), "-c", missing).split() == ["None", "None"]
    assert "JAVA_HOME" not in env
    run(env, "airflow", "db", "migrate")
    form = {"job": spec.name, "script": spec.script, "args": list(spec.args)}
    said = run(env, "airflow", "dags", "test", "life_of_a_job", "--conf", json.dumps(form))
    assert isinstance(lab.client.view.settled_status(), Closed), said
    assert len(lab.client.view.repository.ids()) == 2, said
    lab.judge()
