"""Replace a running streaming job by a new version: script, arguments or Spark settings.

With batches to compare, both versions first run the same records on scratch copies. A difference ends the
upgrade; or you expect one, then you see it and approve it.

The new version is brought up beside the running one, which then stops with a savepoint. A version that does
not come up never stops the running one. If it fails before its first commit, the old version is started
again. If it fails later, your choice in the form decides.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import Param

from airflow_flinkstyle.dags.fields import (
    MORE,
    compare_fields,
    job_fields,
    leave_fields,
    place_fields,
    skip_known_fields,
    trial_fields,
    untested_fields,
    version_fields,
)
from airflow_flinkstyle.dags.form import Form, Job
from airflow_flinkstyle.operators.compare import ApproveDifferenceOperator, CompareUpgradeOperator
from airflow_flinkstyle.operators.upgrade import UpgradeStreamingJobOperator

if TYPE_CHECKING:
    from airflow.sdk import DAG


def upgrade_dag(job: Job = None, *, dag_id: str | None = None, **given: Any) -> DAG:
    """Return a DAG that replaces a running job by a new version of it.

    Args:
        job: A name; or a definition, whose script, arguments and settings are the new version (settings
            that it does not name stay); None: the form asks.
        dag_id: None for ``upgrade_job``, with the job's name behind it if it is known.
        given: Answers by the names of the form's fields, or ``Param``s to ask otherwise; all others are
            arguments of ``DAG``.
    """
    fields = {**_version(), **_health(), **trial_fields(), **untested_fields(), **_comparison(), **_places()}
    form = Form(fields, job, given)
    with form.dag("upgrade_job", dag_id, __doc__, max_active_runs=1) as dag:
        version = {
            **form.job,
            **form.answers("spark_conn_id", "script", "args", "conf", "leave_checkpoints"),
            **form.answers("shuffle_partitions", "state_provider", "state_changes"),
            "retries": 2,
            "retry_delay": timedelta(seconds=5),
        }
        comparison: Any = "{{ ti.xcom_pull(task_ids='compare') }}"
        compare = CompareUpgradeOperator(
            task_id="compare",
            **version,
            **form.answers("compare_batches", "compare_records", "compare_from"),
            **form.answers("keys", "ignore", "tolerance", "allow_writes", "expect"),
        )
        approve = ApproveDifferenceOperator(
            task_id="approve",
            subject=f"The versions of job {form.shown('job')} differ in their results. Upgrade it?",
            body="{{ ti.xcom_pull(task_ids='compare', key='markdown') }}",
            comparison=comparison,
        )
        upgrade = UpgradeStreamingJobOperator(
            task_id="upgrade",
            trigger_rule="none_failed",  # the comparison may be skipped
            **version,
            **form.answers("if_committed", "skip_known_batches"),
            **form.answers("standby", "rehearse_batches", "rehearse_records", "observe_s", "max_lag"),
            **form.answers("allow_untested", "min_rate", "first_commit_timeout_s"),
            comparison=comparison,
        )
        compare >> approve >> upgrade
    return dag


def _version() -> dict[str, Param]:
    return {**job_fields("Name of the running job."), **version_fields()}


def _comparison() -> dict[str, Param]:
    """Return the fields about comparing both versions first, which most upgrades do not use."""
    fields = compare_fields(MORE, differs="A difference, which you approve")
    return {
        "compare_batches": Param(
            0,
            type="integer",
            minimum=0,
            maximum=1000,
            title="Batches to compare",
            description="Both versions run them on scratch copies, and what they compute is compared before "
            "the running version stops. 0: not compared.",
            section=MORE,
        ),
        "compare_records": Param(
            250_000, type="integer", minimum=1, title="Records of a compared batch", section=MORE
        ),
        "compare_from": Param(
            None,
            type=["null", "string"],
            title="Savepoint to compare from",
            description="Empty: the newest. An older one has more records after it.",
            section=MORE,
        ),
        **{name: fields[name] for name in ("keys", "ignore", "tolerance", "allow_writes", "expect")},
    }


def _health() -> dict[str, Param]:
    return {
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
            description="Per topic or Kafka source, while it is observed.",
            section=MORE,
        ),
        "min_rate": Param(
            0.5,
            type=["null", "number"],
            minimum=0,
            maximum=1,
            title="Part of the rate it must keep",
            description="Of the old version's input rows per second, if it falls behind.",
            section=MORE,
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
            description="Empty: it keeps running if it can; else the job stays stopped. Sinks that remember "
            "batch ids skip re-emitted ones.",
            section=MORE,
        ),
        **skip_known_fields(),
        **leave_fields(),
    }


def _places() -> dict[str, Param]:
    return {
        "shuffle_partitions": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Shuffle partitions",
            description="Spread the state over so many; empty for as many as it has. State in RocksDB only.",
            section=MORE,
        ),
        "state_provider": Param(
            None,
            type=["null", "string"],
            enum=[None, "rocksdb"],
            values_display={"rocksdb": "Move it to RocksDB"},
            title="State store",
            description="Empty: where it is. From Spark's default provider to RocksDB; there is no way back.",
            section=MORE,
        ),
        "state_changes": Param(
            None,
            type=["null", "string"],
            title="Changes of the state",
            description="What the new version needs done to it: module:name of changes beside the script, or "
            "ready-made ones as JSON. State in RocksDB only.",
            section=MORE,
        ),
        **place_fields("Where the new version runs; empty for where the job runs now."),
    }
