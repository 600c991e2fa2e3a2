"""Replace a running streaming job by a new version: script, arguments or Spark settings.

The new version is brought up beside the running one, which then stops with a savepoint. A version that does
not come up never stops the running one. If it fails before its first commit, the old version is started
again. If it fails later, your choice in the form decides.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_flinkstyle.operators import UpgradeStreamingJobOperator

with DAG(
    "upgrade_job",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    tags=["flinkstyle"],
    doc_md=__doc__,
    render_template_as_native_obj=True,  # an empty field arrives as None, not as "None"
    params={
        "job": Param(type="string", minLength=1, title="Job", description="Name of the running job."),
        "script": Param(
            None,
            type=["null", "string"],
            title="Script",
            description="The new PySpark script, as the driver sees it; empty for the same.",
        ),
        "args": Param(
            None,
            type=["null", "array"],
            title="Arguments",
            description="All arguments of the script, one per line; empty for the same.",
        ),
        "conf": Param(
            None,
            type=["null", "object"],
            title="Spark settings",
            description="Settings to change; null takes one away.",
        ),
        "if_committed": Param(
            None,
            type=["null", "string"],
            enum=[None, "fork", "re-emit"],
            values_display={
                "fork": "Roll back as a new query (fork)",
                "re-emit": "Roll back and use batch ids again (re-emit)",
            },
            title="If it fails after it has committed",
            description="Empty: leave the job stopped. Sinks that remember batch ids skip re-emitted ones.",
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
            description="Beside the running version it needs the resources of a second driver meanwhile.",
        ),
        "shuffle_partitions": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Shuffle partitions",
            description="Spread the state over so many; empty for as many as it has. State in RocksDB only.",
        ),
        "rehearse_batches": Param(
            2,
            type="integer",
            minimum=0,
            title="Batches to rehearse",
            description="Run on a scratch copy before the running version stops, writing nothing. 0: none.",
        ),
        "rehearse_records": Param(10_000, type="integer", minimum=1, title="Records of a rehearsed batch"),
        "observe_s": Param(
            0,
            type="number",
            minimum=0,
            title="Seconds to observe it",
            description="After its first batch. If it is not well, the old version continues where it is.",
        ),
        "max_lag": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            title="Records it may be behind",
            description="Per topic, or source of Kafka, when it was observed.",
        ),
        "min_rate": Param(
            0.5,
            type=["null", "number"],
            minimum=0,
            maximum=1,
            title="Part of the rate it must keep",
            description="Of the old version's input rows per second, if it falls behind.",
        ),
        "first_commit_timeout_s": Param(180, type="number", minimum=1, title="Seconds for the first batch"),
        "flinkstyle_conn_id": Param(
            "flinkstyle_default",
            type="string",
            title="Flinkstyle connection",
            description="Connection with the savepoint root.",
        ),
        "spark_conn_id": Param(
            None,
            type=["null", "string"],
            title="Spark connection",
            description="Where the new version runs; empty for where the job runs now.",
        ),
    },
) as dag:
    UpgradeStreamingJobOperator(
        task_id="upgrade",
        job="{{ params.job }}",
        flinkstyle_conn_id="{{ params.flinkstyle_conn_id }}",
        spark_conn_id="{{ params.spark_conn_id }}",
        script="{{ params.script }}",
        args="{{ params.args }}",
        conf="{{ params.conf }}",
        if_committed="{{ params.if_committed }}",
        skip_known_batches="{{ params.skip_known_batches }}",
        shuffle_partitions="{{ params.shuffle_partitions }}",
        standby="{{ params.standby }}",
        rehearse_batches="{{ params.rehearse_batches }}",
        rehearse_records="{{ params.rehearse_records }}",
        observe_s="{{ params.observe_s }}",
        max_lag="{{ params.max_lag }}",
        min_rate="{{ params.min_rate }}",
        first_commit_timeout_s="{{ params.first_commit_timeout_s }}",
        retries=2,
        retry_delay=timedelta(seconds=5),
    )
