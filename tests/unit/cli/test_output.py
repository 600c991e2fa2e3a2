"""What people are shown."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle import __version__
from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.cli.output import in_options, report, show, table
from airflow_flinkstyle.errors import BadInputError

ID = "sp-0123456789abcdef0123"
COLUMNS = ("savepoint", "taken (UTC)", "#gen", "batches", "#files", "cut", "spark", "verified", "pinned")
ROW = (ID, "2026-11-23 17:05:46", 3, "totals@4, sums@5", 20, "aligned", "4.2.0", None, "before the new year")
OPTIONS = {"from_job": "--from-job", "full": "--full", "despite": "--despite"}

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


def lines_at(columns: int, rows: list[tuple[object, ...]], capsys: Capture, patch: Patch) -> list[str]:
    """Show a table as a terminal of so many columns does."""
    patch.setenv("COLUMNS", str(columns))
    patch.setenv("FORCE_COLOR", "1")
    patch.setenv("TERM", "xterm")
    show({}, table(*COLUMNS, rows=rows), as_json=False)
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


def test_text_with_brackets_is_shown_as_it_is(capsys: Capture):
    show({}, table("[b]topic[/b]", rows=[("[red]totals[/red] :smile:",)]), as_json=False)
    shown = capsys.readouterr().out
    assert "[b]topic[/b]" in shown
    assert "[red]totals[/red] :smile:" in shown


def test_rows_that_do_not_fit_stand_below_each_other_and_are_whole(capsys: Capture, monkeypatch: Patch):
    lines = lines_at(80, [ROW, ROW], capsys, monkeypatch)
    assert max(map(len, lines)) <= 80
    pairs = [line.split("  ", 1) for line in lines if line.strip()]
    assert [head.strip() for head, _ in pairs] == [name.removeprefix("#") for name in COLUMNS] * 2
    assert [value.strip() for _, value in pairs][:9] == ["-" if one is None else str(one) for one in ROW]


def test_rows_that_fit_stay_a_table(capsys: Capture, monkeypatch: Patch):
    head, line = lines_at(200, [ROW], capsys, monkeypatch)
    assert head.split()[0] == "savepoint"
    assert line.startswith(f"{ID}  2026-11-23 17:05:46  ")


@pytest.mark.parametrize(
    ("remedy", "shown"),
    [
        ("say from_job='orders'.", "say --from-job orders."),
        ("with full=True.", "with --full."),
        ("dispose of it with despite=['pinned'].", "dispose of it with --despite pinned."),
        ("confirm from_job='generation 3'.", "confirm --from-job 'generation 3'."),
        ("pass from_job= with one of these.", "pass --from-job with one of these."),
        ("choose rewind='fork'.", "choose rewind='fork'."),
    ],
)
def test_remedy_names_the_options_that_the_command_has(remedy: str, shown: str):
    assert in_options(remedy, OPTIONS) == shown


def test_version_is_the_packages():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"flinkstyle {__version__}\n")


def test_ends_of_logs_stand_behind_what_to_do(capsys: Capture):
    error = BadInputError("A failed.", "It starts. Its log:\nline 1\nline 2\n", "Mend it.")
    report(error, as_json=False, options={})
    shown = capsys.readouterr().err.splitlines()
    assert shown == ["BAD_INPUT: A failed.", "It starts. Its log:", "Mend it.", "line 1", "line 2"]
