"""Bring a running streaming job back: to its version before, or to a savepoint.

The first task shows where the job can be brought back to. Without a savepoint the version that ran before
continues where the job is, and no record is lost or counted twice. With a savepoint the version that took it
starts from there, and you choose what becomes of the batches since.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import RollBackStreamingJobOperator, ShowWaysBackOperator

JOB: dict[str, Any] = {"job": "{{ params.job }}", "flinkstyle_conn_id": "{{ params.flinkstyle_conn_id }}"}

with DAG(
    "roll_back",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags=["flinkstyle"],
    doc_md=__doc__,
    render_template_as_native_obj=True,  # an empty field arrives as None, not as "None"
    params={
        "job": Param(type="string", minLength=1, title="Job", description="Name of the running job."),
        "savepoint_id": Param(
            None,
            type=["null", "string"],
            title="Savepoint",
            description="Empty: the version before continues where the job is.",
        ),
        "rewind": Param(
            "continue",
            type="string",
            enum=["continue", "fork", "re-emit"],
            values_display={
                "continue": "No savepoint was named",
                "fork": "As a new query (fork)",
                "re-emit": "Use batch ids again (re-emit)",
            },
            title="With a savepoint: batches since",
            description="re-emit is refused for sinks that remember batch ids: they would skip the batches.",
        ),
        "skip_known_batches": Param(
            False,
            type="boolean",
            title="Accept left-out batches",
            description="A sink or a function may leave out batches whose ids it has seen.",
        ),
        "standby": Param(
            "warm",
            type="string",
            enum=["warm", "none"],
            values_display={
                "warm": "Bring it up beside the running version",
                "none": "Start it once the running version has stopped",
            },
            title="Standby",
        ),
        "rehearse_batches": Param(2, type="integer", minimum=0, title="Batches to rehearse"),
        "first_commit_timeout_s": Param(180, type="number", minimum=1, title="Seconds for the first batch"),
        "flinkstyle_conn_id": Param(
            "flinkstyle_default",
            type="string",
            title="Flinkstyle connection",
            description="Connection with the savepoint root.",
        ),
    },
) as dag:
    ways = ShowWaysBackOperator(task_id="ways_back", **JOB)
    back = RollBackStreamingJobOperator(
        task_id="roll_back",
        savepoint_id="{{ params.savepoint_id }}",
        rewind="{{ params.rewind }}",
        skip_known_batches="{{ params.skip_known_batches }}",
        standby="{{ params.standby }}",
        rehearse_batches="{{ params.rehearse_batches }}",
        first_commit_timeout_s="{{ params.first_commit_timeout_s }}",
        retries=2,
        retry_delay=timedelta(seconds=5),
        **JOB,
    )
    ways >> back
