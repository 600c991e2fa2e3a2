"""`make test-airflow-versions`, `-kafka-versions`, `-kafka-leaders`, `-python-versions`, `-java-versions`.

Each run rewrites its section of docs/compatibility.md from the reports of its tests, with date and versions.
For Airflow, ``AIRFLOW=3.1`` runs one version, ``AREA=integration`` the server alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools import jars, java, setup
from tools.common import (
    HOME,
    JAVA_HOME_FILE,
    KAFKA_VERSIONS,
    LOCKS,
    ROOT,
    SPARKS,
    VENV_AIRFLOW,
    VENV_SPARK,
    Stamp,
    run,
    say,
    venv_of_spark,
)
from tools.run_tests import LANES
from tools.setup import UV
from tools.version_pages import (
    AIRFLOWS,
    airflow_section,
    java_section,
    kafka_section,
    leaders_section,
    locked,
    python_section,
    report_of,
    spark_on_java,
    write_section,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

BUILD = LOCKS / "build.txt"
PYTHONS = ("python3.10", "python3.11", "python3.12", "python3.13", "python3.14")
"""What is tried where no interpreter is named."""
LEADERS = "tests/e2e/test_lost_leaders.py"
"""Clusters of three brokers."""
DRIVERS = [
    f"tests/integration/test_{name}.py"
    for name in ("agent", "agent_scripts", "agent_queries", "agent_waiting", "agent_guard", "aligned")
]
"""Tests whose only PySpark is that of drivers."""
SERVER = "tests/integration/test_airflow_versions.py"


def main() -> int:
    """Run what is asked for; the exit code counts the versions that failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["airflow", "kafka", "leaders", "python", "java"])
    parser.add_argument(
        "versions", nargs="*", help="of Airflow, default: all; interpreters of Python; homes of Java"
    )
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
    elif asked.what == "java":
        failed = 0 if asked.write_only else sum(run_java(home) for home in asked.versions)
        write_section("java", java_section())
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
    """Run what needs no JVM on an interpreter, with the packages of the default Airflow; on 3.10, drivers."""
    said = "import platform; print(platform.python_version())"
    done = subprocess.run([interpreter, "-c", said], capture_output=True, text=True, check=True)  # noqa: S603
    name = f"python-{done.stdout.strip()}"
    if name.startswith("python-3.10."):
        return run_drivers(name, interpreter)
    venv = make_venv(HOME / f"venv-airflow-{name}", interpreter, BUILD, LOCKS / "airflow.txt")
    tests = ["tests/unit", "tests/model", "tests/golden"]
    return run_tests(name, venv, tests, "not spark and not bench", LANES)


def run_drivers(name: str, interpreter: str) -> int:
    """Run the agent's tests with drivers on an interpreter, beside the oldest Spark."""
    minor = SPARKS[0]
    setup.ensure([minor])
    build = LOCKS / "build-3.10.txt"
    venv = make_venv(
        HOME / f"venv-spark-{name}", interpreter, build, LOCKS / f"spark-{minor}.txt", build=build
    )
    os.environ |= {"FLINKSTYLE_TEST_SPARK": minor, "FLINKSTYLE_TEST_PYTHON": str(venv / "bin" / "python")}
    return run_tests(name, venv_of_spark(minor), DRIVERS, "spark", LANES)


def run_java(home: str) -> int:
    """Run the agent's tests with drivers on a Java, on the newest Spark of the tests that it runs."""
    feature = java.version_of(Path(home))
    if feature is None:
        sys.exit(f"A Java home was expected, found no java that runs in {home}/bin. No test ran there.")
    minor = spark_on_java(feature)
    setup.ensure([minor] if minor else [])
    os.environ |= {"FLINKSTYLE_TEST_SPARK": minor, "FLINKSTYLE_TEST_JAVA": home}
    venv = venv_of_spark(minor) if minor else VENV_SPARK
    return run_tests(f"java-{feature}", venv, DRIVERS, "spark", LANES)


def environment(version: str) -> Path:
    """Return Airflow's environment of a version; make it if it is not there."""
    if not version:
        return VENV_AIRFLOW
    folder = VENV_AIRFLOW.with_name(f"venv-airflow-{version}")
    return make_venv(folder, sys.executable, LOCKS / f"airflow-{version}.txt")


def make_venv(folder: Path, interpreter: str, *locks: Path, build: Path = BUILD) -> Path:
    """Make an environment with this project, unless it is as the locks say."""
    stamp = Stamp(folder.name, interpreter, build, *locks)
    if stamp.is_current and folder.exists():
        return folder
    say(f"set-up: {folder.name} ...")
    shutil.rmtree(folder, ignore_errors=True)
    run(folder.name, [UV, "venv", "--quiet", "--python", interpreter, folder])
    into = ("--quiet", "--python", folder / "bin" / "python")
    # The PySpark that Airflow's Spark provider needs comes as source only; it is built with the locked tools.
    run(folder.name, [UV, "pip", "install", *into, "--require-hashes", "-r", build])
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
        f"--junitxml={report_of(name)}",
    )
    command = [python, ROOT / "testbed" / "guard.py", "--", python, "-m", "pytest", "-q", *options, *tests]
    return int(subprocess.run([str(part) for part in command], cwd=ROOT).returncode != 0)  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
