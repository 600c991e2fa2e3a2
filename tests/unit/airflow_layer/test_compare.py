"""The task that compares two versions of a job, against the small world of drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.operators import CompareVersionsOperator, TakeSavepointOperator
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import Mood, World

pytestmark = pytest.mark.airflow


def comparing(world: World, **kwargs: Any) -> CompareVersionsOperator:
    return CompareVersionsOperator(task_id="compare", job=world.job, script="v2.py", timeout_s=30.0, **kwargs)


def test_task_returns_the_verdict_and_fails_where_another_is_expected(world: World, mood: type[Mood]):
    world.start()
    TakeSavepointOperator(task_id="take", job=world.job).execute(a_context("take"))
    context = a_context("compare")
    found = comparing(world, keys='{"orders": ["id"]}').execute(context)
    assert (found["verdict"], found["queries"]["orders"]["equal"]) == ("same", 10)
    world.moods["v2.py"] = mood(computes_otherwise=2)
    with pytest.raises(AirflowFailException, match="VERSIONS_DIFFER"):
        comparing(world).execute(a_context("differs"))
    told = comparing(world, expect="differs").execute(a_context("told"))
    assert (told["verdict"], told["queries"]["orders"]["changed"]) == ("differs", 2)
    world.until(lambda: world.alive() == [1])
