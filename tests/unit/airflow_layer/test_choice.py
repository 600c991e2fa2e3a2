"""A person chooses among the savepoints that there are when the task runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.standard.operators.hitl import HITLOperator

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.operators import (
    ChooseSavepointOperator,
    ChooseSavepointsOperator,
    DisposeSavepointOperator,
    TakeSavepointOperator,
)
from airflow_flinkstyle.savepoint.blobs.references import pin
from tests.manifests import manifests_of
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


class Asked(Exception):
    """Airflow waits for the answer from here on."""


@pytest.fixture(autouse=True)
def airflow_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop where Airflow's own operator asks its server."""

    def execute(self: HITLOperator, context: object) -> None:
        raise Asked

    monkeypatch.setattr(HITLOperator, "execute", execute)


def take(world: World, run_id: str) -> str:
    operator = TakeSavepointOperator(task_id="take", job=world.job, deferrable=False)
    return operator.execute(a_context("take", run_id=run_id))


def choose(world: World, kind: type[ChooseSavepointOperator] = ChooseSavepointOperator, **kwargs: Any) -> Any:  # noqa: ANN401
    return kind(task_id="choose", job=world.job, **kwargs)


def answered(*options: str) -> dict[str, Any]:
    return {
        "chosen_options": list(options),
        "params_input": {},
        "responded_at": datetime.now(tz=UTC),
        "responded_by_user": {"id": "1", "name": "ann"},
    }


def test_what_was_named_is_returned_and_nobody_is_asked(world: World):
    assert choose(world, savepoint_id="latest").execute(a_context()) == "latest"
    assert choose(world, savepoint_id="None").execute(a_context()) is None
    several = choose(world, ChooseSavepointsOperator, savepoint_id="sp-1, sp-2")
    assert several.execute(a_context()) == ["sp-1", "sp-2"]


@pytest.mark.parametrize("nothing", [" , ", "", None, ()])
def test_nothing_that_is_named_is_refused_and_disposes_of_nothing_silently(
    world: World, nothing: str | tuple[()] | None
):
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*with commas between them"):
        choose(world, ChooseSavepointsOperator, savepoint_id=nothing).execute(a_context())


def test_person_sees_the_savepoints_of_now_the_newest_first_and_why_each_is_kept(world: World):
    world.start()
    older, newer = take(world, "one"), take(world, "two")
    pin(world.repository, older, reason="audit", by="ann", at_ms=1)
    operator = choose(world, body="Where the job is.")
    with pytest.raises(Asked):
        operator.execute(a_context())
    assert [option.split(" ")[0] for option in operator.options] == [newer, older]
    assert "s ago, batch 0 of orders, " in operator.options[0]
    before, _, table = operator.body.partition("\n\n")
    assert before == "Where the job is."
    assert table.startswith("| savepoint | taken | batches | size | kept because |")
    assert "pinned by ann: audit" in operator.body
    assert "the newest complete one" in operator.body
    assert operator.execute_complete(a_context(), answered(operator.options[1])) == older


def test_savepoint_that_went_meanwhile_is_refused(world: World):
    world.start()
    older, _ = take(world, "one"), take(world, "two")
    operator = choose(world)
    with pytest.raises(Asked):
        operator.execute(a_context())
    option = operator.options[1]
    gone = DisposeSavepointOperator(task_id="dispose", job=world.job, savepoint_id=older, wait_s=0)
    gone.execute(a_context())
    with pytest.raises(AirflowFailException, match=f"SAVEPOINT_MISSING.*{older}"):
        operator.execute_complete(a_context(), answered(option))


def test_job_without_savepoints_leaves_nothing_to_choose(world: World):
    world.start()
    with pytest.raises(AirflowFailException, match=r"SAVEPOINT_MISSING.*the job has none"):
        choose(world).execute(a_context())


def test_several_are_chosen_and_each_is_disposed_of(world: World):
    world.start()
    first, second, third = (take(world, run_id) for run_id in ("one", "two", "three"))
    operator = choose(world, ChooseSavepointsOperator)
    with pytest.raises(Asked):
        operator.execute(a_context())
    assert operator.multiple
    assert operator.execute_complete(a_context(), answered(*operator.options[1:])) == [second, first]
    for savepoint_id in (first, second):
        DisposeSavepointOperator(
            task_id="dispose", job=world.job, savepoint_id=savepoint_id, despite=None, wait_s=0
        ).execute(a_context())
    assert [one.savepoint_id for one in manifests_of(world.repository)] == [third]
