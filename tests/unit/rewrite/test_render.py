"""Plans for people: readable with four partitions and with ten thousand."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest

from airflow_flinkstyle.kafka.cluster import ClusterView
from airflow_flinkstyle.kafka.verdict import Bounded, Chosen, Exact, ExtraClass, Refused, Verdict
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.rewrite.render import KINDS, MOST_LISTED, choices, kind_of, markdown_table, text_plot
from airflow_flinkstyle.rewrite.rows import PartitionMove
from airflow_flinkstyle.types import BatchId, NextOffset
from tests.unit.effort import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

EXACT = Exact(NextOffset(17))
REFUSED = Refused("3 unread records are not on the target", (NextOffset(5), NextOffset(8)))
DUPLICATES = Bounded(NextOffset(17), {"duplicate": 4})
CHOSEN = Chosen(NextOffset(0), skipped_records=None, repeated_records=None)


def a_move(partition: int, after: Verdict = EXACT, *, topic: str = "orders") -> PartitionMove:
    return PartitionMove(
        query="totals",
        source="0",
        topic=topic,
        target_topic=topic,
        partition=partition,
        before=NextOffset(20),
        after=after,
    )


def a_plan(moves: Sequence[PartitionMove]) -> OffsetRewritePlan:
    return OffsetRewritePlan(
        savepoint_id="sp-1",
        job="shop",
        batches={"totals": BatchId(7)},
        target=ClusterView(cluster_id="new", topics={}),
        moves=tuple(moves),
    )


def many(problems: Sequence[Verdict] = (), *, topics: int = 20) -> OffsetRewritePlan:
    """Return 10,000 partitions, the last of which are not exact."""
    per_topic = 10_000 // topics
    after = [EXACT] * (10_000 - len(problems)) + list(problems)
    return a_plan([a_move(n % per_topic, after[n], topic=f"t{n // per_topic:05d}") for n in range(10_000)])


def test_every_verdict_has_a_kind_that_is_counted_and_has_a_letter_in_the_bars():
    bounded = [Bounded(NextOffset(1), {name: 1}) for name in get_args(ExtraClass)]
    verdicts = [EXACT, CHOSEN, REFUSED, *bounded]
    assert {kind_of(verdict) for verdict in verdicts} == set(KINDS)
    bar = text_plot([a_move(n, verdict) for n, verdict in enumerate(verdicts)]).splitlines()[1]
    assert {"X", "~", "c", "#"} <= set(bar)


def test_a_small_plan_is_listed_whole():
    lines = markdown_table([a_move(0), a_move(1, REFUSED), a_move(2)])
    assert lines[2:] == [
        "| totals | orders | 1 | 20 | refused: 3 unread records are not on the target "
        "(source offsets 5 to 7) |  |",
        "| totals | orders | 0 | 20 | 17 exact | -3 |",
        "| totals | orders | 2 | 20 | 17 exact | -3 |",
    ]


def test_a_name_with_a_bar_stays_in_its_cell():
    assert r"| totals | a\|b | 0 |" in markdown_table([a_move(0, topic="a|b")])[-1]


def test_ten_thousand_partitions_are_summed_and_only_problems_listed():
    text = many([REFUSED, DUPLICATES, CHOSEN]).as_markdown()
    assert "\n10,000 partitions: 1 refused, 1 bounded: duplicate, 1 chosen, 9,997 exact.\n" in text
    assert "Not listed one by one: 9,997 exact." in text
    rows = [row for row in text.splitlines() if row.startswith("| totals | t")]
    listed = [row for row in rows if "| 20 |" in row]
    assert len(listed) == 3
    assert "source offsets 5 to 7" in listed[0]
    assert len(rows) == 3 + 20
    assert "1 refused" in rows[0], "the topic to look at first stands first"


def test_of_many_problems_the_refused_are_listed_and_the_rest_counted():
    text = many([DUPLICATES] * 3000 + [REFUSED] * 150).as_markdown()
    assert text.count("| refused: ") == 150
    assert text.count("| 17 bounded") == MOST_LISTED - 150
    assert "Not listed one by one: 2,950 bounded: duplicate, 6,850 exact." in text
    assert len(text.splitlines()) < 300


def test_ten_thousand_topics_are_not_listed_one_by_one_either():
    plan = many([REFUSED], topics=10_000)
    text = plan.as_markdown()
    assert len(text.splitlines()) < 100
    assert "| t09999 |" in text
    assert "9,950 topics more" in text
    assert "9,950 topics more" in text_plot(plan.moves)


def test_one_refusal_among_ten_thousand_is_seen_in_the_bars():
    bars = text_plot(many([REFUSED]).moves).splitlines()
    assert bars[0].startswith("10,000 partitions: 1 refused, 9,999 exact.")
    assert bars[1].startswith("totals/0 t00019 |X####")
    assert bars[1].count("#") == 39
    assert "X" not in "".join(bars[2:])


def test_the_batch_that_was_planned_and_not_committed_has_a_table_of_its_own():
    plan = OffsetRewritePlan(
        savepoint_id="sp-1",
        job="shop",
        batches={"totals": BatchId(7)},
        target=ClusterView(cluster_id="new", topics={}),
        moves=(a_move(0),),
        planned=(a_move(0, REFUSED),),
    )
    before, _, behind = plan.as_markdown().partition("The end of the planned batch:")
    assert "17 exact" in before
    assert "| refused" not in before
    assert before.startswith("**Refused**: 1 refused of 2 partitions")
    assert "refused" in behind


@pytest.mark.parametrize(
    ("verdicts", "line"),
    [
        (
            [EXACT, EXACT],
            "**Exact**: all 2 partitions continue with their unread records; none lost, none read again.",
        ),
        (
            [EXACT, DUPLICATES, DUPLICATES],
            "**Bounded**: 2 bounded: duplicate of 3 partitions; records read again, at most: 8; left out: 0.",
        ),
        (
            [CHOSEN, Chosen(NextOffset(3), skipped_records=1200, repeated_records=0), EXACT],
            "**Chosen**: 2 chosen of 3 partitions; records read again, at most: not known for 1 partitions; "
            "left out: 1,200 and not known for 1 partitions.",
        ),
        (
            [REFUSED, Bounded(NextOffset(1), {"passed_over": 2, "new": 3}, {"superseded": 1})],
            "**Refused**: 1 refused, 1 bounded: passed_over of 2 partitions; records read again, at most: 3; "
            "left out: 3.",
        ),
    ],
    ids=["exact", "bounded", "chosen", "refused"],
)
def test_verdict_is_one_line_with_its_cost_in_records(verdicts: Sequence[Verdict], line: str):
    text = a_plan([a_move(n, verdict) for n, verdict in enumerate(verdicts)]).as_markdown()
    assert text.splitlines()[0] == line


def test_each_answer_to_the_approval_has_its_cost():
    shown = choices([a_move(0), a_move(1, DUPLICATES)])
    assert shown[2:] == [
        "| Approve | the job moves | 4 | 0 |",
        "| Reject | the job runs on where it is | 0 | 0 |",
    ]


@pytest.mark.parametrize("render", [OffsetRewritePlan.as_markdown, lambda plan: text_plot(plan.moves)])
def test_ten_thousand_problems_are_rendered_by_few_calls_each(render: object):
    plan = many([REFUSED] * 10_000)
    with counted() as effort:
        assert render(plan)  # type: ignore[operator]
    assert effort.calls < 50 * 10_000
