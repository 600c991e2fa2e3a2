from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.retention import dispose_of, prune_job, savepoints_in_use
from airflow_flinkstyle.jobs.running.start_plan import FromSavepoint
from airflow_flinkstyle.jobs.running.stopped import take_stopped
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.blobs.owned import claim_savepoint
from airflow_flinkstyle.savepoint.errors import (
    RepositoryBusyError,
    SavepointMissingError,
    SavepointProtectedError,
)
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.dispose import PROTECTIONS
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from testbed.keys import SIGNER
from tests.manifests import manifests_of
from tests.unit.stores import ActingStore

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import Mood, World


def used(world: World) -> dict[str, str]:
    return savepoints_in_use(world.board, world.repository)


def stopped_with_savepoint(world: World) -> str:
    outcome = world.start().stop("stop", savepoint=True, timeout_s=10)
    assert outcome.savepoint_id is not None
    return outcome.savepoint_id


def test_savepoint_a_job_stopped_with_is_in_use_until_another_run_takes_over(world: World):
    savepoint_id = stopped_with_savepoint(world)
    assert used(world) == {savepoint_id: "generation 1 stopped with it"}


def test_savepoint_a_run_started_from_is_neither_pruned_nor_disposed_of(world: World):
    first = stopped_with_savepoint(world)
    client = world.client()
    handle = client.start(
        world.spec(), world.target(), claim_key="again", origin=FromSavepoint(savepoint_id=first)
    )
    client.wait_running(handle.generation, timeout_s=10)
    assert used(world) == {first: "generation 2 started from it"}
    taken = client.wait(client.request_savepoint("newer"), timeout_s=10)[1].savepoint_id
    report = prune_job(world.board, world.repository, RetentionPolicy(max_count=1), holder="t", wait_s=5)
    assert report.plan.disposed == ()
    with pytest.raises(SavepointProtectedError, match="generation 2 started from it"):
        dispose_of(world.board, world.repository, first, holder="t", wait_s=5)
    assert {m.savepoint_id for m in manifests_of(world.repository)} == {first, taken}


def test_savepoint_claimed_by_its_run_goes_once_a_newer_one_exists(world: World):
    first = stopped_with_savepoint(world)
    client = world.client()
    handle = client.start(
        world.spec(), world.target(), claim_key="again", origin=FromSavepoint(savepoint_id=first)
    )
    client.wait_running(handle.generation, timeout_s=10)
    claim_savepoint(world.repository, first, by="generation 2", at_ms=1)
    client.wait(client.request_savepoint("newer"), timeout_s=10)
    report = prune_job(world.board, world.repository, RetentionPolicy(), holder="t", wait_s=5)
    assert report.plan.disposed == (first,)


def test_savepoint_that_a_standby_restores_is_in_use_while_it_waits(world: World):
    client = world.start()
    hot = client.wait(client.request_savepoint("hot"), timeout_s=10)[1].savepoint_id
    assert hot is not None
    assert used(world) == {}
    client.standby(world.spec(new=True), world.target(), claim_key="next", prepare_savepoint_id=hot)
    assert used(world) == {hot: "generation 2 is to start from it"}


def test_savepoint_of_a_start_that_is_tried_again_stays_until_that_has_ended_for_good(
    world: World, mood: type[Mood]
):
    first = stopped_with_savepoint(world)
    other = take_stopped(world.client(), "another one").savepoint_id
    client, origin = world.client(), FromSavepoint(savepoint_id=first)
    world.moods["v1.py"] = mood(out_of_reach=1)
    client.start(world.spec(), world.target(), claim_key="again", origin=origin)
    world.until(lambda: world.alive() == [])
    report = prune_job(world.board, world.repository, RetentionPolicy(max_count=1), holder="t", wait_s=5)
    assert report.plan.disposed == ()
    handle = client.start(world.spec(), world.target(), claim_key="again", origin=origin)
    client.wait_running(handle.generation, timeout_s=10)
    assert other in {m.savepoint_id for m in manifests_of(world.repository)}
    world.judge()


def test_savepoints_of_a_journal_are_in_use_until_it_ends(world: World):
    journal = CutoverJournal(world.store, world.job, "up-1", UPGRADE_PHASES, signer=SIGNER)
    journal.begin(lambda: 1)
    journal.close(journal.open("stop", {}), {"savepoint_id": "sp-7", "generation": 1, "batches": {}})
    assert used(world) == {"sp-7": "migration or upgrade up-1 has not ended"}
    journal.close(journal.open("verify", {}), {"failure": "it did not start", "batches": None})
    assert "sp-7" in used(world)
    journal.close(journal.open("rollback", {}), {"generation": 3, "how": "as it was"})
    assert used(world) == {}


def test_prune_waits_while_a_start_reads_its_savepoint(world: World):
    first = stopped_with_savepoint(world)
    pruned = []

    def prune_now() -> None:
        with contextlib.suppress(RepositoryBusyError):
            prune_job(world.board, world.repository, RetentionPolicy(max_count=1), holder="t", wait_s=0)
            pruned.append(1)

    store = ActingStore(world.store, prune_now, key="claim")
    client = replace(world.client(), board=JobBoard(store, world.job))  # type: ignore[arg-type]
    client.start(world.spec(), world.target(), claim_key="again", origin=FromSavepoint(savepoint_id=first))
    assert store.has_acted
    assert pruned == []


def test_prune_in_the_midst_of_a_start_waits_for_nothing_and_the_start_learns_what_has_gone(world: World):
    savepoint_id = stopped_with_savepoint(world)

    def dispose() -> None:
        dispose_of(world.board, world.repository, savepoint_id, holder="t", despite=PROTECTIONS, wait_s=0)

    store = ActingStore(world.store, dispose, key="/takes/")  # planned, and before its intent is there
    repository = SavepointRepository(store, world.job)  # type: ignore[arg-type]
    client, before = replace(world.client(), repository=repository), world.board.generations()
    with pytest.raises(SavepointMissingError):
        client.start(
            world.spec(),
            world.target(),
            claim_key="again",
            origin=FromSavepoint(savepoint_id=savepoint_id),
        )
    assert world.board.generations() == before
