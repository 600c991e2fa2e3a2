"""The differential run's own machinery, without a JVM: what it draws, writes, compares and shrinks."""

from __future__ import annotations

import ast
import random
from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest

from testbed.differential import plan as plans
from testbed.differential import spec as specs
from testbed.differential.case import Case, shrink, smaller
from testbed.differential.inputs import FILES, rows_of
from testbed.differential.judge import Allowed, judge
from testbed.differential.outputs import Written
from testbed.differential.plan import Action, Plan, Step
from testbed.differential.script import render
from testbed.differential.spec import QuerySpec, ScriptSpec

SEEDS = range(400)
PROJECT = QuerySpec(name="q0", source="files", work="project", mode="append", sink="json", cap=None)
COUNT = replace(PROJECT, work="count", mode="update", sink="batch-upsert")
SCRIPT = ScriptSpec(queries=(PROJECT,), shape="straight", trigger="available-now", checkpoint="option")
QUIET = Step(action="none", batches=0, delay_ms=0)


def a_case(*queries: QuerySpec, actions: tuple[Action, ...] = ()) -> Case:
    steps = (*(replace(QUIET, action=action) for action in actions), QUIET)
    return Case(spec=replace(SCRIPT, queries=queries or (PROJECT,)), plan=Plan(steps=steps))


def rows(*ids: int, batch: int | None = None) -> list[Written]:
    return [Written((("id", number),), batch) for number in ids]


def totals(**counts: int) -> list[Written]:
    return [Written((("k", key), ("n", n), ("s", 10 * n))) for key, n in counts.items()]


def test_seed_always_gives_the_same_case_and_json_keeps_it():
    for seed in SEEDS:
        case = Case.of(seed)
        assert Case.of(seed) == case == Case.from_json(case.to_json())


def test_every_drawn_script_compiles_and_is_one_that_makes_sense():
    for seed in SEEDS:
        case = Case.of(seed)
        assert case.complaint is None
        ast.parse(render(case.spec))


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        (specs.Source, lambda case: {query.source for query in case.spec.queries}),
        (specs.Work, lambda case: {query.work for query in case.spec.queries}),
        (specs.Sink, lambda case: {query.sink for query in case.spec.queries}),
        (specs.Mode, lambda case: {query.mode for query in case.spec.queries}),
        (specs.Trigger, lambda case: {case.spec.trigger}),
        (specs.Checkpoint, lambda case: {case.spec.checkpoint}),
        (specs.Shape, lambda case: {case.spec.shape}),
        (specs.Provider, lambda case: {case.spec.provider}),
        (plans.Action, lambda case: {step.action for step in case.plan.steps}),
    ],
)
def test_five_hundred_seeds_have_every_feature(kinds: object, found: object):
    drawn = set().union(*(found(Case.of(seed)) for seed in range(500)))  # type: ignore[operator]
    assert drawn == set(get_args(kinds))


def test_scripts_of_the_suite_are_small():
    for seed in range(25):
        case = Case.small(seed)
        assert case.complaint is None
        assert len(case.spec.queries) <= 2


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        (replace(SCRIPT, shape="sequence", trigger="default"), "never ends"),
        (replace(SCRIPT, checkpoint="none"), "demands a checkpoint"),
        (replace(SCRIPT, shape="restart", checkpoint="conf"), "from nothing"),
        (replace(SCRIPT, fails_once=True), "nothing would fail"),
        (replace(SCRIPT, queries=(replace(PROJECT, mode="update"),)), "project in mode update"),
        (replace(SCRIPT, queries=(replace(PROJECT, source="rate"),)), "no end"),
    ],
)
def test_script_of_which_plain_spark_promises_nothing_is_not_drawn(spec: ScriptSpec, complaint: str):
    assert complaint in (spec.complaint() or "")


def test_plan_of_which_nothing_can_be_expected_is_not_drawn():
    back = replace(QUIET, action="fork")
    assert "no savepoint" in (Plan(steps=(back, QUIET)).complaint(SCRIPT) or "")
    assert "quiet" in (Plan(steps=(back,)).complaint(SCRIPT) or "")
    between = Plan(steps=(replace(QUIET, between=True),))
    two = replace(SCRIPT, queries=(PROJECT, replace(PROJECT, name="q1")), shape="staggered")
    assert "between two starts" in (between.complaint(SCRIPT) or "")
    assert between.complaint(two) is None
    remembers = replace(SCRIPT, queries=(replace(PROJECT, sink="batch-remember"),))
    again = a_case(actions=("take", "re-emit")).plan
    assert again.complaint(SCRIPT) is None
    assert "remembers" in (again.complaint(remembers) or "")


def test_rows_of_all_files_hold_each_number_once_but_those_delivered_twice():
    found = Counter(row.id for file in range(FILES) for row in rows_of(file))
    assert set(found) == set(range(4 * FILES))
    assert [number for number, count in found.items() if count > 1] == [3, 7, 11, 15, 19]


def test_equal_rows_in_another_order_are_right():
    assert judge(PROJECT, rows(1, 2, 3), rows(3, 1, 2)) == []


def test_lost_row_and_doubled_one_do_not_cancel_out():
    lost, more = judge(PROJECT, rows(1, 2, 3), rows(1, 2, 2))
    assert "lost 1: {'id': 3}" in lost
    assert "too many 1: {'id': 2}" in more


def test_rewind_doubles_exactly_what_stood_behind_its_savepoint():
    allowed = Allowed(exactly=Counter({(("id", 3),): 1}))
    assert judge(PROJECT, rows(1, 2, 3), rows(1, 2, 3, 3), allowed) == []
    assert "lost 1" in judge(PROJECT, rows(1, 2, 3), rows(1, 2, 3), allowed)[0]
    assert "too many 1" in judge(PROJECT, rows(1, 2, 3), rows(1, 2, 2, 3, 3), allowed)[0]


def test_sink_that_promises_at_least_once_may_double_and_never_lose_or_invent():
    allowed = Allowed(any_known=True)
    assert judge(PROJECT, rows(1, 2), rows(1, 1, 2), allowed) == []
    assert "lost 1" in judge(PROJECT, rows(1, 2), rows(1, 1), allowed)[0]
    assert "too many 1" in judge(PROJECT, rows(1, 2), rows(1, 2, 9), allowed)[0]


def test_last_row_of_each_key_counts_where_batches_decide_about_the_others():
    assert judge(COUNT, totals(a=3, b=1), [*totals(a=1), *totals(a=3, b=1)]) == []
    wrong = judge(COUNT, totals(a=3, b=1), totals(a=4))
    assert len(wrong) == 2


def test_numbers_of_a_rate_source_stand_there_once_up_to_the_last():
    rate = replace(PROJECT, source="rate")
    assert judge(rate, [], rows(0, 1, 2)) == []
    assert judge(rate, [], rows(0, 2, 2)) == ["lost 1", "doubled 2"]
    assert judge(rate, [], []) == ["no row was written"]


def test_shrinking_finds_the_one_query_and_the_one_action_that_matter():
    case = a_case(COUNT, replace(PROJECT, sink="kafka"), COUNT, actions=("from-savepoint", "take", "fork"))

    def fails(each: Case) -> bool:
        sinks = {query.sink for query in each.spec.queries}
        return "kafka" in sinks and any(step.action == "take" for step in each.plan.steps)

    small = shrink(case, fails, most_trials=200)
    assert [query.sink for query in small.spec.queries] == ["kafka"]
    assert [step.action for step in small.plan.steps] == ["take"]


def test_shrinking_stops_after_so_many_trials():
    tried: list[Case] = []
    case = Case.of(3)
    assert shrink(case, lambda each: bool(tried.append(each)), most_trials=3) == case
    assert len(tried) == min(3, len([each for each in smaller(case) if each.complaint is None]))


def test_smaller_cases_end():
    source = random.Random(5)  # noqa: S311  # no secret
    case = Case.of(5)
    for _ in range(200):
        found = [each for each in smaller(case) if each.complaint is None]
        if not found:
            break
        case = source.choice(found)
    else:
        pytest.fail("still not the smallest")
