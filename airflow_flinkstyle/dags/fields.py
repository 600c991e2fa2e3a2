"""Fields that several DAGs ask for."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from airflow_flinkstyle.hooks.defined_jobs import defined_jobs
from airflow_flinkstyle.hooks.page_roots import DEFAULT_CONNECTION

MORE = "More"
"""Section of the fields that most people leave as they are; below those without a section."""


def job_fields(description: str) -> dict[str, Param]:
    """Return the field for the job, which suggests those that are defined."""
    names = sorted(defined_jobs().jobs)
    suggested: dict[str, Any] = {"examples": names} if names else {}
    return {"job": Param(type="string", minLength=1, title="Job", description=description, **suggested)}


def savepoint_fields() -> dict[str, Param]:
    """Return the field for one savepoint, by default the newest one."""
    return {
        "savepoint_id": Param(
            "latest",
            type="string",
            minLength=1,
            title="Savepoint",
            description="Which one; 'latest' is the newest.",
        ),
    }


def connection_fields() -> dict[str, Param]:
    """Return the field for the savepoint root."""
    return {
        "flinkstyle_conn_id": Param(
            DEFAULT_CONNECTION,
            type="string",
            title="Flinkstyle connection",
            description="With the savepoint root; another one must list this DAG (dags).",
            section=MORE,
        ),
    }


def place_fields(description: str, section: str = MORE) -> dict[str, Param]:
    """Return the fields for the savepoint root, and for the Spark connection if it is not the job's."""
    return {
        **connection_fields(),
        "spark_conn_id": Param(
            None, type=["null", "string"], title="Spark connection", description=description, section=section
        ),
    }


def program_fields(section: str | None = None) -> dict[str, Param]:
    """Return the fields for what a driver runs; ``section`` is that of all but the script."""
    return {
        "script": Param(
            type="string", minLength=1, title="Script", description="PySpark script, as the driver sees it."
        ),
        "args": Param(
            None,
            type=["null", "array"],
            title="Arguments",
            description="Of the script, one per line.",
            section=section,
        ),
        "conf": Param(None, type=["null", "object"], title="Spark settings", section=section),
    }


def driver_fields() -> dict[str, Param]:
    """Return the fields for where a driver runs, and its environment."""
    return {
        "env": Param(
            None,
            type=["null", "object"],
            title="Environment of the driver",
            description="It is recorded, so no secrets.",
            section=MORE,
        ),
        **connection_fields(),
        "spark_conn_id": Param(
            "spark_default",
            type="string",
            title="Spark connection",
            description="Where the driver runs.",
            section=MORE,
        ),
    }


def outside_fields() -> dict[str, Param]:
    """Return the fields for a job that plain Spark runs or ran."""
    return {
        "checkpoints": Param(
            type="object",
            title="Checkpoints",
            description='The location of each query, as its script names it: {"totals": "s3a://bucket/ck"}.',
        ),
        "kafka_conn_ids": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Kafka connections",
            description="Of the clusters that the script reads, one a line: no checkpoint names them.",
        ),
    }


def skip_known_fields() -> dict[str, Param]:
    """Return the field that accepts that a sink skips batches."""
    return {
        "skip_known_batches": Param(
            False,
            type="boolean",
            title="Accept skipped batches",
            description="A sink or a function may skip batches whose ids it has seen.",
            section=MORE,
        ),
    }


def table_fields() -> dict[str, Param]:
    """Return the field that takes back what a job has written into tables."""
    return {
        "restore_tables": Param(
            "no",
            type="string",
            enum=["no", "yes"],
            values_display={"no": "Keep them: rows may be there twice", "yes": "Take them back"},
            title="Rows since, in Delta and Iceberg",
            description="For fork and re-emit. Refused where others have written to the table since.",
            section=MORE,
        ),
    }


def leave_fields() -> dict[str, Param]:
    """Return the field that leaves checkpoints of plain Spark behind."""
    return {
        "leave_checkpoints": Param(
            None,
            type=["null", "array"],
            examples=["s3a://bucket/checkpoints/orders"],
            title="Checkpoints left behind",
            description="Of plain Spark, one location per line, as the refusal names them: their queries "
            "begin from scratch.",
            section=MORE,
        ),
    }


def trial_fields() -> dict[str, Param]:
    """Return the fields about the next version, before and right after it has taken the job over."""
    return {
        "standby": Param(
            "warm",
            type="string",
            enum=["warm", "none"],
            values_display={
                "warm": "Bring it up beside the running version",
                "none": "Start it once the running version has stopped",
            },
            title="Standby",
            description="Beside the running version it needs the resources of a second driver.",
            section=MORE,
        ),
        "rehearse_batches": Param(
            2,
            type="integer",
            minimum=0,
            title="Batches to rehearse",
            description="Run on a scratch copy before the running version stops, writing nothing. 0: none.",
            section=MORE,
        ),
        "rehearse_records": Param(
            10_000, type="integer", minimum=1, title="Records of a rehearsed batch", section=MORE
        ),
        "first_commit_timeout_s": Param(
            180, type="number", minimum=1, title="Seconds for the first batch", section=MORE
        ),
    }


def untested_fields(section: str = MORE) -> dict[str, Param]:
    """Return the field that lets a version take over though the rehearsal could not test it."""
    return {
        "allow_untested": Param(
            False,
            type="boolean",
            title="Allow a version that was not tested",
            description="A rehearsal cannot test a query for which there are no records to read.",
            section=section,
        ),
    }


def version_fields(section: str | None = None) -> dict[str, Param]:
    """Return the fields for a new version of a job; ``section`` is that of all but the arguments."""
    return {
        "script": Param(
            None,
            type=["null", "string"],
            title="Script",
            description="The new PySpark script, as the driver sees it; empty for the same.",
            section=section,
        ),
        "args": Param(
            None,
            type=["null", "array"],
            title="Arguments",
            description="All arguments of the script, one per line; empty for the same, - for none.",
        ),
        "conf": Param(
            None,
            type=["null", "object"],
            title="Spark settings",
            description="Settings to change; null removes one.",
            section=section,
        ),
    }


def compare_fields(
    section: str | None = None, *, differs: str = "Report whatever is found"
) -> dict[str, Param]:
    """Return the fields about how two versions are compared; ``differs``: label of that answer."""
    return {
        "keys": Param(
            None,
            type=["null", "object"],
            title="Keys",
            description='By query, the columns that identify its rows: {"totals": ["customer"]}. Without, '
            "whole rows are compared.",
            section=section,
        ),
        "ignore": Param(
            None,
            type=["null", "array"],
            title="Columns that may differ",
            description="One per line; name:order if only the order of an array may.",
            section=section,
        ),
        "tolerance": Param(
            None,
            type=["null", "object"],
            title="Tolerance",
            description='By column, how much numbers may differ: {"price": 0.01}.',
            section=section,
        ),
        "state": Param(True, type="boolean", title="Compare the state too", section=section),
        "allow_writes": Param(
            False,
            type="boolean",
            title="Let scripts write past their queries",
            description="Each compared run repeats these writes. Else a detected one fails the comparison.",
            section=section,
        ),
        "expect": Param(
            "same",
            type="string",
            enum=["same", "differs"],
            values_display={"same": "The same, else fail", "differs": differs},
            title="Expected",
            section=section,
        ),
    }
