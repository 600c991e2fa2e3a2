from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from benchmarks import publish
from benchmarks.__main__ import NAMES
from benchmarks.common import MIB, Report, Spread, Table, Target, interleave, measure, ratios

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = "# Page\n\n<!-- bench:one -->\nold\n<!-- /bench:one -->\n\n<!-- bench:two -->\n<!-- /bench:two -->\n"


def test_contenders_take_turns_and_every_other_round_is_reversed():
    order = []

    def contender(name: str) -> Callable[[], int]:
        return lambda: order.append(name) or len(order)

    found = interleave({"a": contender("a"), "b": contender("b")}, rounds=3)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert found == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_ratios_are_taken_within_a_round():
    slow_second_round = ratios([1, 10, 1], [2, 20, 2])
    assert (slow_second_round.low, slow_second_round.high) == (0.5, 0.5)


def test_a_promise_is_kept_by_the_median():
    target = Target(what="x", limit=1.0, found=Spread.of([0.5, 0.9, 4.0]))
    assert target.met
    assert not Target(what="x", limit=0.8, found=Spread.of([0.5, 0.9, 4.0])).met


def test_a_child_is_charged_for_itself_and_not_for_who_started_it():
    ballast = bytearray(300 * MIB)
    small = measure([sys.executable, "-c", "pass"])
    large = measure([sys.executable, "-c", f"bytearray({100 * MIB})"])
    assert small.peak_rss_bytes < 50 * MIB < 100 * MIB < large.peak_rss_bytes < len(ballast)
    assert small.wall_s > 0


def test_a_child_counts_the_cpu_time_of_its_own_children():
    work = "sum(range(10_000_000))"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{work}'])"
    used = measure([sys.executable, "-c", program])
    assert used.cpu_s > 0.1


def test_a_contender_that_fails_is_an_error_with_its_words():
    with pytest.raises(RuntimeError, match="no such bucket"):
        measure([sys.executable, "-c", "raise SystemExit('no such bucket')"])


def test_a_table_goes_between_its_own_markers_and_replaces_the_old_one():
    page = publish.inserted(PAGE, "one", "new | 1\\1")
    assert "old" not in page
    assert "<!-- bench:one -->\nnew | 1\\1\n<!-- /bench:one -->" in page
    assert "<!-- bench:two -->\n<!-- /bench:two -->" in page
    with pytest.raises(ValueError, match="bench:three"):
        publish.inserted(PAGE, "three", "new")


def test_a_report_names_its_machine_its_day_and_the_promises_it_breaks():
    report = Report(
        about="Two things.",
        tables=(Table(columns=("a", "b"), rows=(("1", "2"),)),),
        targets=(Target(what="speed", limit=0.6, found=Spread.of([0.7])),),
    )
    text = publish.as_markdown(report, publish.occasion(12.3))
    assert "| 1 | 2 |" in text
    assert "| speed | 0.6x | 0.70x (0.70-0.70) | **no** |" in text
    assert "cores" in text
    assert "took 12 s" in text


@pytest.mark.parametrize("name", NAMES)
def test_every_benchmark_can_run_and_has_its_place_in_the_docs(name: str):
    assert callable(importlib.import_module(f"benchmarks.{name}").run)
    assert publish.inserted(publish.DOCS.read_text(), name, "table")


def test_page_is_what_the_results_say():
    text = publish.DOCS.read_text()
    assert publish.page(text) == text, "run: python -m benchmarks.publish"
    assert text.index("<!-- bench:promises -->") < text.index("downtime.svg") < text.index("## ")
