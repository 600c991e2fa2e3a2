"""`make test-versions`: the tests of the Spark side on every Spark, into docs/compatibility.md.

``SPARK=3.5`` runs one version, ``SPARK=chain`` one job over all of them. A version's environment is made when
it is first asked for.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tools import compatibility, jars, setup
from tools.common import HOME, ICEBERG, JAVA_HOME_FILE, LOGS, ROOT, SPARKS, VENV_SPARK, venv_of_spark
from tools.run_tests import Outcome, report, run_pytest

if TYPE_CHECKING:
    from collections.abc import Iterable

CHAIN = tuple(f"tests/versions/test_{name}.py" for name in ("chain", "upgrade", "iceberg"))
VARIABLE = "FLINKSTYLE_TEST_SPARK"
"""As ``testbed.paths`` reads it."""


def main() -> int:
    """Run what was asked for, write the page, print the sum."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "sparks", nargs="*", choices=[*SPARKS, "chain", []], help="default: all, and the chain"
    )
    wanted = parser.parse_args().sparks or [*SPARKS, "chain"]
    setup.ensure(SPARKS if "chain" in wanted else wanted)
    outcomes = [run_spark(minor) for minor in SPARKS if minor in wanted]
    if "chain" in wanted:
        jars.ensure(Path(JAVA_HOME_FILE.read_text()), ICEBERG, HOME / "jars-iceberg")
        outcomes.append(run("chain", VENV_SPARK, CHAIN))
    compatibility.write(LOGS)
    return report(outcomes)


def run_spark(minor: str) -> Outcome:
    """Run the tests on one version."""
    os.environ[VARIABLE] = minor
    try:
        return run("versions", venv_of_spark(minor), compatibility.AREAS.values())
    finally:
        del os.environ[VARIABLE]


def run(tier: str, venv: Path, files: Iterable[str]) -> Outcome:
    """Run these files in an environment; what a version does not have is no failure."""
    outcome = run_pytest(tier, venv, [ROOT / file for file in files], "spark and not bench and not delta")
    failed = tuple(name for name in outcome.failed if not compatibility.is_empty(name))
    return Outcome(name=outcome.name, passed=outcome.passed, failed=failed, seconds=outcome.seconds)


if __name__ == "__main__":
    sys.exit(main())
