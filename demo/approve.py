"""``python -m demo.approve``: print the plan of the migration that waits for you, and approve it.

It does what a click on Approve in Airflow's UI does. Run it in a terminal that has sourced the demo's
environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from demo.tables import Narrator, from_markdown
from testbed.airflow_api import AirflowApi

DAG, TASK = "migrate_kafka_cluster", "approve"
WAITING = ("awaiting_input", "deferred")


def main() -> int:
    """Return the exit code."""
    log = Path(os.environ["AIRFLOW_HOME"]) / "airflow.log"
    api = AirflowApi(os.environ["AIRFLOW__API__BASE_URL"], log.read_text)
    runs = api.call("GET", f"/dags/{DAG}/dagRuns?state=running&order_by=-start_date")["dag_runs"]
    if not runs:
        sys.stderr.write(f"No run of {DAG} is running. Nothing was approved. Trigger it first.\n")
        return 1
    run = runs[0]["dag_run_id"]
    api.wait_for_task(DAG, run, TASK, WAITING)
    narrator = Narrator()
    narrator.show(from_markdown("The plan to approve", api.xcom(DAG, run, "plan", "markdown")))
    api.respond(DAG, run, TASK, ["Approve"])
    narrator.say("Approved: the window begins")
    return 0


if __name__ == "__main__":
    sys.exit(main())
