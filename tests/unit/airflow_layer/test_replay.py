"""The task that replays a range of a job, against the small world of drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.operators import ReplayStreamingJobOperator, TakeSavepointOperator
from tests.unit.airflow_layer.conftest import a_context, with_hook
from tests.unit.jobs.conftest import World

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient

pytestmark = pytest.mark.airflow


class BothHook(StreamingJobHook):
    """The hook of a job and of its replay, whose drivers are another world's."""

    def __init__(self, *worlds: World) -> None:
        super().__init__()
        self.worlds = {world.job: world for world in worlds}

    def client(self, job: str, *_: Any, **__: Any) -> JobClient:
        return self.worlds[job].client()


def test_task_returns_what_was_replayed_and_a_retry_returns_the_same(world: World):
    world.start(10)
    TakeSavepointOperator(task_id="take", job=world.job).execute(a_context("take"))
    world.logs.produce(20)
    beside = World(world.folder, job="again", store=world.store)
    beside.logs.records = world.logs.records
    said = {"job": world.job, "as_job": "again", "until": '{"orders": {"0": 125}}', "timeout_s": 30.0}
    try:
        task = with_hook(
            ReplayStreamingJobOperator,
            BothHook(world, beside),
            task_id="replay",
            own_outputs="orders",
            records="8",
            **said,
        )
        found = task.execute(a_context("replay"))
        assert (found["queries"]["orders"]["offsets"], dict(beside.logs.counted)) == (
            15,
            dict.fromkeys(range(10, 25), 1),
        )
        assert task.execute(a_context("replay")) == found
        task.own_outputs = None
        with pytest.raises(AirflowFailException, match="has a history"):
            task.execute(a_context("another"))
    finally:
        beside.kill_all()
