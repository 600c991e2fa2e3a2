"""Random histories against the oracle: some hundred, every fault that was found, and faults put back."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from testbed.histories import driver, oracle, steps
from testbed.histories.cases import CASES
from testbed.histories.generator import a_history, as_script
from testbed.histories.history import run_history
from testbed.histories.shrink import shrunk
from testbed.histories.steps import Step
from testbed.histories.tally import judged
from testbed.histories.world import Setting

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import Manifest

FIXED = range(300)
RANDOM_SEED = random.SystemRandom().randrange(10**9)


def wrong(setting: Setting, history: tuple[Step, ...]) -> oracle.Wrong | None:
    return run_history(setting, history).wrong


@pytest.mark.parametrize("seeds", [FIXED, range(RANDOM_SEED, RANDOM_SEED + 30)], ids=["fixed", "random"])
def test_some_hundred_random_histories_keep_every_promise(seeds: range):
    """The whole: make histories N=100000."""
    found = judged(seeds).wrong
    told = "\n".join(f"seed {seed}: {kind}: {what}" for seed, (kind, what) in found.items())
    assert not found, f"{told}\nTo see one: make histories N=1 SEED=<seed>"


@pytest.mark.parametrize("name", CASES)
def test_history_of_a_fault_that_was_found_keeps_every_promise(name: str):
    assert wrong(*CASES[name]) is None


@pytest.mark.parametrize("name", ["17-prune-takes-what-a-rollback-that-has-begun-goes-back-to"])
def test_history_of_a_caller_that_died_keeps_every_promise_wherever_it_dies(name: str):
    """A call more or less, and the case itself would look at another moment."""
    setting, steps = CASES[name]
    for at in range(40, 80):
        dies = tuple(replace(step, fault=("die", at)) if step.fault is not None else step for step in steps)
        assert wrong(setting, dies) is None, at


def test_seed_tells_all_that_happens():
    first, second = (run_history(*a_history(7)) for _ in range(2))
    assert first == second


DROPS_A_PLANNED_BATCH = (
    Setting(queries=2),
    (
        Step(do="produce", many=3),
        Step(do="start", who=1, script="v1-late"),
        Step(do="pass", seconds=150),
        Step(do="produce", many=3),
        Step(do="kill", many=7),
        Step(do="watch"),
        Step(do="pass", seconds=20),
        Step(do="produce", many=3),
        Step(do="migrate", who=2),
    ),
)


@pytest.fixture
def fault_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put it back: planned batches are left out of restores, so that their numbers go to other rows."""
    restore = driver.restore_savepoint

    def without_planned(manifest: Manifest, *arguments: Any, **options: Any) -> object:
        bare = tuple(replace(query, planned_offsets=None) for query in manifest.queries)
        return restore(replace(manifest, queries=bare), *arguments, **options)

    monkeypatch.setattr(driver, "restore_savepoint", without_planned)


def test_planned_batch_that_a_migration_carries_keeps_every_promise():
    assert wrong(*DROPS_A_PLANNED_BATCH) is None


@pytest.mark.usefixtures("fault_2")
def test_planned_batch_that_a_migration_drops_is_found():
    found = wrong(*DROPS_A_PLANNED_BATCH)
    assert found is not None
    assert found.kind == "other-rows"


def test_upgrade_that_is_green_by_memory_is_found(monkeypatch: pytest.MonkeyPatch):
    """Fault 10, put back: a key of who asks alone."""
    first = Step(do="upgrade", who=2, script="v2")
    history = (Step(do="produce", many=3), Step(do="start", who=1), first, replace(first, script="v3"))
    assert wrong(Setting(), history) is None
    digest = steps.digest_of
    monkeypatch.setattr(steps, "digest_of", lambda *who, **_: digest(*who))
    found = wrong(Setting(), history)
    assert found is not None
    assert found.kind == "green-for-nothing"


@pytest.mark.usefixtures("fault_2")
def test_history_that_breaks_a_promise_becomes_the_shortest_that_does():
    setting, history = DROPS_A_PLANNED_BATCH
    longer = (*history, Step(do="take", who=7), Step(do="pass", seconds=60))
    found = wrong(setting, longer)
    assert found is not None
    setting, shortest = shrunk(setting, longer, found.kind)
    assert len(shortest) <= len(history)
    assert wrong(setting, shortest) is not None
    assert "Step(do='migrate'" in as_script(setting, shortest, found.what)


def test_rollback_by_fork_whose_driver_has_copied_the_savepoint_ahead_succeeds():
    """Fault 18: no promise was broken by it, it only never worked."""
    steps_before = (
        Step(do="produce", many=2),
        Step(do="start", who=1),
        Step(do="take", who=3),
        Step(do="produce", many=2),
        Step(do="pass", seconds=20),
    )
    outcome = run_history(Setting(), (*steps_before, Step(do="rollback", who=4, how="fork")))
    assert outcome.wrong is None
    assert outcome.told[-2] == "done: 2"
