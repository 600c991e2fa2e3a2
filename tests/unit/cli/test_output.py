"""What people are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.cli.output import show, table

if TYPE_CHECKING:
    import pytest


def test_text_with_brackets_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]):
    show({}, table("[b]topic[/b]", rows=[("[red]totals[/red] :smile:",)]), as_json=False)
    shown = capsys.readouterr().out
    assert "[b]topic[/b]" in shown
    assert "[red]totals[/red] :smile:" in shown
