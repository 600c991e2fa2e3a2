"""DAGs that tell a team on call, for the folder of your DAGs: change the addresses and the jobs.

They need ``apache-airflow-providers-smtp`` and a connection ``smtp_default``; every other notifier of Airflow
(Slack, PagerDuty, Opsgenie) goes in the same places.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from airflow_flinkstyle.dags import migration_dag, rotation_dag, upgrade_dag, watch_dag

ON_CALL, TEAM = "on-call@example.com", "streaming@example.com"


def mail(to: str, subject: str) -> SmtpNotifier:
    """Return a mail with the error: its code, what happened, what runs now, what to do."""
    return SmtpNotifier(
        to=to,
        from_email="airflow@example.com",
        subject=subject,
        html_content="<p>{{ dag.dag_id }}, {{ ti.task_id }}, run {{ run_id }}</p>"
        "<pre>{{ (exception or '') | e }}</pre>",
    )


# A driver that failed, a savepoint that is too old: a task fails for each job, at once and every hour.
watch = watch_dag(
    dag_id="watch_jobs_on_call",
    default_args={
        "on_failure_callback": mail(ON_CALL, "Job {{ ti.rendered_map_index or ti.task_id }} needs a look")
    },
)

# A savepoint that could not be taken, verified or pruned: not tonight's business.
rotate = rotation_dag(
    dag_id="rotate_savepoints_on_call",
    default_args={"on_failure_callback": mail(TEAM, "Rotation: {{ ti.task_id }} failed")},
)

# A new version that was refused, or rolled back.
upgrade = upgrade_dag(
    "orders",
    dag_id="upgrade_orders_on_call",
    default_args={"on_failure_callback": mail(TEAM, "The upgrade of orders failed")},
)

# A plan that is refused or rolled back, an approval that waits, and a migration that takes too long.
migrate = migration_dag(
    "orders",
    dag_id="migrate_orders_on_call",
    default_args={
        "notifiers": [mail(TEAM, "The migration of orders waits for your approval")],
        "on_failure_callback": mail(ON_CALL, "The migration of orders: {{ ti.task_id }} failed"),
    },
    deadline=DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(hours=2),
        callback=AsyncCallback(
            SmtpNotifier,
            kwargs={
                "to": ON_CALL,
                "from_email": "airflow@example.com",
                "subject": "The migration of orders has not ended after two hours",
                "html_content": "Look at its tasks; producers may be held.",
            },
        ),
    ),
)
