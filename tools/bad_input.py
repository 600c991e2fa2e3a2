"""Write docs/bad-input.md from the errors that the package has: ``python -m tools.bad_input``.

A code's sentence is the first one of its class's docstring, or what its kind means; its place is where the
incident cookbook has its row.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import airflow_flinkstyle
from airflow_flinkstyle.errors import FlinkstyleError
from tools.common import ROOT, say

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "docs" / "bad-input.md"
COOKBOOK = ROOT / "docs" / "cookbook.md"
_HEAD = (
    "# Bad input, and all other refusals\n\n"
    "Written by `python -m tools.bad_input` from the errors of the package. Every error has a fixed code and "
    "three sentences: the problem (what was expected, what was found), what is left behind and runs now, and "
    "what to do. No error loses data; unless its own sentence says otherwise, a refusal leaves everything as "
    "it was.\n\n"
    "*Passes*: the same call can succeed later with nobody changing anything, so Airflow tries the task "
    "again. A driver that refuses to start writes its error into its heartbeat and exits 1; its caller gets "
    "`DRIVER_FAILED` with that error and the end of the driver's log. A migration that is rolled back ends "
    "as `ROLLED_BACK`, an upgrade as `UPGRADE_ROLLED_BACK`, both with the error that caused it. What to do "
    "about each code is in the [incident cookbook](cookbook.md).\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the page says of one code."""

    means: str
    passes: bool


def main() -> int:
    """Write it."""
    PAGE.write_text(text(), encoding="utf-8")
    say(f"Wrote {PAGE.relative_to(ROOT)}")
    return 0


def text() -> str:
    """Return the page: each code once, under the heading that the cookbook has it under.

    Raises:
        KeyError: If the cookbook has a row for a code that the package has not.
    """
    known = entries()
    parts = [_HEAD]
    for heading, codes in _groups():
        parts += [f"## {heading}\n", *(_row(code, known[code]) for code in codes), ""]
    return "\n".join(parts)


def entries() -> dict[str, Entry]:
    """Return all codes that something is raised with: not those of families, from which others are made."""
    for module in pkgutil.walk_packages(airflow_flinkstyle.__path__, "airflow_flinkstyle."):
        if module.name.endswith(".errors"):
            importlib.import_module(module.name)
    found: dict[str, Entry] = {}
    for kind in sorted(classes(), key=lambda one: (len(one.__mro__), one.__module__)):
        means = inspect.cleandoc(kind.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
        if not means.startswith("Root of ") and kind.code not in found:
            found[kind.code] = Entry(means=means, passes=kind.retryable)
    return found


def classes(root: type[FlinkstyleError] = FlinkstyleError) -> Iterator[type[FlinkstyleError]]:
    """Yield the package's classes below one of its errors."""
    for kind in root.__subclasses__():
        if kind.__module__.startswith("airflow_flinkstyle"):
            yield kind
            yield from classes(kind)


def _groups() -> Iterator[tuple[str, list[str]]]:
    for section in COOKBOOK.read_text(encoding="utf-8").split("\n## ")[1:]:
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        codes = [code for row in rows for code in re.findall(r"`([A-Z_]+)`", row)]
        if codes:
            yield section.partition("\n")[0], codes


def _row(code: str, entry: Entry) -> str:
    return f"- `{code}`: {entry.means}{' *Passes.*' if entry.passes else ''}"


if __name__ == "__main__":
    sys.exit(main())
