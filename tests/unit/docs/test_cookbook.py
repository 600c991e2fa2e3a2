"""The incident cookbook has an answer to every code, and to no other; bad-input.md a sentence for each."""

from __future__ import annotations

import re
from collections import Counter

from airflow_flinkstyle.errors import FlinkstyleError
from testbed import paths
from tools import bad_input

TEXT = bad_input.COOKBOOK.read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| `")]


def codes_of(row: str) -> list[str]:
    return re.findall(r"`([A-Z_]+)`", row.split("|")[1])


def test_every_code_has_one_row_and_no_row_is_about_another():
    told = Counter(code for row in ROWS for code in codes_of(row))
    assert set(told) == set(bad_input.entries())
    assert [code for code, count in told.items() if count > 1] == []


def test_row_says_retried_where_airflow_tries_again_and_only_there():
    known = bad_input.entries()
    for row in ROWS:
        retried = {known[code].passes for code in codes_of(row)}
        assert retried == {"Retried" in row}, row


def test_list_of_codes_is_current():
    assert bad_input.text() == bad_input.PAGE.read_text(encoding="utf-8"), "run: python -m tools.bad_input"


def test_sentences_of_codes_are_short_and_whole():
    for code, entry in bad_input.entries().items():
        assert re.fullmatch(r"[A-Z].*[.]", entry.means), code
        assert len(entry.means) < 150, code


def test_families_are_raised_by_nobody():
    told = set(bad_input.entries())
    families = {kind.__name__ for kind in FlinkstyleError.__subclasses__() if kind.code not in told}
    assert families
    raises = re.compile(rf"raise ({'|'.join(families)})\(")
    sources = (paths.ROOT / "airflow_flinkstyle").rglob("*.py")
    assert [path for path in sources if raises.search(path.read_text(encoding="utf-8"))] == []
