"""The incident cookbook has an answer to every code, and to no other."""

from __future__ import annotations

import re
from collections import Counter

from airflow_flinkstyle.errors import FlinkstyleError
from testbed import paths
from tools import codes

TEXT = codes.COOKBOOK.read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("- `")]


def codes_of(row: str) -> list[str]:
    begin = re.match(r"- (?:`[A-Z_]+`(?:, )?)+", row)
    assert begin is not None, row
    return re.findall(r"`([A-Z_]+)`", begin[0])


def test_every_code_has_one_row_and_no_row_is_about_another():
    told = Counter(code for row in ROWS for code in codes_of(row))
    assert set(told) == set(codes.entries())
    assert [code for code, count in told.items() if count > 1] == []


def test_row_says_retried_where_airflow_tries_again_and_only_there():
    known = codes.entries()
    for row in ROWS:
        said = "sometimes" if "Retried, where" in row else "always" if "Retried" in row else "never"
        assert {known[code].passes for code in codes_of(row)} == {said}, row


def test_sentences_of_codes_are_short_and_whole():
    for code, entry in codes.entries().items():
        assert re.fullmatch(r"[A-Z].*[.]", entry.means), code
        assert len(entry.means) < 150, code


def test_families_are_raised_by_nobody():
    told = set(codes.entries())
    families = {kind.__name__ for kind in FlinkstyleError.__subclasses__() if kind.code not in told}
    assert families
    raises = re.compile(rf"raise ({'|'.join(families)})\(")
    sources = (paths.ROOT / "airflow_flinkstyle").rglob("*.py")
    assert [path for path in sources if raises.search(path.read_text(encoding="utf-8"))] == []
