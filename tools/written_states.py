"""The table of docs/state.md: whose state was written on which Spark, from the reports of its tests.

``make test-versions AREA=transform_state`` runs them, and writes it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.common import ROOT
from tools.compatibility import merged, read, row, ruler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "tests/integration/test_transform_state.py"
PAGE = ROOT / "docs" / "state.md"
SPARKS = ("4.2", "4.3")
"""Those that have the writer."""
TESTS = {
    "test_state_that_is_written_as_it_was_goes_on_as_the_unbroken_one": "in RocksDB",
    "test_state_of_the_default_provider_goes_on_in_rocksdb": "to RocksDB",
}
_BEGIN, _END = "<!-- written: by its tests -->\n", "<!-- written: end -->\n"
_CASE = re.compile(r"(\w+)\[(.+)\]")


def write(logs: Path) -> None:
    """Put what the reports say in its place on the page; a Spark without one keeps what is said of it."""
    before, begin, rest = PAGE.read_text().partition(_BEGIN)
    said, end, after = rest.partition(_END)
    PAGE.write_text(f"{before}{begin}{render(logs, said)}{end}{after}")


def render(logs: Path, said: str = "") -> str:
    """Return the table for the reports in a folder."""
    kept = [line.strip("| ").split(" | ") for line in said.splitlines() if "`" in line]
    found = {
        (case, way): dict(zip(SPARKS, words, strict=True))
        for cases, way, *words in kept
        for case in re.findall("`([^`]+)`", cases)
    }
    for minor in SPARKS:
        report = read(logs.glob(f"tests-versions*-spark-{minor}.xml"))
        for (file, name), word in report.cases.items():
            match = _CASE.fullmatch(name)
            if file == FILE and match is not None and match[1] in TESTS and word != "skipped":
                cell = found.setdefault((match[2], TESTS[match[1]]), dict.fromkeys(SPARKS, "-"))
                cell[minor] = f"{word}, {report.date}"
    return "\n".join(_lines(found)) + "\n"


def _lines(found: dict[tuple[str, str], dict[str, str]]) -> Iterator[str]:
    yield from row(("case", "written", *(f"Spark {minor}" for minor in SPARKS)))
    yield ruler(len(SPARKS) + 2)
    yield from merged((f"`{case}`", (way, *cells.values())) for (case, way), cells in found.items())
