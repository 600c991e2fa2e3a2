"""What parsing the DAGs of this package costs beyond parsing as many that do nothing."""

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
MOST_S = 1.0
PROGRAM = """
import sys, time, warnings
warnings.simplefilter("ignore")
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG, BaseHook, BaseOperator, Param, task
begun_s = time.process_time()
found = DagBag(sys.argv[1])
print(len(found.dags), len(found.import_errors), time.process_time() - begun_s)
"""
"""Time of the processor, so that other work on the machine counts little; Airflow's imports are left out."""
NOTHING = """
from airflow.sdk import DAG, task

with DAG("dag_{number}", schedule=None) as dag:
    task(lambda: None, task_id="nothing")()
"""


def parsed(folder: Path) -> tuple[int, float]:
    """Return how many DAGs a folder has, and the seconds of the processor that it took to parse them."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True
    )
    dags, errors, seconds = run.stdout.splitlines()[-1].split()
    assert errors == "0", run.stderr
    return int(dags), float(seconds)


def test_parsing_all_dags_takes_a_second_at_most_beyond_airflows_own(tmp_path: Path):
    files = list(DAGS.glob("*.py"))
    for number in range(len(files)):
        (tmp_path / f"dag_{number}.py").write_text(NOTHING.format(number=number))
    dags, seconds = parsed(DAGS)
    others, own = parsed(tmp_path)
    assert dags == others == len(files)
    assert seconds - own <= MOST_S
