"""Checkpoints of earlier generations: freed by a rule of their own, and never one that may be needed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.retention import prune_job
from airflow_flinkstyle.jobs.signing import Signer
from airflow_flinkstyle.jobs.start.origins import Fresh, FromCheckpoint, FromSavepoint
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES
from airflow_flinkstyle.jobs.usage import usage_of
from airflow_flinkstyle.protocol.places import MARK_KEY
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.storage.errors import StoreDeniedError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.retention.prune import PruneReport
    from tests.unit.jobs.conftest import World


def prune(world: World, **told: Any) -> PruneReport:
    arguments = {"holder": "t", "wait_s": 5, "signer": SIGNER, **told}
    return prune_job(world.board, world.repository, RetentionPolicy(max_count=3), **arguments)


def folder(world: World, generation: int) -> Path:
    return Path(world.board.claim(generation).checkpoint_location)


def why(report: PruneReport) -> dict[int, str]:
    return {one.generations[-1]: one.reason for one in report.checkpoints if not one.goes}


def committed(world: World, generation: int) -> None:
    world.logs.produce(3)
    world.until(lambda: world.board.heartbeat(generation).value.has_committed)


def stop(world: World, key: str) -> str:
    outcome = world.client().requests.stop(key, savepoint=True, timeout_s=10)
    world.until(lambda: world.alive() == [])
    assert outcome.savepoint_id is not None
    return outcome.savepoint_id


def start(world: World, key: str, savepoint_id: str) -> int:
    client = world.client()
    handle = client.starts.start(
        world.spec(), world.target(), claim_key=key, origin=FromSavepoint(savepoint_id=savepoint_id)
    )
    client.drivers.wait_running(handle.generation, timeout_s=10)
    return handle.generation


def verified(world: World, savepoint_id: str) -> None:
    check_savepoint(world.repository, savepoint_id, level="quick", by="t")


@pytest.fixture
def followed(world: World) -> World:
    """A job in generation 2, which has committed, and has a verified savepoint."""
    world.start()
    assert start(world, "second", stop(world, "stop")) == 2
    committed(world, 2)
    client = world.client()
    taken = client.requests.wait(client.requests.request_savepoint("newer"), timeout_s=10)[1].savepoint_id
    verified(world, taken)
    return world


def test_checkpoint_goes_once_a_later_generation_has_committed_and_a_savepoint_of_it_was_verified(
    world: World,
):
    world.start()
    first = stop(world, "stop")
    verified(world, first)
    start(world, "second", first)
    assert "no savepoint was verified of a later" in why(prune(world))[1]
    committed(world, 2)
    client = world.client()
    taken = client.requests.wait(client.requests.request_savepoint("newer"), timeout_s=10)[1].savepoint_id
    assert "no savepoint was verified of a later" in why(prune(world))[1]
    verified(world, taken)
    dry = prune(world, dry_run=True)
    (gone,) = dry.freed_checkpoints
    assert (gone.generations, gone.size_bytes > 0) == ((1,), True)
    assert gone.reason == f"generation 2 has committed since, and savepoint {taken} of it was verified"
    assert folder(world, 1).is_dir()
    done = prune(world)
    assert done.freed_checkpoints == dry.freed_checkpoints
    assert "1 old checkpoints of" in done.as_markdown()
    assert not folder(world, 1).exists()
    assert folder(world, 2).is_dir()
    assert 1 not in {number for one in prune(world).checkpoints for number in one.generations}
    start(world, "third", stop(world, "stop again"))
    world.logs.produce(3)
    world.judge()


def test_checkpoint_that_a_later_generation_adopted_stays(followed: World):
    client = followed.client()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    handle = client.starts.start(
        followed.spec(), followed.target(), claim_key="adopts", origin=FromCheckpoint()
    )
    client.drivers.wait_running(handle.generation, timeout_s=10)
    committed(followed, handle.generation)
    taken = client.requests.wait(client.requests.request_savepoint("newest"), timeout_s=10)[1].savepoint_id
    verified(followed, taken)
    report = prune(followed)
    assert why(report)[handle.generation].startswith("generation 3 runs in it")
    assert not folder(followed, 1).exists(), "its driver has freed it, or the prune"
    assert folder(followed, 2).is_dir()
    followed.judge()


def test_nothing_goes_while_a_migration_or_an_upgrade_may_lead_back(followed: World):
    journal = CutoverJournal(followed.store, followed.job, "up-1", UPGRADE_PHASES, signer=SIGNER)
    journal.begin(lambda: 1)
    journal.open("stop", {})
    assert why(prune(followed))[1] == "migration or upgrade up-1 has not ended"
    assert folder(followed, 1).is_dir()


def test_folder_without_a_mark_of_this_job_is_not_ours(followed: World):
    mark = folder(followed, 1) / MARK_KEY
    own = mark.read_bytes()
    mark.unlink()
    assert why(prune(followed))[1] == "it bears no mark of this job"
    mark.write_text(json.dumps(json.loads(own) | {"job": "another"}))
    assert why(prune(followed))[1] == "it bears no mark of this job"
    mark.write_bytes(own)
    assert [one.generations for one in prune(followed).freed_checkpoints] == [(1,)]


def test_checkpoint_whose_removal_was_cut_off_is_freed_by_the_next_prune(followed: World):
    for query in folder(followed, 1).iterdir():
        if query.is_dir():
            shutil.rmtree(query)
    assert [one.generations for one in prune(followed).freed_checkpoints] == [(1,)]
    assert not folder(followed, 1).exists()


def test_place_that_no_caller_has_signed_is_left_alone(followed: World):
    assert "it could not be freed: SIGN" in why(prune(followed, signer=Signer()))[1]
    assert folder(followed, 1).is_dir()


def test_lock_that_nobody_signed_leads_to_no_other_place_than_that_of_the_run_it_followed(followed: World):
    live = followed.board.claim(2).checkpoint_location
    lock = replace(followed.board.claim(1), signature="", claim_key="lock:x", launch={}, follows=None)
    followed.kill(2)  # it would go on writing where a failure of this test removes
    forged = replace(lock, checkpoint_location=f"file://{live}")
    followed.store.write(f"{followed.job}/runs/000001/claim.json", forged.to_bytes())
    report = prune(followed)
    assert folder(followed, 2).is_dir()
    assert "SIGNATURE" in why(report)[1]


def test_what_is_not_to_be_seen_or_reached_from_here_is_left_to_the_driver(followed: World, tmp_path: Path):
    elsewhere = prune(followed, open_checkpoint=lambda _: LocalStore(tmp_path / "no" / "such" / "disk"))
    assert why(elsewhere)[1] == "it is not to be seen from here: the next driver frees it"
    assert folder(followed, 1).is_dir()


def test_delete_that_is_refused_leaves_the_checkpoint_to_the_next_prune(followed: World):
    def refuse(_: str) -> LocalStore:
        raise StoreDeniedError.during("list", "s3://b", "403")

    assert "it could not be freed: STORE_DENIED" in why(prune(followed, open_checkpoint=refuse))[1]
    assert [one.generations for one in prune(followed).freed_checkpoints] == [(1,)]


def test_folder_that_is_missing_says_nothing_of_a_run_on_another_machine(
    followed: World, monkeypatch: pytest.MonkeyPatch
):
    ran_on = followed.board.incarnation(1, 1).host
    shutil.rmtree(folder(followed, 1))
    assert folder(followed, 1).parent.is_dir(), "this machine has a folder of the job, too"
    assert why(prune(followed))[1] == "it is not to be seen from here: the next driver frees it"
    monkeypatch.setattr("socket.gethostname", lambda: ran_on)
    assert [one.generations for one in prune(followed).freed_checkpoints] == [(1,)]
    assert 1 not in why(prune(followed))


def test_start_that_no_driver_came_of_has_left_nothing_to_look_for(followed: World):
    shutil.rmtree(folder(followed, 1))
    runs = f"{followed.job}/runs/000001/"
    followed.store.delete(f"{runs}incarnations/000001.json")
    assert "not to be seen from here" in why(prune(followed))[1], "old records of processes are deleted"
    followed.store.delete(f"{runs}heartbeat.json")
    assert [one.generations for one in prune(followed).freed_checkpoints] == [(1,)]


def test_what_was_freed_says_nothing_of_runs_that_began_anew_under_its_numbers(followed: World):
    first = followed.board.claim(1).checkpoint_location
    assert [one.generations for one in prune(followed).freed_checkpoints] == [(1,)]
    stop(followed, "stop it")
    for info in list(followed.store.list(f"{followed.job}/")):
        if "/freed/" not in info.key:
            followed.store.delete(info.key)
    anew = followed.client().starts.start(
        followed.spec(), followed.target(), claim_key="anew", origin=Fresh()
    )
    followed.client().drivers.wait_running(anew.generation, timeout_s=10)
    assert followed.board.claim(1).checkpoint_location != first
    (seen,) = usage_of(followed.board, followed.repository).checkpoints
    assert seen.generations == (1,)


def test_checkpoint_of_a_line_that_was_left_says_by_which_start(followed: World):
    old = stop(followed, "left")
    started = followed.client().starts.start(
        followed.spec(), followed.target(), claim_key="on", origin=FromSavepoint(savepoint_id=old)
    )
    followed.client().drivers.wait_running(started.generation, timeout_s=10)
    committed(followed, started.generation)
    stop(followed, "and left behind")
    back = followed.client().starts.start(
        followed.spec(),
        followed.target(),
        claim_key="back",
        origin=FromSavepoint(savepoint_id=old, rewind="fork"),
    )
    followed.client().drivers.wait_running(back.generation, timeout_s=10)
    found = {one.generations[-1]: one for one in usage_of(followed.board, followed.repository).checkpoints}
    assert f"; abandoned: generation {back.generation} started from savepoint" in found[3].reason
    assert found[3].reason.endswith("(fork)")
    assert "abandoned" not in found[back.generation].reason
    assert "abandoned" not in found[2].reason, "the fork began where generation 2 ended"
