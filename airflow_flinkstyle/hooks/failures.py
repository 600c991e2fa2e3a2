"""The library's errors, as Airflow should treat them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.airflow_versions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Iterator


log = logging.getLogger(__name__)


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Log an error as one block, then raise it without the frames of its causes.

    Errors nobody can retry away become ``AirflowFailException``; the others keep the task's retries.
    """
    try:
        yield
    except FlinkstyleError as error:
        log.error("%s", in_a_block(error))  # noqa: TRY400 - the frames would hide it
        log.debug("Where it was raised", exc_info=error)
        kind = AirflowException if error.retryable else AirflowFailException
        raise kind(f"{error.code}: {error}") from None


def in_a_block(error: FlinkstyleError) -> str:
    """Return what a person needs first: code and problem, what runs now, what to do; details follow.

    Only the first line of each is in the block: further ones are ends of logs.
    """
    heads = (f"{error.code}: ", "Now: ", "Next: ")
    parts = [text.partition("\n") for text in (error.problem, error.state_after, error.remedy)]
    lines = [head + first for head, (first, _, _) in zip(heads, parts, strict=True)]
    details = [rest.rstrip() for _, _, rest in parts if rest.strip()]
    return "\n".join([*lines, *(["Details:", *details] if details else [])])


def failure_of(error: FlinkstyleError) -> dict[str, object]:
    """Return an error as the event of a trigger: JSON, and no decision for Airflow to take yet."""
    return {
        "code": error.code,
        "text": str(error),
        "block": in_a_block(error),
        "retryable": error.retryable,
    }


def raise_failure(failure: dict[str, object]) -> None:
    """Log in the task what ``failure_of`` brought from the triggerer, and raise it."""
    log.error("%s", failure["block"])
    kind = AirflowException if failure["retryable"] else AirflowFailException
    raise kind(f"{failure['code']}: {failure['text']}")
