"""The incident cookbook has an answer to every code, and to no other."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections import Counter

import airflow_flinkstyle
from airflow_flinkstyle.errors import FlinkstyleError
from testbed import paths

TEXT = (paths.ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
ROWS = [line for line in TEXT.splitlines() if line.startswith("| `")]
ROOTS = {"JOB", "SAVEPOINT", "STORE", "CHECKPOINT", "REWRITE"}


def raised() -> dict[str, bool]:
    """Return the codes of all errors of the package, and whether the tasks that raise them are retried."""
    for module in pkgutil.walk_packages(airflow_flinkstyle.__path__, "airflow_flinkstyle."):
        if module.name.endswith(".errors"):
            importlib.import_module(module.name)
    found: dict[str, bool] = {}
    kinds = list(FlinkstyleError.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.__module__.startswith("airflow_flinkstyle"):
            found[kind.code] = found.get(kind.code, False) or kind.retryable
    return found


def codes_of(row: str) -> list[str]:
    return re.findall(r"`([A-Z_]+)`", row.split("|")[1])


def test_every_code_has_one_row_and_no_row_is_about_another():
    told = Counter(code for row in ROWS for code in codes_of(row))
    assert set(told) == set(raised())
    assert [code for code, count in told.items() if count > 1] == []


def test_row_says_retried_where_airflow_tries_again_and_only_there():
    codes = raised()
    for row in ROWS:
        retried = {codes[code] for code in codes_of(row)}
        assert retried == {"Retried" in row}, row


def test_families_are_raised_by_nobody():
    families = {kind.__name__ for kind in FlinkstyleError.__subclasses__() if kind.code in ROOTS}
    assert len(families) == len(ROOTS)
    raises = re.compile(rf"raise ({'|'.join(families)})\(")
    sources = (paths.ROOT / "airflow_flinkstyle").rglob("*.py")
    assert [path for path in sources if raises.search(path.read_text(encoding="utf-8"))] == []
