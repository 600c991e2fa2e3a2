"""Where a report goes: the terminal, ``benchmarks/results/NAME.json`` and its place in the docs.

``python -m benchmarks.publish`` writes the page again from the results that are there.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.common import Spread, Table, Target
from testbed import paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.common import Report

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs" / "benchmarks.md"
DOWNTIME = ROOT / "docs" / "downtime.svg"
PROMISES = "promises"
"""The marker of the table with what every benchmark has promised."""
GIB = 1 << 30
_OF_ONE = re.compile(r" \(([\d.]+)-\1\)")
"""The range of measurements that are all the same, or of a single one: the page leaves it out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Where and when a benchmark ran, and for how long."""

    machine: str
    date: str
    seconds: float

    def __str__(self) -> str:
        """Return the line under a table."""
        return f"{self.machine}; {self.date}; took {self.seconds:.0f} s"


def occasion(seconds: float) -> Occasion:
    """Return this machine and today."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    machine = (
        f"{os.cpu_count()} cores ({_cpu_model()}), {memory_gib:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )
    return Occasion(machine=machine, date=time.strftime("%Y-%m-%d", time.gmtime()), seconds=seconds)


def as_markdown(report: Report, when: Occasion) -> str:
    """Render everything but the raw figures."""
    parts = [report.about, *(table.as_markdown() for table in report.tables)]
    if report.targets:
        parts.append(_promises(report.targets).as_markdown())
    return "\n\n".join([*parts, f"_{when}._"])


def save(name: str, report: Report, when: Occasion) -> None:
    """Write the JSON, then what the page shows of all results."""
    RESULTS.mkdir(exist_ok=True)
    content = {"benchmark": name, **asdict(when), **asdict(report)}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    DOCS.write_text(page(DOCS.read_text()))


def page(text: str) -> str:
    """Return the page with each benchmark's tables, and all promises in its first one, from the results."""
    results = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in _benchmarks(text)}
    usual, _ = Counter(_machine(result) for result in results.values()).most_common(1)[0]
    for name, result in results.items():
        text = inserted(text, name, section(result, usual))
    return inserted(text, PROMISES, f"{_shortly(results).as_markdown()}\n\nMachine: {usual}.")


def section(result: Mapping[str, Any], usual: str) -> str:
    """Render what the page shows of one result: its tables without the details, and its day.

    Its promises are in the page's first table; how it was measured is in its file, in short before its place.

    Args:
        result: As its file holds it.
        usual: The machine that the page names once.
    """
    tables = [_table(table).as_markdown() for table in result["tables"] if not table["detail"]]
    tables = [_OF_ONE.sub("", table) for table in tables]
    machine = "" if _machine(result) == usual else f"{_machine(result)}; "
    return "\n\n".join([*tables, f"_{machine}{result['date']}, {result['seconds']:.0f} s._"])


def draw_downtime() -> None:
    """Draw what the benchmarks of downtime have found so far."""
    python, script = paths.VENV_BENCH / "bin" / "python", Path(__file__).with_name("plot_downtime.py")
    subprocess.run([str(python), str(script), str(RESULTS), str(DOWNTIME)], check=True)  # noqa: S603


def inserted(page: str, name: str, text: str) -> str:
    """Return the page with ``text`` between the markers of ``name``.

    Raises:
        ValueError: If the page has no such markers.
    """
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    changed, count = pattern.subn(lambda _: f"{begin}\n{text}\n{end}", page)
    if count != 1:
        raise ValueError(f"docs/benchmarks.md: expected the markers {begin} and {end} once, found {count}")
    return changed


def _machine(result: Mapping[str, Any]) -> str:
    """Return the machine of a result without its kernel, which only the file names."""
    return re.sub(r" Linux \S+,", "", str(result["machine"]))


def _benchmarks(text: str) -> Iterator[str]:
    """Yield the benchmarks that have a place on the page; the place of one that has not run stays empty."""
    named = (name for name in re.findall(r"<!-- bench:(\w+) -->", text) if name != PROMISES)
    return (name for name in named if (RESULTS / f"{name}.json").exists())


def _table(stored: Mapping[str, Any]) -> Table:
    return Table(columns=tuple(stored["columns"]), rows=tuple(map(tuple, stored["rows"])))


def _targets(result: Mapping[str, Any]) -> Iterator[Target]:
    return (Target(**{**stored, "found": Spread(**stored["found"])}) for stored in result["targets"])


def _shortly(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return all promises with the median of what was found."""
    rows = [
        (
            target.what if number else f"`{name}`: {target.what}",
            f"{target.limit:.3g}{target.unit}",
            f"{target.found.median:.3g}{target.unit}{'' if target.met else ', **not kept**'}",
        )
        for name, result in results.items()
        for number, target in enumerate(_targets(result))
    ]
    return Table(columns=("promise, under the benchmark's name", "at most", "found"), rows=tuple(rows))


def _promises(targets: tuple[Target, ...]) -> Table:
    return Table(
        columns=("promise", "at most", "found", "kept"),
        rows=tuple(
            (
                target.what,
                f"{target.limit:g}{target.unit}",
                target.found.text(target.unit),
                "yes" if target.met else "**no**",
            )
            for target in targets
        ),
    )


def _cpu_model() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


if __name__ == "__main__":
    DOCS.write_text(page(DOCS.read_text()))
