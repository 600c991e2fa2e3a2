"""Keys of the requests of a task, the same for every try."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.request_slot import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context


_VARIABLES = {"dag_id": "DAG_ID", "run_id": "DAG_RUN_ID", "task_id": "TASK_ID"}


def request_key(context: Context, asked: Mapping[str, Any] | None = None) -> str:
    """Return the key of a request: DAG run, task and map index, without the try number: a retry re-attaches.

    Args:
        context: The task's.
        asked: The answers that make it this request: the same task with others does not re-attach.
    """
    ti = context["ti"]
    return _key(ti.dag_id, ti.task_id, ti.run_id, str(ti.map_index), asked=asked)


def run_key(context: Context) -> str:
    """Return a key that all tasks of one DAG run share."""
    ti = context["ti"]
    return _key(ti.dag_id, ti.run_id)


def was_cleared(context: Context, *, retries: int) -> bool:
    """Return whether a person has cleared the task since its first try, so that it makes a new request.

    Airflow gives a cleared task its retries once more, on top of the tries that it has had. Nothing else
    distinguishes a clear from a retry; a later retry of a cleared task looks the same.
    """
    return getattr(context["ti"], "max_tries", retries) > retries


def asked_by() -> dict[str, str]:
    """Return the Airflow task that this process runs, from its environment; empty for none."""
    identity = {name: os.environ.get(f"AIRFLOW_CTX_{variable}", "") for name, variable in _VARIABLES.items()}
    return identity if all(identity.values()) else {}


def _key(*parts: str, asked: Mapping[str, Any] | None = None) -> str:
    """Join into a name that can be part of an object's key: readable first, unique by its digest."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts[:2])).strip("._-")[:60]
    return f"{readable or 'run'}-{digest_of(*parts, asked=asked)}"
