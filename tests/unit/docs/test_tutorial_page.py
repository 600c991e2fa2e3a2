"""The tutorial's commands can be followed; ``make tutorial`` runs them."""

from __future__ import annotations

from pathlib import Path

from testbed.page_steps import shows, steps

PAGE = Path(__file__).parents[3] / "docs" / "tutorial.md"


def test_tutorial_begins_with_the_demo_and_ends_with_its_verdict():
    found = steps(PAGE.read_text())
    assert found[0].command == "make demo-ui"
    assert any("flinkstyle savepoint take" in step.command for step in found)
    assert "Nothing was lost" in found[-1].shown[-1]


def test_what_is_repeated_says_until_when():
    assert all(step.shown for step in steps(PAGE.read_text()) if step.repeat)


def test_output_may_differ_in_numbers_spaces_and_what_is_left_out():
    assert shows("job  orders\nbatch  7,012 of 12\n", "batch 1 of 3")
    assert shows("a b\nc d e", "b ... e")
    assert not shows("failed 3", "lost 0 ...")
    assert not shows("batch seven", "batch 7")
