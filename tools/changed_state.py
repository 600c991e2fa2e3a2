"""docs/state.md: in which store which operator's state was changed, as the last ``make test-versions`` found.

What came of each case is kept in ``tests/integration/changed_state.json``, by Spark.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tools.common import ROOT, SPARKS
from tools.compatibility import merged, read, row, ruler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    Outcomes = dict[str, dict[str, str]]
    """Spark -> ``day``, and the name of each case -> what came of it."""

PAGE = ROOT / "docs" / "state.md"
TESTS = ROOT / "tests" / "integration" / "test_changed_state.py"
OUTCOMES = TESTS.with_name("changed_state.json")
BEGIN, END = "<!-- changed state: written by its tests -->\n", "<!-- changed state: end -->\n"
PROVED = {
    "test_changed_state_goes_on_as_in_a_run_that_had_it_from_the_start": "equal",
    "test_state_that_cannot_be_changed_is_refused_by_name": "refused",
}
"""Test -> what the table says where it passed."""
_CASE = re.compile(r"(\w+)\[(.+) in (.+)\]")


def write(logs: Path) -> None:
    """Keep what the reports in a folder say, and put the table of all that is kept on the page."""
    kept: Outcomes = {**json.loads(OUTCOMES.read_text(encoding="utf-8")), **collected(logs)}
    OUTCOMES.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    PAGE.write_text(f"{before}{begin}{rendered(kept)}{end}{after}", encoding="utf-8")


def collected(logs: Path) -> Outcomes:
    """Return what the newest report of each Spark says of the cases, if there is one."""
    found: Outcomes = {}
    for minor in SPARKS:
        junits = sorted(logs.glob(f"tests-versions*-spark-{minor}.xml"), key=lambda at: at.stat().st_mtime_ns)
        for junit in junits:
            report = read([junit])
            cases = {
                f"{case[2]} in {case[3]}": PROVED[case[1]] if word == "passed" else "failed"
                for (_, name), word in report.cases.items()
                if (case := _CASE.fullmatch(name)) and case[1] in PROVED
            }
            if cases:
                found[minor] = {"day": report.date, **cases}
    return found


def rendered(kept: Outcomes) -> str:
    """Return the table: a row for each operator, a column for each store."""
    if not kept:
        return "Not run yet.\n"
    cases = [case for of in kept.values() for case in of if case != "day"]
    operators, stores = (list(dict.fromkeys(case.split(" in ")[place] for case in cases)) for place in (0, 1))
    days = " and ".join(f"{minor} ({of['day']})" for minor, of in kept.items())
    return "\n".join([f"On Spark {days}:\n", *_table(kept, operators, stores)]) + "\n"


def _table(kept: Outcomes, operators: list[str], stores: list[str]) -> Iterator[str]:
    yield from row(("operator", *stores))
    yield ruler(len(stores) + 1)
    yield from merged((name, [_cell(kept, f"{name} in {store}") for store in stores]) for name in operators)


def _cell(kept: Mapping[str, Mapping[str, str]], case: str) -> str:
    """Return what came of a case on every Spark that has it."""
    words = {minor: of[case] for minor, of in kept.items() if case in of}
    if len(set(words.values())) > 1:
        return "; ".join(f"{minor}: {word}" for minor, word in words.items())
    return next(iter(words.values()), "-")
