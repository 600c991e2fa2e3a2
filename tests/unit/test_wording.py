"""What people read of numbers and names."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.wording import batch_words, escape, row, size


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (5003, "5.0 kB"), (3_000_000_000, "3.0 GB")],
)
def test_amounts_have_the_unit_that_keeps_them_short(size_bytes: int, text: str):
    assert size(size_bytes) == text


def test_batches_are_words():
    assert batch_words({"sums": 5, "counts": 473}) == "batch 473 of counts, batch 5 of sums"
    assert batch_words({}) == "no batch"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("<target alias>.offset.flush.interval.ms", r"\<target alias>.offset.flush.interval.ms"),
        ("<script>alert(1)</script>", r"\<script>alert(1)\</script>"),
        ("[click](http://elsewhere)", r"\[click\](http://elsewhere)"),
        ("a*b* _c_ ~~d~~ `e`", r"a\*b\* \_c\_ \~\~d\~\~ \`e\`"),
        ("&lt;b&gt; & c", "&amp;lt;b&amp;gt; & c"),
        ("two\nlines", "two lines"),
        ("first_commit_timeout_s, old -> new, 1 <= 2", "first_commit_timeout_s, old -> new, 1 <= 2"),
    ],
)
def test_markdown_shows_a_text_as_it_is(text: str, escaped: str):
    assert escape(text) == escaped


def test_no_cell_ends_its_row():
    assert row(("a|b", 3)) == r"| a\|b | 3 |"
