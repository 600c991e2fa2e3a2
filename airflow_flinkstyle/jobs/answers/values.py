"""Turns answers of a form or a template, which are often text, into plain values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.errors import BadInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

S = TypeVar("S", bound=str)


def one_of(name: str, answer: str, known: Sequence[S]) -> S:
    """Return the known value that was answered."""
    for value in known:
        if value == answer:
            return value
    raise _bad(name, f"one of {', '.join(known)}", answer)


def is_true(name: str, answer: object) -> bool:
    """Return a yes or no, which a template may render as text."""
    return one_of(name, str(answer), ("True", "False")) == "True"


def is_yes(name: str, answer: str) -> bool:
    """Return a choice that people read: ``yes`` or ``no``."""
    return one_of(name, answer, ("no", "yes")) == "yes"


def text_or_none(answer: object) -> str | None:
    """Return the text that was answered; None for no answer, which a template renders as text too."""
    text = str(answer).strip()
    return None if text in ("", "None") else text


def number_or_none(name: str, answer: object) -> int | None:
    """Return the number that was answered; None for no answer, which a template renders as text too."""
    text = text_or_none(answer)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise _bad(name, "a number, or nothing", answer) from error


def seconds(name: str, answer: object) -> float:
    """Return a number of seconds, 0 or more, that may have been given as text."""
    try:
        found = float(str(answer))
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise _bad(name, "a number of seconds, 0 or more", answer)
    return found


def seconds_or_none(name: str, answer: object) -> float | None:
    """Return a duration in seconds, above 0; None for no answer.

    Args:
        name: What was asked for.
        answer: Seconds, or a number with a unit: ``90s``, ``45m``, ``36h``, ``7d``, ``2w``.
    """
    text = text_or_none(answer)
    if text is None:
        return None
    try:
        found = float(text.rstrip("".join(_UNITS_S))) * _UNITS_S.get(text[-1], 1)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf or text[-2:-1] in _UNITS_S:
        raise _bad(name, "a number of seconds above 0, a duration like 90s, 36h or 7d, or nothing", answer)
    return found


def _bad(name: str, expected: str, found: object) -> BadInputError:
    return BadInputError(
        f"Expected {name} to be {expected}, found {found!r}.",
        state_after="Nothing was changed.",
        remedy="Correct the operator's argument, the DAG's form or the command's option.",
    )
