"""The library's errors, as Airflow should treat them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.airflow_versions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Raise errors nobody can retry away as ``AirflowFailException``; the others keep the task's retries."""
    try:
        yield
    except FlinkstyleError as error:
        kind = AirflowException if error.retryable else AirflowFailException
        raise kind(f"{error.code}: {error}") from error


def failure_of(error: FlinkstyleError) -> dict[str, object]:
    """Return an error as the event of a trigger: JSON, and no decision for Airflow to take yet."""
    return {"code": error.code, "text": str(error), "retryable": error.retryable}


def raise_failure(failure: dict[str, object]) -> None:
    """Raise in the task what ``failure_of`` brought from the triggerer."""
    kind = AirflowException if failure["retryable"] else AirflowFailException
    raise kind(f"{failure['code']}: {failure['text']}")
