"""What a second terminal needs beside ``make demo-ui``: an environment to source, and the DAGs' forms."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

from testbed import paths
from testbed.keys import SIGNING_ENV

if TYPE_CHECKING:
    from pathlib import Path

    from demo.stage import Stage

FOLDER = paths.HOME / "demo"
NEW_VERSION = FOLDER / "orders_v2.py"
"""Where the tutorial writes the new version of the script."""


def write_terminal(stage: Stage) -> Path:
    """Write the forms and the environment; return the file to source."""
    for dag, form in _forms(stage).items():
        (FOLDER / f"{dag}.json").write_text(json.dumps(form, indent=2) + "\n")
    file = FOLDER / "env"
    file.touch(mode=0o600)  # it holds the demo's keys
    variables = _variables(stage)
    file.write_text("".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()))
    return file


def _forms(stage: Stage) -> dict[str, dict[str, Any]]:
    orders = stage.orders
    return {
        "start_job": orders.start_form(),
        "upgrade_job": {"job": orders.spec.name, "script": str(NEW_VERSION)},
        "migrate_kafka_cluster": orders.migration_form(),
    }


def _variables(stage: Stage) -> dict[str, str]:
    orders, airflow = stage.orders, stage.airflow
    return {
        "PATH": airflow.env["PATH"],
        "FLINKSTYLE_ROOT": orders.store_uri,
        "FLINKSTYLE_JOB": orders.spec.name,
        **orders.secret_env,
        **SIGNING_ENV,
        **{name: value for name, value in airflow.env.items() if name.startswith("AIRFLOW")},
    }
