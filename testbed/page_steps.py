"""The commands of a page of the documentation, and what the page says that they show."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCK = re.compile(r"^```(bash repeat|bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIABLE = re.compile(r"(\s*\.\.\.\s*|\d[\d,.]*|\s+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, and what the page shows for it."""

    command: str
    repeat: bool
    """Whether the reader runs it until it shows that: a block that begins with ``bash repeat``."""
    shown: tuple[str, ...]
    """The ``text`` blocks between this command and the next one."""


def steps(page: str) -> list[Step]:
    """Return the commands of a page in order."""
    found: list[Step] = []
    for kind, body in _BLOCK.findall(page):
        if kind == "text":
            before = found.pop()
            found.append(
                Step(command=before.command, repeat=before.repeat, shown=(*before.shown, body.strip()))
            )
        else:
            found.append(Step(command=body.strip(), repeat=kind == "bash repeat", shown=()))
    return found


def shows(output: str, expected: str) -> bool:
    """Whether an output holds what a page shows: numbers and spaces may differ, ``...`` is anything."""
    pattern = "".join(_pattern(part) for part in _VARIABLE.split(expected.strip()))
    return re.search(pattern, output, re.DOTALL) is not None


def _pattern(part: str) -> str:
    if part.strip() == "...":
        return ".*?"
    if part.isspace():
        return r"\s+"
    return r"\d[\d,.]*" if part[:1].isdigit() else re.escape(part)
