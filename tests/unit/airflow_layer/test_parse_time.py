"""What parsing the DAGs of this package costs beyond parsing as many that do nothing, in calls."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from testbed import paths

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow

DAGS = paths.ROOT / "dags"
MOST_CALLS = 600_000
"""330,000 on 2026-11-26, which took 0.17 s; a library imported while parsing is several hundred thousand."""
PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG, BaseHook, BaseOperator, Param, task
calls = 0
def called(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
sys.setprofile(called)
found = DagBag(sys.argv[1])
sys.setprofile(None)
print(len(found.dags), len(found.import_errors), calls)
"""
"""Calls of functions, which other work on the machine does not change; Airflow's imports are left out."""
NOTHING = """
from airflow.sdk import DAG, task

with DAG("dag_{number}", schedule=None) as dag:
    task(lambda: None, task_id="nothing")()
"""


def parsed(folder: Path) -> tuple[int, int]:
    """Return how many DAGs a folder has, and how many calls of functions it took to parse them."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True
    )
    dags, errors, calls = run.stdout.splitlines()[-1].split()
    assert errors == "0", run.stderr
    return int(dags), int(calls)


def test_parsing_all_dags_costs_little_beyond_airflows_own(tmp_path: Path):
    files = list(DAGS.glob("*.py"))
    for number in range(len(files)):
        (tmp_path / f"dag_{number}.py").write_text(NOTHING.format(number=number))
    dags, calls = parsed(DAGS)
    others, own = parsed(tmp_path)
    assert dags == others == len(files)
    assert calls - own <= MOST_CALLS
