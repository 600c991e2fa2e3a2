"""How much time our package adds to Airflow's own imports: ``python benchmarks/import_time.py``.

Each line is measured in a process of its own, the best of several; the DAG files are parsed by hand, so
that only their imports and operators count, not Airflow's machinery around them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DAGS = Path(__file__).resolve().parent.parent / "dags"
ROUNDS = 5
AIRFLOW = "import airflow.sdk, airflow.triggers.base, airflow.providers.standard.operators.hitl"
CASES = {
    "import airflow_flinkstyle": "import airflow_flinkstyle",
    "import every operator and sensor": (
        "from airflow_flinkstyle import operators, sensors\n"
        "[getattr(package, name) for package in (operators, sensors) for name in package.MODULES]"
    ),
    "parse dags/": (
        f"import runpy\n[runpy.run_path(path) for path in {sorted(map(str, DAGS.glob('*.py')))!r}]"
    ),
}


def seconds(code: str) -> float:
    """Return the best time of ``code`` after Airflow itself is imported, each in a fresh process."""
    program = (
        f"import time\n{AIRFLOW}\nbegan = time.perf_counter()\n{code}\nprint(time.perf_counter() - began)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)  # noqa: S603 - our own code
        for _ in range(ROUNDS)
    ]
    return min(float(run.stdout.split()[-1]) for run in runs)


if __name__ == "__main__":
    for name, code in CASES.items():
        print(f"{name}: {seconds(code):.3f} s beyond Airflow's own imports")  # noqa: T201 - a script's output
