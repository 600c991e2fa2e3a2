"""What the page's API answers to what a person is about to do, as OpenAPI shows it. Types only."""

# Pydantic reads the annotations at run time, so they are not postponed.

from typing import Annotated

from pydantic import Field

from airflow_flinkstyle.plugin.answers import Answer


class StartCheckAnswer(Answer):
    """One check of a dry run."""

    about: str
    verdict: Annotated[str, Field(description="passes, refused or not judged.")]
    says: str
    code: str | None
    remedy: str | None


class DryStartAnswer(Answer):
    """What a start from a savepoint would meet."""

    savepoint_id: str
    read_at_ms: int
    since: Annotated[dict[str, int | None], Field(description="Query -> batches committed since.")]
    restores_files: int
    restores_bytes: int
    checks: list[StartCheckAnswer]
    ways: Annotated[
        dict[str, list[StartCheckAnswer]], Field(description="continue, fork, re-emit -> what it adds.")
    ]
    kafka_connections: Annotated[list[str], Field(description="By which the job's own rules log in.")]


class Actions(Answer):
    """What this user may do."""

    dags: Annotated[dict[str, str], Field(description="What a button does -> the DAG that it opens.")]
    refresh: bool
    pin: bool
    logs: bool
    kafka: bool


class Begun(Answer):
    """Whether the jobs are read again."""

    begun: bool


class Pinned(Answer):
    """Why a savepoint is kept."""

    pinned: str | None


class PinReason(Answer):
    """Why a savepoint is to be kept."""

    reason: Annotated[str, Field(min_length=1, max_length=500)]
