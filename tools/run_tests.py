"""`make test`, `make nightly`, `make matrix`: tiers of tests, each in its environment, and their sum.

A test is in one of these commands, or in one that its marker names: `make nightly` runs what is marked
``nightly`` and nothing else, `make matrix` what is marked ``matrix``. Nothing can pass by not running: a tier
without tests, a skip and a crash of pytest are failures.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tools import setup
from tools.common import ENDS, HOME, LOGS, ROOT, SLICED_SPARKS, VENV_AIRFLOW, VENV_SPARK, say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Command = Literal["test", "nightly", "matrix"]
"""What a contributor waits for, the rest, and the many cases of a kind of which the others run a few."""
MARKERS: Mapping[Command, str] = {
    "test": "not nightly and not matrix",
    "nightly": "nightly and not matrix",
    "matrix": "matrix",
}
TIERS = {
    "unit": ("unit", "model", "golden"),
    "release": ("release",),
    "integration": ("integration", "slices"),
    "e2e": ("e2e",),
}
"""Tier -> its folders below ``tests/``."""
TOGETHER: Mapping[Command, tuple[tuple[str, ...], ...]] = {
    "test": tuple((tier,) for tier in TIERS),
    "nightly": (("unit", "release", "integration"), ("e2e",)),
    "matrix": (tuple(TIERS),),
}
"""Tiers that share their processes: at night those that wait leave the cores to the others."""
ELSEWHERE = ("bench", "versions")
"""Markers of tests that have commands of their own."""
LANES, WAITING_LANES = "3", "4"
"""Processes for two cores: tests wait for brokers and JVMs, which cost as long as a test lasts; unit
tests, which wait for processes, and those that start Airflow wait longer."""
FILE_IN_ONE = ("--dist", "loadfile", "--no-loadscope-reorder")
"""What a module has started serves all its tests."""
STEALING = ("--dist", "worksteal")
"""Stories are long and share nothing: who is done first takes over others'."""
SLOWEST = ("--durations=12", "--durations-min=15")
"""Tests that make the run long are named at the end of their tier."""
_SYSTEMD_TESTS = "tests/integration/test_detached_systemd.py"
ALLOWED_SKIPS = (
    frozenset(
        # Need root and namespaces.
        [
            "tests/integration/test_workers.py::test_three_workers_with_clocks_ten_minutes_apart_operate_one_job"
        ]
    )
    | frozenset(
        # Need root, cgroup v2, namespaces and systemd; the skip names what the machine lacks.
        f"{_SYSTEMD_TESTS}::{name}"
        for name in (
            "test_driver_of_a_service_outlives_it_in_a_scope_of_its_own",
            "test_driver_is_in_its_scope_once_it_was_started_however_slow_systemd_is",
            "test_service_that_leaves_processes_alone_needs_no_scope",
            "test_start_that_its_service_would_end_is_refused_by_name_unless_accepted",
            "test_driver_of_a_user_that_lingers_outlives_the_service_in_a_scope_of_the_users",
            "test_job_that_a_service_started_runs_on_and_is_controlled_from_another_pid_namespace",
        )
    )
    | frozenset(
        # Needs a Python 3.10.
        ["tests/release/test_installed.py::test_job_starts_from_the_wheel_is_saved_and_stops[spark_3_10]"]
    )
    | frozenset(
        # Need Chromium.
        f"tests/integration/test_page.py::{name}"
        for name in (
            "test_viewer_sees_jobs_and_savepoints_and_can_trigger_nothing",
            "test_job_leads_to_the_runs_the_graph_and_what_was_asked",
            "test_dry_run_says_what_a_start_would_meet",
            "test_admin_triggers_a_dag_with_the_fields_filled_in",
            "test_savepoint_is_pinned_with_a_reason_and_let_go",
            "test_savepoint_that_goes_while_the_form_is_open_is_a_sentence_and_nothing_is_triggered",
            "test_markup_from_the_store_is_text_and_errors_are_sentences",
            "test_who_has_no_right_finds_no_page_and_no_job",
            "test_narrow_window_scrolls_tables_and_not_the_page",
            "test_keyboard_alone_opens_a_job_fills_in_a_form_and_leaves_it",
            # And axe-core, which npm brings.
            "test_axe_finds_nothing_serious[light]",
            "test_axe_finds_nothing_serious[dark]",
        )
    )
)
"""Tests (``file::name`` as in the summary) that may be skipped, each with a reason beside it."""
NO_TESTS = 5
"""Pytest's exit code if it collected none."""
CODE = ("airflow_flinkstyle", "testbed", "tools", "demo", "benchmarks", "examples", "dags")
TESTS = ROOT / "tests"
LONG_FILES = (
    "e2e/test_strategies.py",  # the only story in parts, which share a set-up: begun first
    "e2e/test_migration.py",
    "e2e/test_dag.py",
    "e2e/test_chaos.py",
    "e2e/test_soak.py",
    "e2e/test_credentials.py",
    "e2e/test_cutover_kills.py",
    "e2e/test_late_writes.py",
    "e2e/test_upgrade.py",
    "e2e/test_kills.py",
    "e2e/test_adoption.py",
    "e2e/test_hot_savepoints.py",
    "unit/sinks/test_kafka_errors.py",  # waits all the time
    "integration/test_tables.py",
    "integration/test_transform_state.py",
    "integration/test_replay.py",
    "integration/test_state_cli.py",
    "integration/test_repartitioned_job.py",
    "integration/test_jobs_detached.py",
    "integration/test_page.py",
    "integration/test_agent.py",
    "integration/test_savepoint_operators.py",
    "slices/test_slices.py",
    "integration/test_airflow_dags.py",
    "integration/test_sink.py",
    "integration/test_sink_rewind.py",
    "integration/test_aligned.py",
    "integration/test_differential.py",
    "integration/test_batch_ids.py",
    "integration/test_places.py",
    "integration/test_clusters.py",
    "integration/test_savepoint_hot.py",
    "integration/test_sink_small.py",
    "integration/test_compared_beside.py",
    "integration/test_rehearsal_several.py",
    "integration/test_rehearsal_quiet.py",
    "integration/test_rehearsal_state.py",
    "integration/test_comparison.py",
    "integration/test_rewinding.py",
    "integration/test_bootstrap.py",
    "integration/test_translation.py",
    "integration/test_security.py",
    "integration/test_sink_left_open.py",
    "integration/test_savepoint_faults.py",
    "integration/test_agent_guard.py",
    "integration/test_components.py",
)
"""Files of about a minute or more, by day or at night: begun first, so that all processes end together."""
_SPARK_MARK = re.compile(r"^(\s*@pytest\.|pytestmark = .*|\s+pytest\.)mark\.spark\b", re.MULTILINE)
"""A test or module marked ``spark``, as a decorator or in ``pytestmark``, also over several lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one invocation of a tool or of pytest came to."""

    name: str
    passed: int
    failed: tuple[str, ...]
    """Names of tests or reasons, each counted as one failure."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What one pytest runs."""

    tiers: tuple[str, ...]
    venv: Path
    """Of Airflow or of Spark."""
    files: list[Path]
    markers: str
    """Pytest's expression that selects tests in them."""
    may_be_empty: bool = False
    """Of a file that names a marker all such tests may be for the other environment."""

    @property
    def name(self) -> str:
        """Names it in reports."""
        return f"{'+'.join(self.tiers)} ({self.venv.name.removeprefix('venv-')})"


def main() -> int:
    """Run what was asked for and print the sum."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=get_args(Command))
    parser.add_argument("parts", nargs="*", choices=["lint", *TIERS, []], help="default: all")
    asked = parser.parse_args()
    command: Command = asked.command
    wanted = asked.parts or list(TIERS)
    outcomes: list[Outcome] = []
    if command != "test" and "integration" in wanted:
        setup.ensure(ENDS if command == "nightly" else SLICED_SPARKS)
    if command != "matrix" and (not asked.parts or "lint" in wanted):
        outcomes += lint(command, whole="lint" in wanted)
    for group in TOGETHER[command]:
        if tiers := tuple(tier for tier in group if tier in wanted):
            outcomes += run_tiers(tiers, command)
    return report(outcomes)


def lint(command: Command, *, whole: bool) -> list[Outcome]:
    """Run ruff, mypy and the layer contracts; mypy for the drivers' oldest Python is the night's part."""
    tools = VENV_AIRFLOW / "bin"
    code = [name for name in CODE if (ROOT / name).is_dir()]
    of_test: dict[str, list[str | Path]] = {
        "ruff check": [tools / "ruff", "check", "--quiet", "."],
        "ruff format": [tools / "ruff", "format", "--check", "--quiet", "."],
        "mypy": [tools / "mypy", *code],
        "layers": [tools / "lint-imports", "--no-cache"],
    }
    of_nightly: dict[str, list[str | Path]] = {
        "mypy, as 3.10": [tools / "mypy", "--python-version", "3.10", "airflow_flinkstyle"],
    }
    commands = of_test | of_nightly if whole else of_test if command == "test" else of_nightly
    with ThreadPoolExecutor() as pool:  # side by side: mypy needs about as long as the others together
        return list(pool.map(_lint_with, commands, commands.values()))


def _lint_with(name: str, command: list[str | Path]) -> Outcome:
    """Run one tool and print what it said when it is done."""
    started_s = time.monotonic()
    done = subprocess.run(  # noqa: S603
        [str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    say(f"--- {name}\n{done.stdout}".rstrip())
    failed = () if done.returncode == 0 else (f"{name}: exit code {done.returncode}",)
    seconds = time.monotonic() - started_s
    return Outcome(name=name, passed=int(not failed), failed=failed, seconds=seconds)


def run_tiers(tiers: tuple[str, ...], command: Command) -> list[Outcome]:
    """Run tiers for a command: tests marked ``spark`` in Spark's environment, the rest in Airflow's."""
    outcomes = [run_pytest(one) for one in selection(tiers, command)]
    if not outcomes and command == "test":
        [name] = tiers
        outcomes.append(Outcome(name=name, passed=0, failed=(f"{name}: no test file",), seconds=0))
    return outcomes


def selection(tiers: tuple[str, ...], command: Command) -> list[Invocation]:
    """Return which files one command gives to pytest for tiers, by environment, and by which markers."""
    folders = [folder for tier in tiers for folder in TIERS[tier]]
    files = sorted((file for folder in folders for file in (TESTS / folder).rglob("test_*.py")), key=_place)
    if command != "test":
        files = [file for file in files if command in file.read_text()]
    with_spark = [file for file in files if _SPARK_MARK.search(file.read_text())]
    only_spark = {file for file in with_spark if _is_spark_only(file.read_text())}
    others = [file for file in files if file not in only_spark]
    which = " and ".join([MARKERS[command], *(f"not {one}" for one in ELSEWHERE)])
    return [
        Invocation(
            tiers=tiers,
            venv=venv,
            files=chosen,
            markers=f"{side} and {which}",
            may_be_empty=command != "test",
        )
        for venv, chosen, side in ((VENV_AIRFLOW, others, "not spark"), (VENV_SPARK, with_spark, "spark"))
        if chosen
    ]


def _place(file: Path) -> tuple[int, Path]:
    """Return what orders files: the long ones come first, the others by name."""
    name = file.relative_to(TESTS).as_posix()
    return (LONG_FILES.index(name) if name in LONG_FILES else len(LONG_FILES)), file


def _is_spark_only(text: str) -> bool:
    """True if the whole module is marked, so that Airflow's environment need not import it."""
    marks = re.search(r"^pytestmark = (\[[^\]]*\]|.*)", text, re.MULTILINE)
    return marks is not None and "mark.spark" in marks[1]


def run_pytest(what: Invocation) -> Outcome:
    """Run one pytest under a guard that ends whatever it leaves, and read its report."""
    name, tiers, venv, files = what.name, what.tiers, what.venv, what.files
    waits = venv == VENV_AIRFLOW and tiers != ("e2e",)
    lanes = ("-n", WAITING_LANES if waits else LANES, *(STEALING if tiers == ("e2e",) else FILE_IN_ONE))
    say(f"--- {name}: {len(files)} files")
    scratch = HOME / "tmp" / f"{tiers[-1]}-{venv.name}-{os.getpid()}"
    shutil.rmtree(scratch, ignore_errors=True)
    for folder in (scratch.parent, LOGS):
        folder.mkdir(parents=True, exist_ok=True)
    junit = LOGS / f"tests-{tiers[-1]}-{venv.name.removeprefix('venv-')}.xml"
    junit.unlink(missing_ok=True)
    command = [
        *(sys.executable, ROOT / "testbed" / "guard.py", "--"),
        *(venv / "bin" / "python", "-m", "pytest", "-q", "-m", what.markers, *lanes, *SLOWEST),
        *(f"--basetemp={scratch}", f"--junitxml={junit}", "-o", "junit_family=xunit1"),
        *(str(file.relative_to(ROOT)) for file in files),
    ]
    started_s = time.monotonic()
    code = subprocess.run([str(part) for part in command], cwd=ROOT).returncode  # noqa: S603
    passed, failed = read_report(junit)
    if code != 0 and not failed and not (code == NO_TESTS and what.may_be_empty):
        failed = (f"{name}: pytest ended with exit code {code}",)
    if passed == 0 and not failed and not what.may_be_empty:
        failed = (f"{name}: no test ran",)
    if not failed:
        shutil.rmtree(scratch, ignore_errors=True)
    return Outcome(name=name, passed=passed, failed=failed, seconds=time.monotonic() - started_s)


def read_report(junit: Path) -> tuple[int, tuple[str, ...]]:
    """Return how many tests passed and which did not; a skip that is not allowed did not."""
    if not junit.exists():
        return 0, ()
    passed, failed = 0, []
    for case in ET.parse(junit).getroot().iter("testcase"):  # noqa: S314  # pytest's own report
        name = f"{case.get('file') or case.get('classname')}::{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is None:
            passed += 1
        elif name not in ALLOWED_SKIPS:
            failed.append(f"{name} (skipped)")
    return passed, tuple(failed)


def report(outcomes: list[Outcome]) -> int:
    """Print time and failures per part and the closing line; return the exit code."""
    say("")
    for outcome in outcomes:
        counts = f"{outcome.passed:5} passed {len(outcome.failed):4} failed"
        say(f"{outcome.name:24} {counts} {outcome.seconds:7.1f} s")
    for outcome in outcomes:
        for name in outcome.failed:
            say(f"FAILED {name}")
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(len(outcome.failed) for outcome in outcomes)
    say(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
