"""`make test-clusters`: every deployment by one contract, and a migration on each cluster, into the docs.

The table in docs/deployments.md is written from the report of the run, failures included.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter

from tools.common import LOGS, ROOT, VENV_AIRFLOW, VENV_SPARK, say
from tools.jars import read_lock

PAGE = ROOT / "docs" / "deployments.md"
REPORT = LOGS / "clusters.xml"
PLACES = {
    "detached": "worker's machine",
    "standalone-client": "the same, executors on standalone",
    "yarn-client": "the same, executors on YARN",
    "standalone": "standalone",
    "yarn": "YARN",
    "ssh": "example plugin",
}
"""Parameter of the tests -> head of a column."""
BEGIN, END = "<!-- contract: written by its tests -->", "<!-- contract: end -->"
_CASE = re.compile(r"test_(\w+)\[([\w-]+)\]")


def main() -> int:
    """Run the tests of the deployments that are asked for, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("places", nargs="*", choices=[*PLACES, []], help="default: all")
    parser.add_argument("--write-only", action="store_true", help="write the page from the last report")
    asked = parser.parse_args()
    failed = 0 if asked.write_only else run(asked.places)
    write()
    return failed


def run(places: list[str]) -> int:
    """Run the tests; 1 if any failed."""
    python = VENV_AIRFLOW / "bin" / "python"
    chosen = ("-k", " or ".join(f"[{place}]" for place in places)) if places else ()
    options = (*chosen, "-o", "junit_family=xunit1", f"--junitxml={REPORT}", "tests/clusters")
    LOGS.mkdir(parents=True, exist_ok=True)
    command = [python, ROOT / "testbed" / "guard.py", "--", python, "-m", "pytest", "-q", *options]
    return int(subprocess.run([str(part) for part in command], cwd=ROOT).returncode != 0)  # noqa: S603


def write() -> None:
    """Put the table of the last run between the page's marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{section()}\n{END}{after}", encoding="utf-8")
    say(f"Wrote {PAGE.relative_to(ROOT)}")


def section() -> str:
    """Return the table of the last run, with its day, versions and length."""
    cells: dict[str, dict[str, str]] = {}
    for case in ET.parse(REPORT).getroot().iter("testcase"):  # noqa: S314  # pytest's own report
        if found := _CASE.fullmatch(str(case.get("name"))):
            bad = any(case.find(word) is not None for word in ("failure", "error", "skipped"))
            cells.setdefault(found[1], {})[found[2]] = (
                "**failed**" if bad else f"{float(case.get('time', 0)):.0f} s"
            )
    counts = Counter(
        "failed" if "failed" in cell else "passed" for row in cells.values() for cell in row.values()
    )
    places = [place for place in PLACES if any(place in row for row in cells.values())]
    lines = [
        f"Run on {time.strftime('%Y-%m-%d', time.gmtime(REPORT.stat().st_mtime))}, {os.cpu_count()} cores, "
        f"Spark {_spark()}, Hadoop {_hadoop()}: {counts['passed']} passed, {counts['failed']} failed. "
        "A cell is how long the test took, with its waits for leases; an empty one does not apply.",
        "",
        f"| | {' | '.join(PLACES[place] for place in places)} |",
        f"|---|{'---|' * len(places)}",
        *(
            f"| {name.replace('_', ' ')} | {' | '.join(row.get(place, '') for place in places)} |"
            for name, row in cells.items()
        ),
    ]
    return "\n".join(lines)


def _spark() -> str:
    said = next(VENV_SPARK.glob("lib/python3*/site-packages/pyspark/version.py")).read_text()
    found = re.search(r"\d+\.\d+\.\d+", said)
    return found[0] if found else "?"


def _hadoop() -> str:
    jars = (jar.coordinate for jar in read_lock())
    return next(jar.version for jar in jars if jar.artifact == "hadoop-client-minicluster")


if __name__ == "__main__":
    sys.exit(main())
