from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from tools import changed_state
from tools.changed_state import OUTCOMES, PAGE, PROVED, TESTS, collected, rendered

if TYPE_CHECKING:
    from pathlib import Path

EQUAL, REFUSED = PROVED


def report(folder: Path, minor: str, area: str, at_s: int, *cases: str) -> None:
    name = folder / f"tests-versions{area}-spark-{minor}.xml"
    found = "".join(f'<testcase file="t.py" name="{case}</testcase>' for case in cases)
    suite = f'<testsuite timestamp="2026-11-2{at_s}T10:00:00" hostname="h">{found}</testsuite>'
    name.write_text(f"<testsuites>{suite}</testsuites>")
    os.utime(name, (at_s, at_s))


def test_table_says_what_came_of_each_case_on_the_sparks_that_have_it(tmp_path: Path):
    report(tmp_path, "4.2", "", 1, f'{EQUAL}[dedup in RocksDB]"><failure/>', f'{REFUSED}[NOTSET]"><skipped/>')
    report(tmp_path, "4.2", "-state", 2, f'{EQUAL}[dedup in RocksDB]">', f'{EQUAL}[join in RocksDB]">')
    report(tmp_path, "4.2", "-sink", 3, 'test_sink">')
    more = (f'{EQUAL}[join in RocksDB]"><error/>', f'{REFUSED}[new in RocksDB]">')
    report(tmp_path, "4.3", "", 4, f'{EQUAL}[dedup in RocksDB]">', f'{EQUAL}[dedup in HDFS]">', *more)
    report(tmp_path, "4.1", "", 4, f'{EQUAL}[NOTSET]"><skipped/>')
    found = rendered(collected(tmp_path))
    assert found == (
        "On Spark 4.2 (2026-11-22) and 4.3 (2026-11-24):\n\n"
        "| operator | RocksDB | HDFS |\n|---|---|---|\n"
        "| dedup | equal | equal |\n"
        "| join | 4.2: equal; 4.3: failed | - |\n"
        "| new | refused | - |\n"
    )


def test_page_has_the_table_of_what_is_kept():
    kept = json.loads(OUTCOMES.read_text(encoding="utf-8"))
    said = PAGE.read_text(encoding="utf-8").partition(changed_state.BEGIN)[2].partition(changed_state.END)[0]
    assert said == rendered(kept)


def test_what_is_kept_is_of_cases_and_tests_that_are_there():
    kept, source = json.loads(OUTCOMES.read_text(encoding="utf-8")), TESTS.read_text(encoding="utf-8")
    names = {name for of in kept.values() for case in of if case != "day" for name in case.split(" in ")}
    assert [name for name in names if f'"{name}"' not in source] == []
    assert [test for test in PROVED if f"def {test}(" not in source] == []
