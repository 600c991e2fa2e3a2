from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowException, AirflowFailException
from airflow_flinkstyle.hooks.assets import SAVEPOINTS, savepoint_asset
from airflow_flinkstyle.operators import (
    DisposeSavepointOperator,
    PruneSavepointsOperator,
    StopStreamingJobOperator,
    TakeSavepointOperator,
    VerifySavepointOperator,
)
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.references import pin
from airflow_flinkstyle.savepoint.files.verified import verified_records
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def take(world: World, run_id: str) -> str:
    operator = TakeSavepointOperator(task_id="take", job=world.job, deferrable=False)
    return operator.execute(a_context("take", run_id=run_id))


def prune(world: World, **kwargs: object) -> dict[str, object]:
    operator = PruneSavepointsOperator(task_id="prune", job=world.job, wait_s=1, **kwargs)
    return operator.execute(a_context("prune"))


def verify(world: World, **kwargs: object) -> dict[str, object]:
    operator = VerifySavepointOperator(task_id="verify", job=world.job, **kwargs)
    return operator.execute(a_context("verify"))


def dispose(world: World, savepoint_id: str, **kwargs: object) -> dict[str, object]:
    operator = DisposeSavepointOperator(
        task_id="dispose", job=world.job, savepoint_id=savepoint_id, wait_s=0, **kwargs
    )
    return operator.execute(a_context("dispose"))


def test_newest_savepoint_is_verified_and_that_is_written_down(world: World):
    world.start()
    take(world, "one")
    newest = take(world, "two")
    found = verify(world, level="full")
    assert found["savepoint_id"] == newest
    assert verified_records(world.repository)[newest].level == "full"


def test_damaged_savepoint_fails_the_task_and_counts_as_verified_no_more(world: World):
    world.start()
    savepoint_id = take(world, "one")
    verify(world, savepoint_id=savepoint_id)
    world.repository.delete_blob(min(world.repository.read(savepoint_id).blobs))
    with pytest.raises(AirflowFailException, match="SAVEPOINT_DAMAGED"):
        verify(world, savepoint_id=savepoint_id)
    assert verified_records(world.repository) == {}


def test_unknown_level_is_refused(world: World):
    with pytest.raises(AirflowFailException, match="one of quick, full, found 'deep'"):
        verify(world, level="deep")


def test_prune_logs_a_reason_for_every_savepoint(world: World, caplog: pytest.LogCaptureFixture):
    world.start()
    old, pinned, newest = (take(world, run_id) for run_id in ("one", "two", "three"))
    pin(world.repository, pinned, reason="audit", by="ann", at_ms=1)
    with caplog.at_level("INFO"):
        dry = prune(world, max_count="1", dry_run="True")
        done = prune(world, max_count="1", max_age_s="", dry_run="False")
    assert dry == {**done, "dry_run": True}
    assert done["disposed"] == [old]
    assert set(done["kept"]) == {pinned, newest}
    assert f"| {pinned} | keep | pinned by ann: audit |" in caplog.text
    assert f"| {old} | dispose | 1 newer complete ones are kept, max_count is 1 |" in caplog.text


def test_prune_that_finds_somebody_at_work_is_tried_again(world: World):
    world.start()
    take(world, "one")
    with (
        hold_intent(world.repository, "export", holder="ann"),
        pytest.raises(AirflowException, match=r"REPOSITORY_BUSY.*export intent of ann") as caught,
    ):
        prune(world, max_count=1)
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize("wrong", ["many", "0", "-1"])
def test_limit_that_is_none_is_refused(world: World, wrong: str):
    with pytest.raises(AirflowFailException, match="max_count"):
        prune(world, max_count=wrong)


def test_last_savepoint_is_disposed_of_only_despite_that(world: World):
    world.start()
    savepoint_id = take(world, "one")
    with pytest.raises(AirflowFailException, match=r"SAVEPOINT_PROTECTED.*last complete one"):
        dispose(world, savepoint_id)
    with pytest.raises(AirflowFailException, match="one of pinned, in_use, last_good"):
        dispose(world, savepoint_id, despite=["everything"])
    gone = dispose(world, savepoint_id, despite=["last_good"])
    assert gone["freed_blobs"] > 0
    assert world.repository.blob_sizes() == {}


def test_every_new_savepoint_is_an_event_of_its_jobs_asset(world: World):
    world.start()
    context = a_context("take")
    taken = TakeSavepointOperator(task_id="take", job=world.job, deferrable=False)
    savepoint_id = taken.execute(context)
    assert SAVEPOINTS in taken.outlets
    (event,) = context["outlet_events"][SAVEPOINTS].asset_alias_events
    assert event.dest_asset_key.to_asset() == savepoint_asset(world.job)
    assert event.extra == {"job": world.job, "savepoint_id": savepoint_id}

    context = a_context("stop")
    StopStreamingJobOperator(task_id="stop", job=world.job).execute(context)
    assert len(context["outlet_events"][SAVEPOINTS].asset_alias_events) == 1
