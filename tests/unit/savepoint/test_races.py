"""A take and a prune of the same blobs, one frozen inside the other at every call, each taken for dead."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.capture import take as taking
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError, SavepointError
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention import prune as pruning
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from testbed.memory_store import MemoryStore
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.storage.errors import StoreUnavailableError

    Make = Callable[..., Any]

Repository = SavepointRepository
_THREADS = {
    "take": "take",
    "capture": "take",
    "prune": "prune",
    "free": "prune",
    "notes": "prune",
    "manifests": "prune",
}


class Gated(MemoryStore):
    """Lets an actor sleep before one of its calls; an actor is known by the names of its threads."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps_at: dict[str, int] = {}
        self.made = {"take": 0, "prune": 0}
        self.asleep = {"take": threading.Event(), "prune": threading.Event()}
        self.wake = {"take": threading.Event(), "prune": threading.Event()}

    def _count(self, action: str, *, writes: bool = False) -> StoreUnavailableError | None:
        actor = _THREADS.get(threading.current_thread().name.split("_")[0])
        if actor is not None:
            self.made[actor] += 1
            if self.made[actor] == self.sleeps_at.get(actor):
                self.asleep[actor].set()
                self.wake[actor].wait(20)
        return super()._count(action, writes=writes)


class Race:
    """One schedule: the first sleeps, the second sleeps, the first ends, the second ends."""

    def __init__(self, a_checkpoint: Make, take: Make) -> None:
        self.store, self.failures = Gated(), dict[str, str]()
        repository = Repository(self.store, "orders")
        checkpoint = a_checkpoint(batches=2)
        previous = take(repository, checkpoint, "sp-old", taken_at_ms=1)
        take(repository, a_checkpoint(batches=2, query_id="q-2"), "sp-new", taken_at_ms=2)
        checkpoint.commit()
        repository.put_blob(b"of a take that never ended")
        self._work = {
            "take": lambda: take(
                Repository(self.store, "orders"), checkpoint, "sp-3", taken_at_ms=3, previous=previous
            ),
            "prune": lambda: pruning.prune(
                Repository(self.store, "orders"),
                RetentionPolicy(max_count=1),
                in_use=dict,
                holder="a prune",
                wait_s=0.3,
                lease_s=0.0,
            ),
        }

    def run(self, first: str, second: str, sleeps_at: dict[str, int]) -> bool:
        """Return whether both slept."""
        self.store.sleeps_at, self.store.made = sleeps_at, {"take": 0, "prune": 0}
        threads = {}
        for actor in (first, second):
            threads[actor] = threading.Thread(target=self._act, args=(actor,), name=actor)
            threads[actor].start()
            while threads[actor].is_alive() and not self.store.asleep[actor].wait(0.001):
                pass
        for actor in (first, second):
            self.store.wake[actor].set()
            threads[actor].join(20)
            assert not threads[actor].is_alive()
        return all(event.is_set() for event in self.store.asleep.values())

    def _act(self, actor: str) -> None:
        try:
            self._work[actor]()
        except SavepointError as error:
            self.failures[actor] = error.code

    def require_whole(self) -> None:
        repository = Repository(self.store, "orders")
        for manifest in manifests_of(repository):
            verify_savepoint(manifest, repository, level="full")
        assert repository.find("sp-3" if "take" not in self.failures else "sp-new") is not None


@pytest.mark.parametrize(("first", "second"), [("take", "prune"), ("prune", "take")])
def test_savepoints_are_whole_or_absent_wherever_both_sleep_and_take_each_other_for_dead(
    a_checkpoint: Make, take: Make, monkeypatch: pytest.MonkeyPatch, first: str, second: str
):
    monkeypatch.setattr(taking, "hold_intent", partial(hold_intent, lease_s=0.0, wait_s=0.3, poll_s=0.001))
    monkeypatch.setattr(pruning, "hold_prune", partial(hold_prune, poll_s=0.001))
    schedules, ends = 0, set()
    for call in range(1, 200):
        slept = False
        for other in range(1 + call % 5, 60, 5):
            race = Race(a_checkpoint, take)
            both = race.run(first, second, {first: call, second: other})
            race.require_whole()
            ends.add(tuple(sorted(race.failures.items())))
            schedules += 1
            slept = slept or race.store.asleep[first].is_set()
            if not both:
                break
        if not slept:
            break
    assert schedules > 50
    assert () in ends, "never did both succeed"
    assert {code for end in ends for _, code in end} >= {"INTENT_BROKEN"}


def prune_by_age(repository: Repository, born_s: dict[str, float], now_s: float, meanwhile: Make) -> None:
    """Free what no savepoint needs and is older than a week: no intents, only a grace period."""
    needed = {blob for manifest in repository.each() for blob in manifest.blobs}
    old = [blob for blob in repository.blob_sizes() if now_s - born_s[blob] > 7 * 86_400]
    meanwhile()
    for blob in old:
        if blob not in needed:
            repository.delete_blob(blob)


def test_grace_period_alone_breaks_a_savepoint_that_uses_old_files_again(a_checkpoint: Make, take: Make):
    """The race that intents are for: a take finds an old file that no savepoint needs, and relies on it."""
    checkpoint, repository = a_checkpoint(), Repository(MemoryStore(), "orders")
    take(repository, checkpoint, "sp-1")
    repository.delete_manifest("sp-1")  # a month ago: disposed of, its files not freed yet
    born_s = dict.fromkeys(repository.blob_sizes(), 0.0)
    prune_by_age(repository, born_s, 30 * 86_400.0, partial(take, repository, checkpoint, "sp-2"))
    with pytest.raises(SavepointDamagedError, match="is missing"):
        verify_savepoint(repository.read("sp-2"), repository, level="quick")


def test_the_same_with_intents_keeps_the_savepoint_whole(a_checkpoint: Make, take: Make):
    checkpoint, repository = a_checkpoint(), Repository(MemoryStore(), "orders")
    take(repository, checkpoint, "sp-1")
    repository.delete_manifest("sp-1")

    def prune(**changes: Any) -> None:
        pruning.prune(
            repository, RetentionPolicy(), holder="a prune", wait_s=0.0, **{"in_use": dict, **changes}
        )

    def take_beside() -> dict[str, str]:
        """Take while the prune decides; it waits for the prune, so it is given no time here."""
        with (
            pytest.raises(SavepointError, match="prune of a prune"),
            hold_intent(repository, "take", holder="sp-2", wait_s=0.0),
        ):
            pytest.fail("blobs are being freed")
        return {}

    prune(in_use=take_beside)
    verify_savepoint(take(repository, checkpoint, "sp-2"), repository, level="full")
    prune()
    verify_savepoint(repository.read("sp-2"), repository, level="full")
