"""Names that become keys in the store. Pure."""

from __future__ import annotations

import hashlib

from airflow_flinkstyle.storage.keys import is_name


def new_savepoint_id(job: str, request_id: str) -> str:
    """Return the id of the savepoint that a request makes; a repeated request gives the same id."""
    return "sp-" + hashlib.sha256(f"{job}\0{request_id}".encode()).hexdigest()[:20]


def is_savepoint_id(value: str) -> bool:
    """Tell whether the text can be a savepoint's id."""
    return is_name(value)


def is_job_name(value: str) -> bool:
    """Tell whether the text can be a job's name."""
    return is_name(value)
