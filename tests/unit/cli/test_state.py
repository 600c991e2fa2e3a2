from __future__ import annotations

import sys
from typing import Any

import pytest

from airflow_flinkstyle.cli.state import _run

PROGRAM = """
import sys, time
for number in range(20):
    print(f"line {number}", file=sys.stderr)
print("flinkstyle: writing the new state: 3 of 8 tasks", file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
print('{"rows": []}')
sys.exit(4)
"""


def test_log_of_the_one_that_is_asked_is_its_end_without_what_it_is_at():
    exit_code, output, log = _run([sys.executable, "-c", PROGRAM, "0"])
    assert (exit_code, output) == (4, '{"rows": []}\n')
    assert log.splitlines() == [f"line {number}" for number in range(5, 20)]


def test_people_see_what_it_is_at(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    _run([sys.executable, "-c", PROGRAM, "1"])
    assert "writing the new state: 3 of 8 tasks" in capsys.readouterr().err


@pytest.mark.parametrize(
    "tables",
    [("0=SELECT 1", "totals/1=SELECT 2"), ("0=SELECT 1", "0=SELECT 2"), ("0=SELECT 1", "0/left=SELECT 2")],
    ids=str,
)
def test_tables_of_which_one_would_not_be_read_are_refused(root: Any, tables: tuple[str, ...]):  # noqa: ANN401
    options = [word for table in tables for word in ("--table", table)]
    assert "--table" in root.run("savepoint", "bootstrap", __file__, *options, code=2).stderr


def test_name_that_is_given_two_values_is_refused(root: Any):  # noqa: ANN401
    options = ("--set", "sum=1", "--set", "sum=2")
    said = root.run("savepoint", "transform", "sp-1", *options, code=2).stderr
    assert "found 'sum' twice" in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--drop-keys", "value.sum = 0", "--where", "key.tenant = 'a'"), "--where with --set only"),
        (("--widen", "n=BIGINT", "--before", "m"), "--before with --add-column only"),
        (("--script", __file__, "--state", "left"), "no --operator or --state with --script"),
        (("--script", __file__, "--operator", "1"), "no --operator or --state with --script"),
        ((), "give what to change"),
    ],
    ids=str,
)
def test_option_that_would_do_nothing_is_refused(root: Any, options: tuple[str, ...], says: str):  # noqa: ANN401
    assert says in root.run("savepoint", "transform", "sp-1", *options, code=2).stderr
