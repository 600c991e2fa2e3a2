from __future__ import annotations

from typing import TYPE_CHECKING

from tools.written_states import FILE, TESTS, render

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN, MOVED = TESTS


def a_report(*cases: tuple[str, str]) -> str:
    told = "".join(f'<testcase file="{FILE}" name="{name}">{inner}</testcase>' for name, inner in cases)
    return f'<testsuites><testsuite timestamp="2026-11-27T10:00:00">{told}</testsuite></testsuites>'


def test_table_says_what_was_written_and_keeps_what_no_report_is_about(tmp_path: Path) -> None:
    report = tmp_path / "tests-versions-transform_state-spark-4.2.xml"
    cases = (f"{WRITTEN}[dedup]", ""), (f"{WRITTEN}[join]", "<failure/>"), (f"{MOVED}[join]", "")
    report.write_text(a_report(*cases, ("test_other[x]", "")))
    said = render(tmp_path, "| `dedup`, `old` | in RocksDB | - | passed, 2026-11-01 |\n")
    assert said.splitlines()[2:] == [
        "| `dedup` | in RocksDB | passed, 2026-11-27 | passed, 2026-11-01 |",
        "| `old` | in RocksDB | - | passed, 2026-11-01 |",
        "| `join` | in RocksDB | failed, 2026-11-27 | - |",
        "| `join` | to RocksDB | passed, 2026-11-27 | - |",
    ]
