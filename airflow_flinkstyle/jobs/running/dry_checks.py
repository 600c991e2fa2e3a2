"""What one check of a dry run comes to: it passes, it would refuse a start, or nobody here can judge it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Passes:
    """A start would not be refused for this."""

    says: str
    """What was found, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuses:
    """A start would be refused."""

    code: str
    """Of the error that it would get."""
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True)
class NotJudged:
    """Only the start itself, or its driver, can tell."""

    why: str


Verdict = Passes | Refuses | NotJudged


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCheck:
    """One thing that is looked at before a job starts."""

    about: str
    verdict: Verdict


def judged(about: str, look: Callable[[], str]) -> StartCheck:
    """Return what a check comes to: what it returns, or the error that a start would get.

    Args:
        about: What is checked.
        look: Returns what was found; raises as the start would.
    """
    try:
        return StartCheck(about=about, verdict=Passes(look()))
    except FlinkstyleError as error:
        if error.retryable:  # what cannot be reached now says nothing
            return StartCheck(about=about, verdict=NotJudged(error.problem))
        return StartCheck(about=about, verdict=refused(error))


def refused(error: FlinkstyleError) -> Refuses:
    """Return an error that a start would get."""
    return Refuses(code=error.code, problem=error.problem, remedy=error.remedy)
