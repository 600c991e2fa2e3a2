"""docs/compatibility.md, written from the reports of ``make test-versions``."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tools.common import LOCKS, ROOT, SPARKS
from tools.common import TABLES as TABLES_LOCK
from tools.jars import read_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    Kept = Mapping[str, Mapping[str, str]]
    """Of a Spark whose tests were not all run: the first cell of a row -> what the page says."""

PAGE = ROOT / "docs" / "compatibility.md"
AREAS = {
    "start, savepoint, stop, resume, relaunch, fence": "tests/integration/test_agent.py",
    "scripts as people write them, sources of files": "tests/integration/test_agent_scripts.py",
    "several queries": "tests/integration/test_agent_queries.py",
    "queries that wait": "tests/integration/test_agent_waiting.py",
    "Kafka source, guarded": "tests/integration/test_agent_guard.py",
    "a stop between two batches": "tests/integration/test_boundary.py",
    "aligned savepoints of Kafka sources": "tests/integration/test_aligned.py",
    "savepoints while the query runs": "tests/integration/test_savepoint_hot.py",
    "operators and state stores": "tests/integration/test_savepoint_operators.py",
    "changed state": "tests/integration/test_changed_state.py",
    "rewinds, file sink": "tests/integration/test_rewinding.py",
    "offset commits": "tests/integration/test_offset_commits.py",
    "transactional sink, a broken stream of rows": "tests/integration/test_sink.py",
    "Delta as source and sink, schemas that change, fork": "tests/integration/test_tables.py",
    "batch ids used again, also Delta's where there is one": "tests/integration/test_batch_ids.py",
    "Iceberg as source and sink, fork": "tests/versions/test_iceberg.py",
}
"""What a row of the table stands for -> the file of its tests."""
TABLES = {"delta": "delta-spark", "iceberg": "iceberg-spark-runtime"}
"""Marker of tests, and name of their jar sets -> the jar that has the version."""
ONLY_OF_TABLES = {"tests/integration/test_tables.py": "delta", "tests/versions/test_iceberg.py": "iceberg"}
"""Files of tests that nothing is left of on a Spark without that."""
FIRST_SPARKS = {"tests/integration/test_changed_state.py": "4.2"}
"""Files of tests that nothing is left of on an older Spark."""
_OPERATOR = re.compile(r"test_restored_operator_goes_on_as_the_unbroken_one\[(.+)\]")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_CASE_IN_ROW = re.compile(r"`[^`]+`")
_PASSED = "Passed on each: "
"""What begins the line with the areas that passed on every Spark; the others have a row each."""
_BEGIN, _END = "<!-- spark: written by its tests -->\n", "<!-- spark: end -->\n"
_CHAIN_TITLE = "### One job over all versions"
CHAIN = "tests/versions/test_chain.py"
STORES = ("HDFS", "RocksDB")
"""Parameters of the chain."""
ROCKSDB_ONLY = ("transformWithState", "HDFS")
"""What Spark does not have; the test sees that it wrote nothing."""


@dataclass(slots=True)
class Report:
    """What one run of pytest said."""

    date: str = ""
    """Day of the runs, or the first and the last; empty if there was none."""
    cases: dict[tuple[str, str], str] = field(default_factory=dict)
    """File and name of a test -> passed, failed or skipped."""


def is_empty(name: str) -> bool:
    """Return whether a skipped test was one without parameters: the version does not have what it is of."""
    return "NOTSET" in name and name.endswith("(skipped)")


def write(logs: Path) -> None:
    """Put what the reports say in its place on the page."""
    before, begin, rest = PAGE.read_text().partition(_BEGIN)
    said, end, after = rest.partition(_END)
    PAGE.write_text(f"{before}{begin}{render(logs, said)}{end}{after}")


def render(logs: Path, said: str = "") -> str:
    """Return the section for the reports in a folder; of a test that ran more than once, the newest one.

    Args:
        logs: The folder.
        said: The section as it is: what has no report keeps what it says there, until all of a Spark's tests
            are run.
    """
    reports = {minor: read(logs.glob(f"tests-versions*-spark-{minor}.xml")) for minor in SPARKS}
    whole = {minor for minor in SPARKS if (logs / f"tests-versions-spark-{minor}.xml").exists()}
    kept = {minor: cells for minor, cells in _cells(said).items() if minor not in whole}
    chain = read(logs.glob("tests-chain*-spark.xml"))
    _, title, earlier = said.partition(_CHAIN_TITLE)
    last = ["\n" + title + earlier.rstrip()] if title and not chain.date else _chain(chain)
    lines = (*_head(reports, kept), *_areas(reports, kept), *_operators(reports, kept), *last)
    return "\n".join(lines) + "\n"


def _cells(said: str) -> dict[str, dict[str, str]]:
    """Return what a section's tables say of each Spark: by the first cell of the row, or each case in it."""
    rows = [line.strip("| ").split(" | ") for line in said.splitlines() if line.startswith("| ")]
    found: dict[str, dict[str, str]] = {minor: {} for minor in SPARKS}
    for names, *cells in (one for one in rows if len(one) == len(SPARKS) + 1):
        for minor, cell in zip(SPARKS, cells, strict=True):
            found[minor] |= dict.fromkeys(_CASE_IN_ROW.findall(names) or [names], cell)
    everywhere = [line for line in said.splitlines() if line.startswith(_PASSED)]
    for area in (area for line in everywhere for area in line[len(_PASSED) : -1].split("; ")):
        for minor in SPARKS:
            found[minor][area] = "passed"
    return found


def read(junits: Iterable[Path]) -> Report:
    """Read reports of pytest as one."""
    report = Report()
    days = set()
    for junit in sorted(junits, key=lambda file: file.stat().st_mtime_ns):
        suite = ET.parse(junit).getroot().find("testsuite")  # noqa: S314  # pytest's own report
        assert suite is not None  # noqa: S101
        days.add(suite.get("timestamp", "")[:10])
        for case in suite.iter("testcase"):
            found = [name for name in ("failure", "error", "skipped") if case.find(name) is not None]
            word = "passed" if not found else "skipped" if found == ["skipped"] else "failed"
            report.cases[case.get("file", ""), case.get("name", "")] = word
    return replace(report, date=_days(*days))


def _head(reports: dict[str, Report], kept: Kept) -> Iterator[str]:
    yield "What has no date was not run.\n"
    yield from row(("", *(f"Spark {minor}" for minor in SPARKS)))
    yield ruler(len(SPARKS) + 1)
    yield from row(("PySpark", *(_pinned(minor) for minor in SPARKS)))
    yield from row(("Kafka connector", *(_connector(minor) for minor in SPARKS)))
    for name in TABLES:
        yield from row((name.capitalize(), *(table_version(name, minor) or "none" for minor in SPARKS)))
    dates = [_days(kept.get(minor, {}).get("run on", ""), reports[minor].date) for minor in SPARKS]
    yield from row(("run on", *(days or "not run" for days in dates)))


def _areas(reports: dict[str, Report], kept: Kept) -> Iterator[str]:
    everywhere = []
    for area, file in AREAS.items():
        cells = []
        for minor in SPARKS:
            words = Counter(word for (of, _), word in reports[minor].cases.items() if of == file)
            counted = "-" if is_without(minor, file) else _count(words["passed"], words["failed"])
            cells.append(counted if words else kept.get(minor, {}).get(area, counted))
        if set(cells) == {"passed"}:
            everywhere.append(area)
        else:
            yield from row((area, *cells))
    if everywhere:
        yield f"\n{_PASSED}{'; '.join(everywhere)}."
    for minor in SPARKS:
        for (file, name), word in reports[minor].cases.items():
            if word == "failed":
                yield f"\nFailed on {minor}: `{file}::{name}`"


def _operators(reports: dict[str, Report], kept: Kept) -> Iterator[str]:
    names = {
        match[1]: None
        for report in reports.values()
        for _, name in report.cases
        if (match := _OPERATOR.match(name))
    } | {name.strip("`"): None for cells in kept.values() for name in cells if name.startswith("`")}
    file = AREAS["operators and state stores"]
    yield "\n### Operators and state stores\n"
    yield "A savepoint of the running query, restored elsewhere, gives the same rows, batch by batch. Cases:"
    yield "`tests/golden/stateful.py`. `-`: not in that Spark, or not run.\n"
    yield from row(("case", *(f"Spark {minor}" for minor in SPARKS)))
    yield ruler(len(SPARKS) + 1)
    rows = []
    for case in names:
        test = f"test_restored_operator_goes_on_as_the_unbroken_one[{case}]"
        said = {minor: kept.get(minor, {}).get(f"`{case}`", "-") for minor in SPARKS}
        cells = [reports[minor].cases.get((file, test), said[minor]) for minor in SPARKS]
        rows.append((f"`{case}`", cells))
    yield from merged(rows)


def _chain(report: Report) -> Iterator[str]:
    yield f"\n{_CHAIN_TITLE}\n"
    yield f"One job goes from Spark {SPARKS[0]} over each version to {SPARKS[-1]}, by savepoints."
    yield f"Its results equal those of the same rows counted once (`{CHAIN}`)."
    yield f"Run on: {report.date or 'not run'}.\n"
    found = dict(_of_chain(report))
    if found:
        yield from row(("test", *STORES))
        yield ruler(len(STORES) + 1)
    yield from merged(
        (_said(test) + (f" ({of})" if of else ""), [found.get((test, of, store), "-") for store in STORES])
        for test, of in dict.fromkeys((test, of) for test, of, _ in found)
    )
    others = [(file, name, word) for (file, name), word in report.cases.items() if file != CHAIN]
    if others:
        yield "\n### Single jobs\n"
        yield from row(("test", "file", "result"))
        yield ruler(3)
    for file, name, word in others:
        yield from row((_said(name), f"`{file}`", word))


def _of_chain(report: Report) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield test, operator and state store of each case, and what came of it."""
    for (file, name), word in report.cases.items():
        test, _, parameters = name.rstrip("]").partition("[")
        parts = parameters.split("-")
        store = next((part for part in parts if part in STORES), "")
        operator = "-".join(part for part in parts if part != store)
        if file == CHAIN:
            yield (test, operator, store), "-" if (operator, store) == ROCKSDB_ONLY else word


def _said(test: str) -> str:
    """Return the name of a test as words."""
    return test.removeprefix("test_").replace("_", " ")


def ruler(columns: int) -> str:
    """Return the line between a table's head and its rows."""
    return f"|{'---|' * columns}"


def merged(rows: Iterable[tuple[str, Iterable[str]]]) -> Iterator[str]:
    """Yield the rows, those with the same cells as one: their names, with commas between."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, cells in rows:
        names.setdefault(tuple(cells), []).append(name)
    for cells, of in names.items():
        yield from row((", ".join(of), *cells))


def row(cells: Iterable[str]) -> Iterator[str]:
    """Yield a row of a table."""
    yield f"| {' | '.join(cells)} |"


def _count(passed: int, failed: int) -> str:
    if not passed and not failed:
        return "not run"
    return f"{passed} passed, {failed} failed" if failed else "passed"


def _days(*said: str) -> str:
    """Return the first and the last day of runs whose days are told so, or as one day; empty if none is."""
    days = sorted(day for days in said for day in _DAY.findall(days))
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""


def is_without(minor: str, file: str) -> bool:
    """Return whether a Spark does not have what the tests of a file are of."""
    of_tables = file in ONLY_OF_TABLES and not table_version(ONLY_OF_TABLES[file], minor)
    return of_tables or SPARKS.index(minor) < SPARKS.index(FIRST_SPARKS.get(file, SPARKS[0]))


def _pinned(minor: str) -> str:
    return (LOCKS / f"spark-{minor}.in").read_text().strip().partition("==")[2]


def table_version(name: str, minor: str) -> str:
    """Return the version of Delta Lake or Iceberg that runs on a Spark; empty if there is none."""
    jars = [jar.coordinate for jar in read_lock(TABLES_LOCK) if jar.jar_set == f"{name}-{minor}"]
    return next((jar.version for jar in jars if jar.artifact.startswith(TABLES[name])), "")


def _connector(minor: str) -> str:
    jars = [jar.coordinate for jar in read_lock() if jar.jar_set == f"spark-kafka-{minor}"]
    return next(jar.version for jar in jars if jar.artifact.startswith("spark-sql-kafka"))
