"""A job and a Spark as a start names them."""

from __future__ import annotations

from typing import Any

from airflow_flinkstyle.jobs.spec import JobSpec
from airflow_flinkstyle.jobs.target import SubmitTarget, target_of
from airflow_flinkstyle.protocol.records import KafkaOverride

SECRET = "AKIA-very-secret"  # noqa: S105


def a_spec(**changes: object) -> JobSpec:
    values = {
        "name": "orders",
        "script": "/jobs/orders.py",
        "args": ("--topic", "orders"),
        "conf": {"spark.sql.shuffle.partitions": "4"},
        "overrides": (KafkaOverride(role="source", servers="old:9092", options={"a": "b"}),),
        "checkpoint_root": "/checkpoints/",
    }
    return JobSpec(**{**values, **changes})


def a_target(**changes: object) -> SubmitTarget:
    """Return a target by the names that its record has."""
    values: dict[str, Any] = {
        "master": "local[2]",
        "python": "/venv/bin/python",
        "conf": {"spark.sql.shuffle.partitions": "200", "spark.x": "1"},
        "jars": ("/a.jar", "/b.jar"),
        "secret_env": {"AWS_SECRET_ACCESS_KEY": SECRET},
        "log_dir": "/logs",
    }
    given = {**values, **changes}
    return target_of(given, secret_env=given.pop("secret_env"))
