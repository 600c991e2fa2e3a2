"""`make test-clusters`: every deployment by one contract, and a migration on each cluster, into the docs.

Each test's last result is kept in ``tests/clusters/outcomes.json``; the table in docs/deployments.md counts
them, and names those that failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from tools import bare_worker, kerberos
from tools.common import LOGS, ROOT, VENV_AIRFLOW, VENV_SPARK, say
from tools.jars import read_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REPORTS = LOGS / "clusters"
PAGE = ROOT / "docs" / "deployments.md"
PLACES = {
    "detached": "worker's machine",
    "standalone-client": "worker's machine, executors on standalone",
    "yarn-client": "worker's machine, executors on YARN",
    "standalone": "standalone",
    "yarn": "YARN",
    "yarn-kerberos": "YARN with Kerberos",
    "kubernetes": "Kubernetes",
    "spark-application": "Kubernetes, SparkApplication",
    "spark-application-apache": "Kubernetes, Apache's SparkApplication",
    "ssh": "example plugin",
}
"""Parameter of the tests -> head of a column."""
_BUILT = ("yarn-kerberos", "kubernetes", "spark-application", "spark-application-apache")
"""What these need is made for them only, on Debian; Apache's operator is given, as ``APACHE_OPERATOR``."""
_WITHOUT_BUILDING = [place for place in PLACES if place not in _BUILT]
_WITH_BARE_WORKERS = {"standalone", "spark-application"}
BEGIN, END = "<!-- contract: written by its tests -->", "<!-- contract: end -->"
OUTCOMES = ROOT / "tests" / "clusters" / "outcomes.json"
"""The last result of each test on each deployment, and the day of the deployment's newest run."""
_TEST = re.compile(r"^def test_(\w+)", re.MULTILINE)
_CASE = re.compile(r"test_(\w+)\[([\w-]+)\]")


def main() -> int:
    """Run the tests of the deployments that are asked for, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "places", nargs="*", choices=[*PLACES, []], help="default: all that need nothing built"
    )
    parser.add_argument("--again", help="only tests with these words, as -k of pytest")
    parser.add_argument("--write-only", action="store_true", help="write the page from the last reports")
    asked = parser.parse_args()
    places = asked.places or _WITHOUT_BUILDING
    if not asked.write_only:
        _prepare(places)
    failed = [] if asked.write_only else [place for place in places if not run(place, asked.again)]
    write()
    say(f"Failed on: {', '.join(failed) or 'none'}")
    return min(len(failed), 1)


def _prepare(places: Iterable[str]) -> None:
    """Make what some tests of these deployments need beside ``make setup``."""
    if _WITH_BARE_WORKERS.intersection(places):
        bare_worker.ensure()
    if "yarn-kerberos" in places:
        kerberos.ensure()
    if "spark-application-apache" in places and "APACHE_OPERATOR" not in os.environ:
        sys.exit("APACHE_OPERATOR must name a folder with the operator's classpath.txt and its crds.")


def run(place: str, again: str | None = None) -> bool:
    """Run the tests of one deployment, or some of them; return whether all passed."""
    say(f"--- {place}")
    REPORTS.mkdir(parents=True, exist_ok=True)
    python, report = VENV_AIRFLOW / "bin" / "python", REPORTS / f"{place}-{time.time():.0f}.xml"
    wanted = f"[{place}] and ({again})" if again else f"[{place}]"
    options = ("-k", wanted, "-o", "junit_family=xunit1", f"--junitxml={report}", "tests/clusters")
    command = [python, ROOT / "testbed" / "guard.py", "--", python, "-m", "pytest", "-q", *options]
    return subprocess.run([str(part) for part in command], cwd=ROOT).returncode == 0  # noqa: S603


def write() -> None:
    """Keep the results of the last runs, and put their table between the page's marks."""
    days, outcomes = collected()
    kept = {"days": days, "outcomes": {name: outcomes[name] for name in sorted(outcomes)}}
    OUTCOMES.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    head = f"{os.cpu_count()} cores, Spark {_spark()}, Hadoop {_hadoop()}."
    section = f"{head}\n\n{rendered(outcomes, days)}"
    PAGE.write_text(f"{before}{BEGIN}\n{section}\n{END}{after}", encoding="utf-8")
    say(f"Wrote {PAGE.relative_to(ROOT)}")


def collected() -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the day of each deployment's newest run, and test -> deployment -> its last result.

    What was kept of deployments that were not run since stays; of tests that are gone it goes.
    """
    kept = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    days, outcomes = dict(kept["days"]), dict(kept["outcomes"])
    for report in sorted(REPORTS.glob("*.xml"), key=lambda path: path.stat().st_mtime):
        day = time.strftime("%Y-%m-%d", time.gmtime(report.stat().st_mtime))
        for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314  # pytest's own
            if (found := _CASE.fullmatch(str(case.get("name")))) and found[2] in PLACES:
                outcomes.setdefault(found[1].replace("_", " "), {})[found[2]] = _cell(case)
                days[found[2]] = day
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "clusters").glob("test_*.py"))
    known = {name.replace("_", " ") for text in sources for name in _TEST.findall(text)}
    return days, {name: of for name, of in outcomes.items() if name in known}


def rendered(outcomes: Mapping[str, Mapping[str, str]], days: Mapping[str, str]) -> str:
    """Return a line for each deployment: how many tests passed, which failed, the day of its newest run."""
    lines = []
    for place in (place for place in PLACES if place in days):
        passed = sum(of.get(place) == "passed" for of in outcomes.values())
        failed = "; ".join(name for name, of in outcomes.items() if of.get(place) == "failed")
        wrong = f", **failed: {failed}**" if failed else ""
        lines.append(f"- {PLACES[place]}: {passed} passed{wrong} ({days[place]})")
    return "\n".join(lines)


def _cell(case: ET.Element) -> str:
    bad = any(case.find(word) is not None for word in ("failure", "error", "skipped"))
    return "failed" if bad else "passed"


def _spark() -> str:
    said = next(VENV_SPARK.glob("lib/python3*/site-packages/pyspark/version.py")).read_text()
    found = re.search(r"\d+\.\d+\.\d+", said)
    return found[0] if found else "?"


def _hadoop() -> str:
    jars = (jar.coordinate for jar in read_lock())
    return next(jar.version for jar in jars if jar.artifact == "hadoop-client-minicluster")


if __name__ == "__main__":
    sys.exit(main())
