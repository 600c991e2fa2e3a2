"""The commands of the pages that ``make tutorial`` runs can be followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.page_steps import shows, steps

DOCS = Path(__file__).parents[3] / "docs"


def test_tutorial_begins_with_the_demo_and_ends_with_its_verdict():
    found = steps((DOCS / "tutorial.md").read_text())
    assert found[0].command == "make demo-ui"
    assert any("flinkstyle savepoint take" in step.command for step in found)
    assert "Nothing was lost" in found[-1].shown[-1]


def test_page_about_adopting_begins_with_the_broker_and_counts_at_each_side():
    found = steps((DOCS / "adopt-a-job.md").read_text())
    assert found[0].command == "make demo-kafka"
    counts = [step for step in found if step.command.endswith("--count")]
    assert len(counts) == 3
    assert all("is counted once" in step.shown[0] for step in counts)
    assert {"job adopt", "job start", "job leave"} <= {
        " ".join(step.command.split()[1:3]) for step in found if step.command.startswith("flinkstyle")
    }


@pytest.mark.parametrize("page", ["tutorial.md", "adopt-a-job.md"])
def test_what_is_repeated_says_until_when(page: str):
    assert all(step.shown for step in steps((DOCS / page).read_text()) if step.repeat)


def test_output_may_differ_in_numbers_spaces_and_what_is_left_out():
    assert shows("job  orders\nbatch  7,012 of 12\n", "batch 1 of 3")
    assert shows("a b\nc d e", "b ... e")
    assert not shows("failed 3", "lost 0 ...")
    assert not shows("batch seven", "batch 7")
