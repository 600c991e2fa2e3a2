from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tools import compatibility
from tools.common import SPARKS
from tools.compatibility import is_empty, render

if TYPE_CHECKING:
    from pathlib import Path

AGENT = "tests/integration/test_agent.py"
OPERATORS = "tests/integration/test_savepoint_operators.py"
ONE = "test_restored_operator_goes_on_as_the_unbroken_one[rocksdb]"
VERSION = f"""<testsuites><testsuite timestamp="2026-11-23T10:00:00" hostname="h">
<testcase file="{AGENT}" name="test_a"/>
<testcase file="{AGENT}" name="test_b"><failure/></testcase>
<testcase file="{OPERATORS}" name="{ONE}"/>
<testcase file="{OPERATORS}" name="test_older[NOTSET]"><skipped/></testcase>
</testsuite></testsuites>"""
CHAIN = """<testsuites><testsuite timestamp="2026-11-24T10:00:00" hostname="h">
<testcase file="tests/versions/test_chain.py" name="test_join_finds_each_pair_once[HDFS]"/>
<testcase file="tests/versions/test_chain.py" name="test_join_finds_each_pair_once[RocksDB]">
<error/></testcase>
</testsuite></testsuites>"""
LATER = f"""<testsuites><testsuite timestamp="2026-11-25T10:00:00" hostname="h">
<testcase file="{AGENT}" name="test_b"/>
</testsuite></testsuites>"""
UPGRADE = """<testsuites><testsuite timestamp="2026-11-24T10:00:00" hostname="h">
<testcase file="tests/versions/test_upgrade.py" name="test_job_goes"/>
</testsuite></testsuites>"""


def test_page_says_what_ran_names_what_failed_and_says_what_was_not_run(tmp_path: Path) -> None:
    (tmp_path / f"tests-versions-spark-{SPARKS[0]}.xml").write_text(VERSION)
    (tmp_path / "tests-chain-spark.xml").write_text(CHAIN)
    page = render(tmp_path)
    others = ["not run"] * (len(SPARKS) - 1)
    area = next(iter(compatibility.AREAS))
    assert f"| {' | '.join([area, '1 passed, 1 failed', *others])} |" in page
    assert f"| {' | '.join(['run on', '2026-11-23', *others])} |" in page
    assert f"Failed on {SPARKS[0]}: `{AGENT}::test_b`" in page
    assert f"| {' | '.join(['`rocksdb`', 'passed', *['-'] * len(others)])} |" in page
    assert "| join finds each pair once | passed | failed |" in page


def test_page_takes_a_test_from_its_newest_run_whatever_else_that_run_held(tmp_path: Path) -> None:
    for at_s, name, text in (
        (1, f"tests-versions-spark-{SPARKS[0]}.xml", VERSION),
        (2, f"tests-versions-agent-spark-{SPARKS[0]}.xml", LATER),
        (3, "tests-chain-upgrade-spark.xml", UPGRADE),
    ):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (at_s, at_s))
    page = render(tmp_path)
    assert f"| {next(iter(compatibility.AREAS))} | passed | not run |" in page
    assert "| run on | 2026-11-23 to 2026-11-25 |" in page
    assert "| job goes | `tests/versions/test_upgrade.py` | passed |" in page


def test_page_keeps_what_it_says_of_what_has_no_report(tmp_path: Path) -> None:
    """In another checkout one Spark is run alone."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (first / f"tests-versions-spark-{SPARKS[0]}.xml").write_text(VERSION)
    (first / "tests-chain-spark.xml").write_text(CHAIN)
    earlier = render(first)
    (second / f"tests-versions-spark-{SPARKS[1]}.xml").write_text(LATER)
    page, rest = render(second, earlier), ["not run"] * (len(SPARKS) - 2)
    area = next(iter(compatibility.AREAS))
    assert f"| {' | '.join([area, '1 passed, 1 failed', 'passed', *rest])} |" in page
    assert f"| {' | '.join(['run on', '2026-11-23', '2026-11-25', *rest])} |" in page
    assert f"| {' | '.join(['`rocksdb`', 'passed', *['-'] * (len(SPARKS) - 1)])} |" in page
    assert "| join finds each pair once | passed | failed |" in page
    assert render(tmp_path, page) == page


def test_page_keeps_the_areas_that_a_run_of_some_files_left_out(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, area, text in ((first, "", VERSION), (second, "-agent", LATER)):
        folder.mkdir()
        (folder / f"tests-versions{area}-spark-{SPARKS[0]}.xml").write_text(text)
    page, rest = render(second, render(first)), ["not run"] * (len(SPARKS) - 1)
    assert f"| {' | '.join([next(iter(compatibility.AREAS)), 'passed', *rest])} |" in page
    assert f"| {' | '.join(['operators and state stores', 'passed', *rest])} |" in page
    assert f"| {' | '.join(['`rocksdb`', 'passed', *['-'] * len(rest)])} |" in page
    assert f"| {' | '.join(['run on', '2026-11-23 to 2026-11-25', *rest])} |" in page
    assert render(second, page) == page


def test_page_names_areas_that_passed_on_every_spark_in_one_line_and_keeps_it(tmp_path: Path) -> None:
    for minor in SPARKS:
        (tmp_path / f"tests-versions-spark-{minor}.xml").write_text(LATER)
    (tmp_path / "tests-chain-spark.xml").write_text(CHAIN)
    page = render(tmp_path)
    assert f"Passed on each: {next(iter(compatibility.AREAS))}." in page
    assert render(tmp_path / "none", page) == page


def test_every_area_names_a_file_of_tests_and_every_spark_a_lock() -> None:
    assert all((compatibility.ROOT / file).is_file() for file in compatibility.AREAS.values())
    assert all((compatibility.LOCKS / f"spark-{minor}.txt").is_file() for minor in SPARKS)


def test_only_a_skip_for_want_of_parameters_is_none() -> None:
    assert is_empty("t.py::test_a[NOTSET] (skipped)")
    assert not is_empty("t.py::test_a (skipped)")
