from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.airflow

DAGS = Path(__file__).resolve().parents[3] / "dags"
HEAVY = ("pyspark", "boto3", "botocore", "confluent_kafka")


def loaded_after(code: str) -> set[str]:
    """Return which heavy modules a fresh process has loaded after ``code``."""
    program = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "code",
    [
        "import airflow_flinkstyle",
        "import airflow_flinkstyle.provider_info, airflow_flinkstyle.plugin",
        "from airflow_flinkstyle import dags, operators, sensors\n"
        "[getattr(package, name) for package in (dags, operators, sensors) for name in package.MODULES]",
        "from airflow_flinkstyle.hooks import StreamingJobHook",
        f"import runpy, pathlib\n[runpy.run_path(str(p)) for p in pathlib.Path({str(DAGS)!r}).glob('*.py')]",
    ],
)
def test_import_loads_no_heavy_module(code: str):
    assert loaded_after(code) == set()


def test_this_test_can_fail():
    assert loaded_after("import confluent_kafka") == {"confluent_kafka"}


def test_packages_refuse_names_they_do_not_have():
    from airflow_flinkstyle import dags, hooks, operators, sensors

    for package in (dags, hooks, operators, sensors):
        with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
            _ = package.Nothing
