"""`make test-airflow-versions`, `test-kafka-versions`, `test-kafka-leaders`, `test-python-versions`.

Each run rewrites its section of docs/compatibility.md from the reports of its tests, with date and versions.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tools import jars
from tools.common import (
    HOME,
    JAVA_HOME_FILE,
    KAFKA_VERSIONS,
    LOCKS,
    LOGS,
    ROOT,
    VENV_AIRFLOW,
    Stamp,
    run,
    say,
)
from tools.run_tests import LANES
from tools.setup import UV

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = ROOT / "docs" / "compatibility.md"
AIRFLOWS = tuple(path.stem.removeprefix("airflow-") for path in sorted(LOCKS.glob("airflow-*.in")))
"""Versions beside the one of ``locks/airflow.txt``, which has no name here."""
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
"""What is tried where no interpreter is named."""
LEADERS = "tests/e2e/test_lost_leaders.py"
"""Clusters of three brokers."""
SERVER = "tests/integration/test_airflow_versions.py"
FEATURES = {
    "imports, none of them heavy": "test_imports",
    "provider, connection form, link": "test_provider",
    "connections and hook": "test_connections",
    "forms of the DAGs": "test_dags",
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


def main() -> int:
    """Run what is asked for; the exit code counts the versions that failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["airflow", "kafka", "leaders", "python"])
    parser.add_argument("versions", nargs="*", help="of Airflow, default: all; interpreters of Python")
    parser.add_argument("--area", default="", help="of Airflow: a word in the path of what is run")
    parser.add_argument("--write-only", action="store_true", help="write the page from the last reports")
    asked = parser.parse_args()
    if asked.what == "kafka":
        failed = 0 if asked.write_only else run_kafka()
        write_section("kafka", kafka_section())
    elif asked.what == "leaders":
        failed = 0 if asked.write_only else run_tests("leaders", VENV_AIRFLOW, [LEADERS], "versions")
        write_section("leaders", leaders_section())
    elif asked.what == "python":
        interpreters = asked.versions or [found for name in PYTHONS if (found := shutil.which(name))]
        failed = 0 if asked.write_only else sum(run_python(interpreter) for interpreter in interpreters)
        write_section("python", python_section())
    else:
        versions = [airflow_named(minor) for minor in asked.versions] or [*AIRFLOWS, ""]
        failed = 0 if asked.write_only else sum(run_airflow(version, asked.area) for version in versions)
        write_section("airflow", airflow_section())
    return min(failed, 1)


def run_airflow(version: str, area: str) -> int:
    """Test on one version of Airflow, empty for the default one; all, or an area, kept beside the other."""
    venv = environment(version)
    names = [name for name in ("tests/unit/airflow_layer", SERVER) if area in name]
    report = f"airflow-{version or 'default'}"
    return run_tests(f"{report}+{area}" if area else report, venv, names, "not spark")


def airflow_named(minor: str) -> str:
    """Return the version that was asked for, empty for the default one."""
    if minor in AIRFLOWS:
        return minor
    default = locked(LOCKS / "airflow.txt", "apache-airflow").rpartition(".")[0]
    if minor != default:
        sys.exit(f"AIRFLOW={minor} was asked for; there are {', '.join((*AIRFLOWS, default))}. No test ran.")
    return ""


def run_kafka() -> int:
    """Test between brokers of all versions."""
    jars.ensure(Path(JAVA_HOME_FILE.read_text()), KAFKA_VERSIONS, HOME / "jars-kafka-versions")
    return run_tests("kafka", VENV_AIRFLOW, ["tests/integration/test_kafka_versions.py"], "versions")


def run_python(interpreter: str) -> int:
    """Run what needs no JVM on an interpreter, with the packages of the default Airflow."""
    said = "import platform; print(platform.python_version())"
    done = subprocess.run([interpreter, "-c", said], capture_output=True, text=True, check=True)  # noqa: S603
    name = f"python-{done.stdout.strip()}"
    venv = make_venv(HOME / f"venv-airflow-{name}", interpreter, LOCKS / "build.txt", LOCKS / "airflow.txt")
    tests = ["tests/unit", "tests/model", "tests/golden"]
    return run_tests(name, venv, tests, "not spark and not bench", LANES)


def environment(version: str) -> Path:
    """Return Airflow's environment of a version; make it if it is not there."""
    if not version:
        return VENV_AIRFLOW
    folder = VENV_AIRFLOW.with_name(f"venv-airflow-{version}")
    return make_venv(folder, sys.executable, LOCKS / f"airflow-{version}.txt")


def make_venv(folder: Path, interpreter: str, *locks: Path) -> Path:
    """Make an environment of Airflow's side, unless it is as the lock files say."""
    stamp = Stamp(folder.name, interpreter, *locks)
    if stamp.is_current and folder.exists():
        return folder
    say(f"set-up: {folder.name} ...")
    shutil.rmtree(folder, ignore_errors=True)
    run(folder.name, [UV, "venv", "--quiet", "--python", interpreter, folder])
    into = ("--quiet", "--python", folder / "bin" / "python")
    # The PySpark that Airflow's Spark provider needs comes as source only; it is built with the locked tools.
    run(folder.name, [UV, "pip", "install", *into, "--require-hashes", "-r", LOCKS / "build.txt"])
    wheels = ("--only-binary", ":all:", "--no-binary", "pyspark", "--no-binary", "pyspark-client")
    sync = [UV, "pip", "sync", *into, "--require-hashes", "--no-build-isolation", *wheels]
    run(folder.name, [*sync, *locks])
    ours = ("--no-build-isolation", "--no-deps", "--editable", ROOT)
    run(folder.name, [UV, "pip", "install", *into, *ours])
    stamp.set()
    return folder


def run_tests(name: str, venv: Path, tests: list[str], markers: str, lanes: Sequence[str] = ()) -> int:
    """Run tests in an environment, side by side if told how; return 1 if any failed."""
    say(f"--- {name}")
    python = venv / "bin" / "python"
    # What older dependencies warn of is theirs.
    options = (
        *lanes,
        "-W",
        "default",
        "-m",
        markers,
        "-o",
        "junit_family=xunit1",
        f"--junitxml={_report(name)}",
    )
    command = [python, ROOT / "testbed" / "guard.py", "--", python, "-m", "pytest", "-q", *options, *tests]
    return int(subprocess.run([str(part) for part in command], cwd=ROOT).returncode != 0)  # noqa: S603


def _report(name: str) -> Path:
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


def _cell(counts: Counter[str]) -> str:
    if not counts:
        return "not run"
    return (
        f"**{counts['failed']} failed**, {counts['passed']} passed"
        if counts["failed"]
        else (f"{counts['passed']} passed")
    )


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
        ["---"] * (len(runs) + 1),
        ["run on", *(_day(f"airflow-{version or 'default'}") for version in runs)],
    ]
    for provider in ("amazon", "apache-kafka", "apache-spark", "standard"):
        name = f"apache-airflow-providers-{provider}"
        rows.append([f"provider {provider}", *(locked(locks[version], name) for version in runs)])
    for feature, modules in FEATURES.items():
        cells = []
        for version in runs:
            report = {key: count for key, count in reports[version].items() if "::" not in key}
            wanted = modules.split() or [key for key in report if key not in named]
            cells.append(_cell(sum((report.get(key, Counter()) for key in wanted), Counter())))
        rows.append([feature, *cells])
    return _table(rows)


def kafka_section() -> str:
    """Return the table of pairs of brokers."""
    rows = [["Source", "Target", "MirrorMaker 2", "Positions at start, middle and end"], ["---"] * 4]
    for key, counts in sorted(_outcomes("kafka").items()):
        if pair := re.search(r"\[([\d.]+)-([\d.]+)-([\d.]+)\]$", key):
            said = "**test failed**" if counts["failed"] else "exact"
            rows.append([*(_full(minor) for minor in pair.groups()), said])
    return f"Run on {_day('kafka')}.\n\n{_table(rows)}"


def leaders_section() -> str:
    """Return the table of what was shown on clusters of three brokers."""
    rows = [["On three brokers each", "Result"], ["---"] * 2]
    for key, counts in sorted(_outcomes("leaders").items()):
        _, _, test = key.partition("::")
        if test:
            rows.append([test.removeprefix("test_").replace("_", " "), _cell(counts)])
    return f"Run on {_day('leaders')}, brokers {_full('4.3')}.\n\n{_table(rows)}"


def python_section() -> str:
    """Return the table of interpreters and what the tests without a JVM said on each."""
    names = sorted(path.stem for path in LOGS.glob("versions-python-*.xml"))
    rows = [["Python", "run on", "tests without a JVM"], ["---"] * 3]
    for name in (found.removeprefix("versions-") for found in names):
        counts = sum((count for key, count in _outcomes(name).items() if "::" not in key), Counter[str]())
        rows.append([name.removeprefix("python-"), _day(name), _cell(counts)])
    return _table(rows)


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
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def write_section(name: str, text: str) -> None:
    """Put a text between the page's markers of that name."""
    begin, end = f"<!-- {name}: written by its tests -->", f"<!-- {name}: end -->"
    page = PAGE.read_text()
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}")


if __name__ == "__main__":
    sys.exit(main())
