"""`make test-versions`: the tests of the Spark side on every Spark, into docs/compatibility.md and state.md.

``SPARK=3.5`` runs one version, ``SPARK=chain`` one job over all of them; ``AREA=sink`` only the files whose
name holds that word, whose results replace those of an earlier run. A version's environment is made when it
is first asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools import changed_state, class_archive, compatibility, jars, setup
from tools.common import HOME, JAVA_HOME_FILE, LOGS, ROOT, SPARKS, TABLES, VENV_SPARK, venv_of_spark
from tools.run_tests import Invocation, Outcome, report, run_pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

CHAIN = tuple(f"tests/versions/test_{name}.py" for name in ("chain", "upgrade", "compared"))
VARIABLE = "FLINKSTYLE_TEST_SPARK"
"""As ``testbed.paths`` reads it."""


def main() -> int:
    """Run what was asked for, write the page, print the sum."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "sparks", nargs="*", choices=[*SPARKS, "chain", []], help="default: all, and the chain"
    )
    parser.add_argument("--area", action="append", default=[], help="a word in the name of a file of tests")
    parser.add_argument("--write-only", action="store_true", help="write the pages from the last reports")
    asked = parser.parse_args()
    wanted = asked.sparks or [*SPARKS, "chain"]
    outcomes = [] if asked.write_only else run_all(wanted, asked.area)
    compatibility.write(LOGS)
    changed_state.write(LOGS)
    return report(outcomes)


def run_all(wanted: list[str], areas: list[str]) -> list[Outcome]:
    """Make what is needed and run the tests on these versions, and the chain if it is among them."""
    minors = [minor for minor in SPARKS if minor in wanted or "chain" in wanted]
    setup.ensure(minors)
    os.environ["PYTEST_ADDOPTS"] = "-W default"  # what older dependencies warn of is theirs
    for minor in minors:
        class_archive.ensure_of_spark(minor)
    jars.ensure(Path(JAVA_HOME_FILE.read_text()), TABLES, HOME / "jars-tables")
    outcomes = [run_spark(minor, areas) for minor in SPARKS if minor in wanted]
    if "chain" in wanted:
        outcomes.append(run("-".join(["chain", *areas]), VENV_SPARK, _of(areas, CHAIN)))
    return outcomes


def run_spark(minor: str, areas: list[str]) -> Outcome:
    """Run the tests on one version, all or some; a run of all forgets the earlier ones."""
    for earlier in [] if areas else LOGS.glob(f"tests-versions-*-spark-{minor}.xml"):
        earlier.unlink()
    os.environ[VARIABLE] = minor
    try:
        tables = [name for name in compatibility.TABLES if not compatibility.table_version(name, minor)]
        markers = " and not ".join(["spark and not bench", *tables])
        files = _of(areas, compatibility.AREAS.values())
        return run("-".join(["versions", *areas]), venv_of_spark(minor), files, markers)
    finally:
        del os.environ[VARIABLE]


def _of(areas: list[str], files: Iterable[str]) -> list[str]:
    """Return the files of some areas; without any, of all."""
    return [file for file in files if not areas or any(area in file for area in areas)]


def run(tier: str, venv: Path, files: Iterable[str], markers: str = "spark") -> Outcome:
    """Run these files in an environment; what a version does not have is no failure."""
    chosen = [ROOT / file for file in files]
    outcome = run_pytest(Invocation(tiers=(tier,), venv=venv, files=chosen, markers=markers))
    failed = tuple(name for name in outcome.failed if not compatibility.is_empty(name))
    return Outcome(name=outcome.name, passed=outcome.passed, failed=failed, seconds=outcome.seconds)


if __name__ == "__main__":
    sys.exit(main())
