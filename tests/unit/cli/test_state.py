from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from airflow_flinkstyle.cli.state import _run

if TYPE_CHECKING:
    import pytest

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
