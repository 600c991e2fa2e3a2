"""Start a streaming job where it was last; or from its checkpoint, from a savepoint, or fresh.

A job that has never run starts fresh. To start a job fresh that has run, name the history it gives up.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import StartStreamingJobOperator

with DAG(
    "start_job",
    schedule=None,
    catchup=False,
    tags=["flinkstyle"],
    doc_md=__doc__,
    render_template_as_native_obj=True,  # an empty field arrives as None, not as "None"
    params={
        "job": Param(
            type="string", minLength=1, title="Job", description="A name, unique under the savepoint root."
        ),
        "script": Param(
            type="string", minLength=1, title="Script", description="PySpark script, as the driver sees it."
        ),
        "args": Param(
            None,
            type=["null", "array"],
            title="Arguments",
            description="Arguments of the script, one per line.",
        ),
        "conf": Param(None, type=["null", "object"], title="Spark settings"),
        "start_from": Param(
            "last_state",
            enum=["last_state", "checkpoint", "savepoint", "fresh"],
            values_display={
                "last_state": "Where the job was last",
                "checkpoint": "The last run's checkpoint, nothing else",
                "savepoint": "A savepoint",
                "fresh": "An empty checkpoint",
            },
            title="Start from",
        ),
        "discard_history": Param(
            None,
            type=["null", "string"],
            examples=["generation 3"],
            title="History given up",
            description="To start a job fresh that has run: its last run, in the words of the refusal.",
        ),
        "savepoint_id": Param(
            None,
            type=["null", "string"],
            examples=["latest"],
            title="Savepoint",
            description="Which one, if it starts from a savepoint; 'latest' is the newest.",
        ),
        "rewind": Param(
            "continue",
            type="string",
            enum=["continue", "fork", "re-emit"],
            values_display={
                "continue": "Refuse (continue)",
                "fork": "As a new query (fork)",
                "re-emit": "Use batch ids again (re-emit)",
            },
            title="If the job has run past the savepoint",
            description="re-emit is refused for sinks that remember batch ids: they would skip the batches.",
        ),
        "skip_known_batches": Param(
            False,
            type="boolean",
            title="Accept left-out batches",
            description="A sink or a function may leave out batches whose ids it has seen.",
        ),
        "flinkstyle_conn_id": Param(
            "flinkstyle_default",
            type="string",
            title="Flinkstyle connection",
            description="Connection with the savepoint root.",
        ),
        "spark_conn_id": Param(
            "spark_default",
            type="string",
            title="Spark connection",
            description="Where the driver runs.",
        ),
    },
) as dag:
    StartStreamingJobOperator(
        task_id="start",
        job="{{ params.job }}",
        flinkstyle_conn_id="{{ params.flinkstyle_conn_id }}",
        spark_conn_id="{{ params.spark_conn_id }}",
        script="{{ params.script }}",
        args="{{ params.args }}",
        conf="{{ params.conf }}",
        start_from="{{ params.start_from }}",
        discard_history="{{ params.discard_history }}",
        savepoint_id="{{ params.savepoint_id }}",
        rewind="{{ params.rewind }}",
        skip_known_batches="{{ params.skip_known_batches }}",
        retries=1,
        retry_delay=timedelta(seconds=5),
    )
