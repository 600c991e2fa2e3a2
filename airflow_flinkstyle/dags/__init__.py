"""DAGs as functions: each returns a DAG for one job of yours, or for any job that its form names.

A module is one DAG; Airflow shows its docstring. ``form``, ``fields`` and ``defined`` are shared. What a task
does belongs to ``operators``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.dags.adopt import adopt_dag as adopt_dag
    from airflow_flinkstyle.dags.adopt_running import adopt_running_dag as adopt_running_dag
    from airflow_flinkstyle.dags.compare import compare_dag as compare_dag
    from airflow_flinkstyle.dags.cut import cut_dag as cut_dag
    from airflow_flinkstyle.dags.dispose import dispose_dag as dispose_dag
    from airflow_flinkstyle.dags.drill import drill_dag as drill_dag
    from airflow_flinkstyle.dags.drill_jobs import drill_jobs_dag as drill_jobs_dag
    from airflow_flinkstyle.dags.export import export_dag as export_dag
    from airflow_flinkstyle.dags.fail_back import fail_back_dag as fail_back_dag
    from airflow_flinkstyle.dags.leave import leave_dag as leave_dag
    from airflow_flinkstyle.dags.measure import measure_dag as measure_dag
    from airflow_flinkstyle.dags.migrate import migration_dag as migration_dag
    from airflow_flinkstyle.dags.replay import replay_dag as replay_dag
    from airflow_flinkstyle.dags.roll_back import roll_back_dag as roll_back_dag
    from airflow_flinkstyle.dags.rotate import rotation_dag as rotation_dag
    from airflow_flinkstyle.dags.settle import settle_dag as settle_dag
    from airflow_flinkstyle.dags.start import start_dag as start_dag
    from airflow_flinkstyle.dags.stop import stop_dag as stop_dag
    from airflow_flinkstyle.dags.take import take_savepoint_dag as take_savepoint_dag
    from airflow_flinkstyle.dags.upgrade import upgrade_dag as upgrade_dag
    from airflow_flinkstyle.dags.verify import verify_dag as verify_dag
    from airflow_flinkstyle.dags.watch import watch_dag as watch_dag

MODULES = {
    "adopt_dag": "adopt",
    "adopt_running_dag": "adopt_running",
    "compare_dag": "compare",
    "cut_dag": "cut",
    "dispose_dag": "dispose",
    "drill_dag": "drill",
    "drill_jobs_dag": "drill_jobs",
    "export_dag": "export",
    "fail_back_dag": "fail_back",
    "leave_dag": "leave",
    "measure_dag": "measure",
    "migration_dag": "migrate",
    "replay_dag": "replay",
    "roll_back_dag": "roll_back",
    "rotation_dag": "rotate",
    "settle_dag": "settle",
    "start_dag": "start",
    "stop_dag": "stop",
    "take_savepoint_dag": "take",
    "upgrade_dag": "upgrade",
    "verify_dag": "verify",
    "watch_dag": "watch",
}


def __getattr__(name: str) -> object:
    """Import a DAG's module when its function is first asked for."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    return found
