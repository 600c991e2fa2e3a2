from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.retention import dispose_of, prune_job, release_ended, savepoints_in_use
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.stopped.offline_lock import hold_offline
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.blobs.references import Reference, references, release, write_reference
from airflow_flinkstyle.savepoint.errors import (
    REFERENCE_MISSING,
    SAVEPOINT_PROTECTED,
    RepositoryBusyError,
    SavepointMissingError,
)
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.dispose import PROTECTIONS
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.types import Generation
from testbed.keys import SIGNER
from testbed.refusals import refuses
from tests.counting import CountingStore
from tests.manifests import manifests_of
from tests.unit.stores import ActingStore

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.retention.prune import PruneReport
    from tests.unit.jobs.conftest import Mood, World


def used(world: World) -> dict[str, str]:
    return savepoints_in_use(world.board, world.repository)


def prune_all(world: World, max_count: int | None = None) -> PruneReport:
    policy = RetentionPolicy(max_count=max_count)
    return prune_job(world.board, world.repository, policy, holder="t", wait_s=5)


def stopped_with_savepoint(world: World) -> str:
    outcome = world.start().requests.stop("stop", savepoint=True, timeout_s=10)
    assert outcome.savepoint_id is not None
    return outcome.savepoint_id


def test_savepoint_a_job_stopped_with_is_in_use_until_another_run_takes_over(world: World):
    savepoint_id = stopped_with_savepoint(world)
    assert used(world) == {savepoint_id: "generation 1 stopped with it"}


def test_savepoint_a_run_started_from_is_neither_pruned_nor_disposed_of(world: World):
    first = stopped_with_savepoint(world)
    client = world.client()
    handle = client.starts.start(
        world.spec(), world.target(), claim_key="again", origin=FromSavepoint(savepoint_id=first)
    )
    client.drivers.wait_running(handle.generation, timeout_s=10)
    assert used(world) == {first: "generation 2 (again) started from it"}
    taken = client.requests.wait(client.requests.request_savepoint("newer"), timeout_s=10)[1].savepoint_id
    report = prune_job(world.board, world.repository, RetentionPolicy(max_count=1), holder="t", wait_s=5)
    assert report.plan.disposed == ()
    with refuses(SAVEPOINT_PROTECTED, match=r"generation 2 \(again\) started from it"):
        dispose_of(world.board, world.repository, first, holder="t", wait_s=5)
    assert {m.savepoint_id for m in manifests_of(world.repository)} == {first, taken}


def test_savepoint_claimed_by_its_run_goes_once_a_newer_one_exists(world: World):
    first = stopped_with_savepoint(world)
    client = world.client()
    origin = FromSavepoint(savepoint_id=first, claim_mode="claim")
    handle = client.starts.start(world.spec(), world.target(), claim_key="again", origin=origin)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    client.requests.wait(client.requests.request_savepoint("newer"), timeout_s=10)
    assert used(world) == {first: "generation 2 (again) started from it"}, "it has committed nothing yet"
    assert prune_all(world).plan.disposed == ()
    world.logs.produce(4)
    world.until(lambda: world.board.heartbeat(handle.generation).value.has_committed)
    assert prune_all(world).plan.disposed == (first,)


def test_run_that_never_ran_owns_nothing(world: World, mood: type[Mood]):
    """It restores the savepoint in claim mode, its guard refuses, and the job goes on without it."""
    first = stopped_with_savepoint(world)
    client = world.client()
    world.moods["v1.py"] = mood(fails_guard=True)
    claimed = FromSavepoint(savepoint_id=first, claim_mode="claim")
    client.starts.start(world.spec(), world.target(), claim_key="refused", origin=claimed)
    world.until(lambda: world.alive() == [])
    world.moods.clear()
    world.logs.produce(4)
    handle = client.starts.start(world.spec(), world.target(), claim_key="mended")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    client.requests.wait(client.requests.request_savepoint("newer"), timeout_s=10)
    for dry_run in (True, False):
        report = prune_job(
            world.board, world.repository, RetentionPolicy(), holder="t", wait_s=5, dry_run=dry_run
        )
        assert report.plan.disposed == ()
    assert first in world.repository.ids()
    assert references(world.repository) == {}, "nothing of the run that never ran is left"


def test_reference_whose_holder_is_gone_stays_and_says_whose_it_is_until_it_is_released_by_name(
    world: World, mood: type[Mood]
):
    """A DAG is deleted whose start waits for a retry that nobody makes any more; clocks tell nothing."""
    first = stopped_with_savepoint(world)
    take_stopped(world.client().view, "another one")
    world.moods["v1.py"] = mood(out_of_reach=1)
    client, origin = world.client(), FromSavepoint(savepoint_id=first)
    client.starts.start(world.spec(), world.target(), claim_key="a DAG that is gone", origin=origin)
    world.until(lambda: world.alive() == [])
    ((holder, held),) = references(world.repository)[first].items()
    long_ago = replace(held, at_ms=1)
    write_reference(world.repository, first, holder, long_ago)
    report = prune_all(world, max_count=1)
    assert report.plan.disposed == ()
    assert "in use: generation 3 (a DAG that is gone) is to start from it" in report.as_markdown()
    with refuses(REFERENCE_MISSING, match="generation-000003"):
        release(world.repository, first, "generation-000009")
    assert release(world.repository, first, holder) == long_ago
    assert prune_all(world, max_count=1).plan.disposed == (first,)


def test_savepoint_that_a_standby_restores_is_in_use_while_it_waits(world: World):
    client = world.start()
    hot = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)[1].savepoint_id
    assert hot is not None
    assert used(world) == {}
    client.starts.standby(world.spec(new=True), world.target(), claim_key="next", prepare_savepoint_id=hot)
    assert used(world) == {hot: "generation 2 (next) copies it ahead"}


def test_savepoint_of_a_start_that_is_tried_again_stays_until_that_has_ended_for_good(
    world: World, mood: type[Mood]
):
    first = stopped_with_savepoint(world)
    other = take_stopped(world.client().view, "another one").savepoint_id
    client, origin = world.client(), FromSavepoint(savepoint_id=first)
    world.moods["v1.py"] = mood(out_of_reach=1)
    client.starts.start(world.spec(), world.target(), claim_key="again", origin=origin)
    world.until(lambda: world.alive() == [])
    report = prune_job(world.board, world.repository, RetentionPolicy(max_count=1), holder="t", wait_s=5)
    assert report.plan.disposed == ()
    handle = client.starts.start(world.spec(), world.target(), claim_key="again", origin=origin)
    client.drivers.wait_running(handle.generation, timeout_s=10)
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
    client = JobClient(view=replace(world.client().view, board=JobBoard(store, world.job)))  # type: ignore[arg-type]
    client.starts.start(
        world.spec(), world.target(), claim_key="again", origin=FromSavepoint(savepoint_id=first)
    )
    assert store.has_acted
    assert pruned == []


def test_prune_in_the_midst_of_a_start_waits_for_nothing_and_the_start_learns_what_has_gone(world: World):
    savepoint_id = stopped_with_savepoint(world)

    def dispose() -> None:
        dispose_of(world.board, world.repository, savepoint_id, holder="t", despite=PROTECTIONS, wait_s=0)

    store = ActingStore(world.store, dispose, key="/takes/")  # planned, and before its intent is there
    repository = SavepointRepository(store, world.job)  # type: ignore[arg-type]
    client, before = (
        JobClient(view=replace(world.client().view, repository=repository)),
        world.board.generations(),
    )
    with pytest.raises(SavepointMissingError):
        client.starts.start(
            world.spec(),
            world.target(),
            claim_key="again",
            origin=FromSavepoint(savepoint_id=savepoint_id),
        )
    assert world.board.generations() == before


def test_lock_of_a_caller_ends_no_need_of_a_start_that_is_tried_again(world: World, mood: type[Mood]):
    first = stopped_with_savepoint(world)
    take_stopped(world.client().view, "another one")
    client, origin = world.client(), FromSavepoint(savepoint_id=first)
    world.moods["v1.py"] = mood(out_of_reach=1)
    client.starts.start(world.spec(), world.target(), claim_key="again", origin=origin)
    world.until(lambda: world.alive() == [])
    with contextlib.suppress(ValueError), hold_offline(client.view, "nightly"):
        assert prune_all(world, max_count=1).plan.disposed == ()
        raise ValueError
    assert prune_all(world, max_count=1).plan.disposed == ()
    handle = client.starts.start(world.spec(), world.target(), claim_key="again", origin=origin)
    client.drivers.wait_running(handle.generation, timeout_s=10)
    world.judge()


def test_references_that_have_ended_are_deleted_by_one_listing(world: World):
    first = stopped_with_savepoint(world)
    client = world.client()
    handle = client.starts.start(world.spec(), world.target(), claim_key="again")
    client.drivers.wait_running(handle.generation, timeout_s=10)
    ended = Reference(need="start", by="t", reason="it started", at_ms=1, generation=Generation(1))
    for number in range(20):
        write_reference(world.repository, first, f"generation-{number}", ended)
    store: Any = CountingStore(world.store)
    release_ended(JobBoard(store, world.job), SavepointRepository(store, world.job))
    assert references(world.repository) == {}
    assert sum(request.startswith("list") for request in store.requests) == 1
