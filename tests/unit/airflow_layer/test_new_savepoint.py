"""Savepoints as events, whoever takes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.operators import TakeSavepointOperator
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.triggers.new_savepoint import NewSavepointTrigger, watched_savepoint_asset
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def take(world: World, run_id: str) -> str:
    operator = TakeSavepointOperator(task_id="take", job=world.job, deferrable=False)
    return operator.execute(a_context("take", run_id=run_id))


def test_each_newest_savepoint_is_told_once(world: World):
    world.start()
    first = take(world, "one")

    async def told() -> list[str]:
        events, found = NewSavepointTrigger(job=world.job, every_s=0.01).run(), []
        found.append((await anext(events)).payload["savepoint_id"])
        await asyncio.to_thread(take, world, "two")  # noqa: TID251 - nothing of Airflow is read in it
        found.append((await anext(events)).payload["savepoint_id"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(events), 0.2)
        return found

    found = asyncio.run(told())
    assert (found[0], len(set(found))) == (first, 2)


def test_store_that_is_away_is_asked_again(world: World, monkeypatch: pytest.MonkeyPatch):
    world.start()
    taken, calls = take(world, "one"), []

    def away(self: Any, job: str) -> Any:  # noqa: ANN401 - as the hook
        calls.append(job)
        if len(calls) == 1:
            raise StoreUnavailableError("It was expected to answer.", "Nothing.", "Wait.")
        return newest(self, job)

    from airflow_flinkstyle.hooks.job import StreamingJobHook

    newest = StreamingJobHook.newest_savepoint
    monkeypatch.setattr(StreamingJobHook, "newest_savepoint", away)
    event = asyncio.run(anext(NewSavepointTrigger(job=world.job, every_s=0.01).run()))
    assert (event.payload, len(calls)) == ({"job": world.job, "savepoint_id": taken}, 2)


def test_asset_is_another_one_than_that_of_our_operators():
    asset = watched_savepoint_asset("orders", "other", every_s=5)
    assert asset.uri == "flinkstyle://other/orders/watched"
    (watcher,) = asset.watchers
    again = NewSavepointTrigger(**watcher.trigger.serialize()[1])
    assert (again.job, again.flinkstyle_conn_id, again.every_s) == ("orders", "other", 5)
