"""Take a savepoint of every job on a schedule, verify it, and prune the old ones.

The Airflow variable `flinkstyle_rotation` lists the jobs and how much history each keeps, as JSON:
`[{"job": "orders", "max_count": 24, "max_age": "7d", "level": "quick"}]`; only `job` is required. An entry
that cannot be used fails `every_entry_is_used` and is named there; the other jobs are rotated. The log of
`prune_savepoints` says for every savepoint whether it was kept or disposed of, and why. Pinned savepoints,
those that a run or an open migration needs, and the newest complete and verified one are always kept. A job
that fails does not stop the others.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task, task_group

from airflow_flinkstyle.operators import (
    PruneSavepointsOperator,
    TakeSavepointOperator,
    VerifySavepointOperator,
)

RETRIES: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(seconds=10)}

with DAG(
    "rotate_savepoints",
    schedule=timedelta(hours=1),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["flinkstyle"],
    doc_md=__doc__,
    params={
        "rotation": Param(
            None,
            type=["null", "array"],
            title="Jobs",
            description="Instead of the variable flinkstyle_rotation: a list of objects with job, max_count, "
            "max_age (36h, 7d, or seconds) and level (quick or full).",
        ),
        "flinkstyle_conn_id": Param(
            "flinkstyle_default",
            type="string",
            title="Flinkstyle connection",
            description="Connection with the savepoint root.",
        ),
        "dry_run": Param(
            False, type="boolean", title="Dry run", description="Only list what would be disposed of."
        ),
    },
) as dag:

    @task
    def jobs(params: dict[str, Any]) -> list[dict[str, Any]]:
        """Read what to rotate: one mapped group of tasks each."""
        from airflow_flinkstyle.hooks.rotation import rotation

        found = rotation(params["rotation"])
        get_current_context()["ti"].xcom_push(key="refused", value=found.refused)
        return found.rows

    @task
    def every_entry_is_used() -> None:
        """Fail if an entry of the list could not be used, and name it."""
        from airflow_flinkstyle.hooks.rotation import require_all

        require_all(get_current_context()["ti"].xcom_pull(task_ids="jobs", key="refused") or [])

    @task_group
    def rotate(job: str, max_count: int | None, max_age_s: float | None, level: str) -> None:
        common = {"job": job, "flinkstyle_conn_id": "{{ params.flinkstyle_conn_id }}", **RETRIES}
        taken = TakeSavepointOperator(task_id="take_savepoint", deferrable=True, **common)
        verified = VerifySavepointOperator(
            task_id="verify_savepoint",
            savepoint_id="{{ ti.xcom_pull(task_ids='rotate.take_savepoint', map_indexes=ti.map_index) }}",
            level=level,
            **common,
        )
        pruned = PruneSavepointsOperator(
            task_id="prune_savepoints",
            max_count=max_count,
            max_age_s=max_age_s,
            dry_run="{{ params.dry_run }}",
            **common,
        )
        taken >> verified >> pruned

    found = jobs()  # type: ignore[call-arg] # Airflow fills params in
    rotate.expand_kwargs(found)
    found >> every_entry_is_used()
