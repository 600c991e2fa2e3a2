"""docs/compatibility.md, but for Spark: written from the reports of the tests on other versions."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ET
from collections import Counter
from typing import TYPE_CHECKING

from tools import jars
from tools.common import KAFKA_VERSIONS, LOCKS, LOGS, ROOT, SPARKS

if TYPE_CHECKING:
    from pathlib import Path

PAGE = ROOT / "docs" / "compatibility.md"
_FIRST_JAVA_OF_SPARK_4 = 17
AIRFLOWS = tuple(path.stem.removeprefix("airflow-") for path in sorted(LOCKS.glob("airflow-*.in")))
"""Versions beside the one of ``locks/airflow.txt``, which has no name here."""
FEATURES = {
    "imports, none of them heavy": "test_imports",
    "provider, connection form, link": "test_provider",
    "connections and hook": "test_connections",
    "forms of the DAGs": "test_dags test_dag_functions",
    "operators, retries, deferral": "test_operators",
    "sensors": "test_sensors",
    "triggers": "test_triggers",
    "migration, approval of what was stored": "test_migration test_approved test_failback",
    "the rest of the unit tests": "",
    "on a server: all DAGs parse; start, deferred savepoint, asset, link, approval, stop": (
        "test_airflow_versions"
    ),
}
"""What a row of the table shows -> the test modules that show it."""


def report_of(name: str) -> Path:
    """Return where pytest puts its report of a run."""
    return LOGS / f"versions-{name}.xml"


def _reports(name: str) -> list[Path]:
    """Return the reports of all runs of that name, of parts too, the newest last."""
    found = [*LOGS.glob(f"versions-{name}.xml"), *LOGS.glob(f"versions-{name}+*.xml")]
    return sorted(found, key=lambda file: file.stat().st_mtime_ns)


def _outcomes(name: str) -> dict[str, Counter[str]]:
    """Return by test module how many tests passed and failed, and by test case of its last run."""
    good: dict[tuple[str, str], bool] = {}
    for report in _reports(name):
        for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314  # pytest's own report
            key = (str(case.get("classname")).split(".")[-1], str(case.get("name")))
            good[key] = all(case.find(bad) is None for bad in ("failure", "error", "skipped"))
    found: dict[str, Counter[str]] = {}
    for (module, case_name), passed in good.items():
        for counted in (module, f"{module}::{case_name}"):
            found.setdefault(counted, Counter())["passed" if passed else "failed"] += 1
    return found


def _total(name: str) -> Counter[str]:
    """Return how many tests of a run passed and failed."""
    return sum((count for key, count in _outcomes(name).items() if "::" not in key), Counter[str]())


def _cell(counts: Counter[str]) -> str:
    if not counts:
        return "not run"
    if counts["failed"]:
        return f"**{counts['failed']} failed**, {counts['passed']} passed"
    return str(counts["passed"])


def _passed(counts: Counter[str]) -> str:
    """Return the same as words of a line."""
    return f"{counts['passed']} passed" if set(counts) == {"passed"} else _cell(counts)


def _day(name: str) -> str:
    days = [time.strftime("%Y-%m-%d", time.gmtime(one.stat().st_mtime)) for one in _reports(name)]
    return " to ".join(dict.fromkeys((days[0], days[-1])))


def locked(lock: Path, package: str) -> str:
    """Return the version of a package in a lock file."""
    found = re.search(rf"^{re.escape(package)}==(\S+)", lock.read_text(), re.MULTILINE)
    return found[1] if found else "?"


def airflow_section() -> str:
    """Return the table of versions of Airflow and what was shown on each."""
    runs = [version for version in [*AIRFLOWS, ""] if _reports(f"airflow-{version or 'default'}")]
    locks = {version: LOCKS / (f"airflow-{version}.txt" if version else "airflow.txt") for version in runs}
    reports = {version: _outcomes(f"airflow-{version or 'default'}") for version in runs}
    named = {module for modules in FEATURES.values() for module in modules.split()}
    rows = [
        ["Airflow", *(locked(locks[version], "apache-airflow") for version in runs)],
        ["run on", *(_day(f"airflow-{version or 'default'}") for version in runs)],
    ]
    for provider in ("amazon", "apache-kafka", "apache-spark", "standard"):
        name = f"apache-airflow-providers-{provider}"
        rows.append([f"provider {provider}", *(locked(locks[version], name) for version in runs)])
    everywhere = []
    for feature, modules in FEATURES.items():
        cells = []
        for version in runs:
            report = {key: count for key, count in reports[version].items() if "::" not in key}
            wanted = modules.split() or [key for key in report if key not in named]
            counts = sum((report.get(key, Counter()) for key in wanted), Counter[str]())
            cells.append("passed" if set(counts) == {"passed"} else _cell(counts))
        if set(cells) == {"passed"}:
            everywhere.append(feature)
        else:
            rows.append([feature, *cells])
    passed = f"\n\nPassed on each: {'; '.join(everywhere)}." if everywhere else ""
    return f"{_table(rows)}{passed}"


def kafka_section() -> str:
    """Return the table of pairs of brokers."""
    rows = [["Source", "Target", "MirrorMaker 2", "Positions at start, middle and end"]]
    for key, counts in sorted(_outcomes("kafka").items()):
        if pair := re.search(r"\[([\d.]+)-([\d.]+)-([\d.]+)\]$", key):
            said = "**test failed**" if counts["failed"] else "exact"
            rows.append([*(_full(minor) for minor in pair.groups()), said])
    return f"Run on {_day('kafka')}.\n\n{_table(rows)}"


def leaders_section() -> str:
    """Return the table of what was shown on clusters of three brokers."""
    rows = [["On three brokers each", "Result"]]
    for key, counts in sorted(_outcomes("leaders").items()):
        _, _, test = key.partition("::")
        if test:
            rows.append([test.removeprefix("test_").replace("_", " "), _cell(counts)])
    return f"Run on {_day('leaders')}, brokers {_full('4.3')}.\n\n{_table(rows)}"


def python_section() -> str:
    """Return a line for each interpreter: what the tests without a JVM said on it."""
    names = sorted({path.stem.partition("+")[0] for path in LOGS.glob("versions-python-*.xml")})
    lines = []
    for name in (found.removeprefix("versions-") for found in names):
        what = "drivers on Spark 3.5: the agent's tests" if "-3.10." in name else "all tests without a JVM"
        lines.append(f"- {name.removeprefix('python-')}: {what}: {_passed(_total(name))} ({_day(name)})")
    return "\n".join(lines)


def java_section() -> str:
    """Return a line for each Java: what the agent's tests said on it."""
    names = [path.stem.removeprefix("versions-java-") for path in LOGS.glob("versions-java-*.xml")]
    lines = []
    for name in sorted(names, key=int):
        minor, run = spark_on_java(int(name)), f"java-{name}"
        spark = locked(LOCKS / (f"spark-{minor}.txt" if minor else "spark.txt"), "pyspark")
        lines.append(f"- Java {name}, drivers on Spark {spark}: {_passed(_total(run))} ({_day(run)})")
    return "\n".join(lines)


def spark_on_java(feature: int) -> str:
    """Return the minor version of the Spark that is tested on a Java; empty for the usual one."""
    return SPARKS[0] if feature < _FIRST_JAVA_OF_SPARK_4 else ""


def _full(minor: str) -> str:
    """Return the whole version of a broker."""
    versions = {
        jar.coordinate.version
        for lock in (jars.LOCK, KAFKA_VERSIONS)
        for jar in jars.read_lock(lock)
        if jar.coordinate.artifact == "kafka_2.13"
    }
    return next(version for version in versions if version.startswith(f"{minor}."))


def _table(rows: list[list[str]]) -> str:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, f"|{'---|' * len(rows[0])}", *body])


def write_section(name: str, text: str) -> None:
    """Put a text between the page's markers of that name."""
    begin, end = f"<!-- {name}: written by its tests -->", f"<!-- {name}: end -->"
    page = PAGE.read_text()
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}")
