"""The library's errors, as Airflow should treat them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.airflow_versions import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


log = logging.getLogger(__name__)


@contextmanager
def airflow_errors() -> Iterator[None]:
    """Raise an error as Airflow's own, without the frames of its causes: a task's log ends with its text.

    Errors that no retry can cure become ``AirflowFailException``; the others keep the task's retries.
    """
    try:
        yield
    except FlinkstyleError as error:
        log.debug("Where it was raised", exc_info=error)
        raise _raised(failure_of(error)) from None


def in_a_block(error: FlinkstyleError) -> str:
    """Return what a person needs: code and problem, what runs now, what to do, a line each."""
    heads = (f"{error.code}: ", "Now: ", "Next: ")
    texts = (error.problem, error.state_after, error.remedy)
    return "\n".join(head + text.strip().partition("\n")[0] for head, text in zip(heads, texts, strict=True))


def details_of(error: FlinkstyleError) -> str:
    """Return the further lines of an error: frames of a script, the end of a log; empty if there are none."""
    texts = (text.strip().partition("\n")[2] for text in (error.problem, error.state_after, error.remedy))
    return "\n".join(filter(None, texts))


def failure_of(error: FlinkstyleError) -> dict[str, object]:
    """Return an error as the event of a trigger: JSON, which the task raises."""
    return {
        "block": in_a_block(error),
        "details": details_of(error),
        "retryable": error.retryable,
    }


def raise_failure(failure: dict[str, object]) -> None:
    """Raise in the task the failure that the triggerer sent (``failure_of``)."""
    raise _raised(failure)


def _raised(failure: Mapping[str, object]) -> Exception:
    """Log the details, and return the exception to raise.

    Airflow's log shows the exception's text after its frames, its page before them: so the text alone holds
    what to do, once.
    """
    if failure["details"]:
        log.error("Details of what follows:\n%s", failure["details"])
    kind = AirflowException if failure["retryable"] else AirflowFailException
    return kind(failure["block"])
