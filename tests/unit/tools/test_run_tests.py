from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.nightly import matrix_but, nightly_but
from tools import run_tests
from tools.run_tests import Outcome, read_report, report

if TYPE_CHECKING:
    from pathlib import Path

CASES = """<testsuites><testsuite>
<testcase file="tests/t.py" name="a"/>
<testcase file="tests/t.py" name="b"><failure/></testcase>
<testcase file="tests/t.py" name="c"><error/></testcase>
<testcase file="tests/t.py" name="d"><skipped/></testcase>
</testsuite></testsuites>"""


def test_skip_and_error_count_as_failures(tmp_path: Path):
    (tmp_path / "r.xml").write_text(CASES)
    assert read_report(tmp_path / "r.xml") == (
        1,
        ("tests/t.py::b", "tests/t.py::c", "tests/t.py::d (skipped)"),
    )


def test_last_line_sums_up_and_any_failure_fails_the_run(capsys: pytest.CaptureFixture[str]):
    outcomes = [
        Outcome(name="unit", passed=3, failed=(), seconds=1),
        Outcome(name="e2e", passed=2, failed=("x",), seconds=1),
    ]
    assert report(outcomes) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 1 failed"
    assert report(outcomes[:1]) == 0
    assert report([]) == 1


def test_nightly_takes_the_files_that_name_its_marker_and_leaves_the_others_to_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(run_tests, "TESTS", tmp_path)
    (tmp_path / "e2e").mkdir()
    texts = ("@pytest.mark.nightly\n", "def test_b(): ...\n", "cases = matrix_but(...)\n")
    for name, text in zip("abc", texts, strict=True):
        (tmp_path / "e2e" / f"test_{name}.py").write_text(text)
    [night] = run_tests.selection(("e2e",), "nightly")
    assert [file.name for file in night.files] == ["test_a.py"]
    assert night.markers == "not spark and nightly and not matrix and not bench and not versions"
    [day] = run_tests.selection(("e2e",), "test")
    assert [file.name for file in day.files] == ["test_a.py", "test_b.py", "test_c.py"]
    assert day.markers == "not spark and not nightly and not matrix and not bench and not versions"
    [every] = run_tests.selection(("e2e",), "matrix")
    assert [file.name for file in every.files] == ["test_c.py"]
    assert every.markers == "not spark and matrix and not bench and not versions"


def test_cases_of_a_kind_are_in_one_command_each_and_never_all_in_the_matrix():
    later = [pytest.param("b", marks=pytest.mark.nightly), pytest.param("c", marks=pytest.mark.matrix)]
    assert nightly_but("a".__eq__, "abc", matrix="c".__eq__) == ["a", *later]
    assert matrix_but("a".__eq__, "ab") == ["a", pytest.param("b", marks=pytest.mark.matrix)]
    for cases_of in (nightly_but, matrix_but):
        with pytest.raises(ValueError, match="no case is kept"):
            cases_of("z".__eq__, "ab")


def test_tier_without_tests_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_tests, "TESTS", tmp_path)
    assert run_tests.run_tiers(("unit",), "test")[0].failed == ("unit: no test file",)


def test_each_command_runs_each_tier_once():
    for groups in run_tests.TOGETHER.values():
        assert [tier for group in groups for tier in group] == list(run_tests.TIERS)


def test_long_files_exist_and_come_first():
    files = [run_tests.TESTS / name for name in run_tests.LONG_FILES]
    assert all(file.is_file() for file in files)
    early = run_tests.TESTS / "integration" / "test_a.py"
    assert sorted([early, *reversed(files)], key=run_tests._place) == [*files, early]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pytestmark = pytest.mark.spark\n", True),
        ("pytestmark = [pytest.mark.integration,\n    pytest.mark.spark]\n", True),
        ("pytestmark = pytest.mark.integration\n@pytest.mark.spark\n", False),
    ],
)
def test_only_wholly_marked_modules_are_kept_from_the_airflow_side(text: str, expected: bool):
    assert run_tests._is_spark_only(text) is expected
