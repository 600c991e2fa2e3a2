"""What a prune leaves whose deletes fail or that dies, and what those who come after it do with that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.prune_slot import read_slot, take_slot
from airflow_flinkstyle.savepoint.blobs.references import pin, pins
from airflow_flinkstyle.savepoint.errors import IntentBrokenError, RepositoryBusyError, SavepointMissingError
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.storage.errors import StoreDeniedError, StoreError, StoreUnavailableError
from testbed.memory_store import MemoryStore
from tests.manifests import manifests_of
from tests.unit.clocks import SleptClock

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]


@pytest.fixture
def three(a_checkpoint: Make, take: Make) -> SavepointRepository:
    return of_three(a_checkpoint, take)


def of_three(a_checkpoint: Make, take: Make) -> SavepointRepository:
    repository, checkpoint = SavepointRepository(MemoryStore("root"), "orders"), a_checkpoint(batches=1)
    for number in (1, 2, 3):
        take(repository, checkpoint, f"sp-{number}", taken_at_ms=number)
        checkpoint.commit()
    return repository


def prune_to(repository: SavepointRepository, max_count: int = 1, **changes: Any) -> Any:  # noqa: ANN401
    told = {"in_use": dict, "holder": "a prune", "wait_s": 0.5, "lease_s": 0.0, **changes}
    return prune(repository, RetentionPolicy(max_count=max_count), **told)


def die_in_slot(repository: SavepointRepository) -> None:
    """Take the slot, as a prune that is killed before it has decided anything."""
    taken = take_slot(repository, read_slot(repository), holder="a prune that is killed", lease_s=0.0)
    assert taken is not None


def use(repository: SavepointRepository) -> None:
    """Do what a take, a restore or a pin begins with; a slot that has expired is taken over."""
    with hold_intent(repository, "take", holder="the next one", publishes="sp-9", wait_s=5, poll_s=0.001):
        pass


def left(repository: SavepointRepository) -> list[str]:
    return [info.key for info in repository.store.list("orders/condemned/")]


def require_all_whole(repository: SavepointRepository) -> None:
    for manifest in manifests_of(repository):
        verify_savepoint(manifest, repository, level="full")


@pytest.mark.parametrize("lists_too", [False, True])
def test_savepoint_pinned_after_a_prune_failed_survives_the_death_of_a_later_one(
    three: SavepointRepository, lists_too: bool
):
    three.store.refuse(denied="delete orders/" if lists_too else "delete orders/savepoints")  # type: ignore[attr-defined]
    with pytest.raises(StoreDeniedError, match="decides on them again"):
        prune_to(three)
    three.store.refuse()  # type: ignore[attr-defined]
    assert len(left(three)) == lists_too
    pin(three, "sp-1", reason="audit", by="ann", at_ms=1)
    assert prune_to(three, 3).plan.disposed == ()
    die_in_slot(three)
    use(three)
    assert three.find("sp-1") is not None
    assert pins(three).keys() == {"sp-1"}
    require_all_whole(three)


def test_savepoint_whose_delete_got_no_answer_is_nobodys_to_rely_on_any_more(three: SavepointRepository):
    blobs = three.blob_sizes()
    three.store.refuse(unanswered="delete orders/savepoints/sp-1")  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailableError, match="sp-1 counts as disposed of: the next take") as failed:
        prune_to(three, 2, lease_s=0.2)
    assert "nothing else was changed" not in str(failed.value)
    assert "condemned/" in str(failed.value)
    three.store.refuse()  # type: ignore[attr-defined]
    with pytest.raises(SavepointMissingError):
        pin(three, "sp-1", reason="audit", by="ann", at_ms=1)
    three.delete_manifest("sp-1")  # now it arrives
    assert three.blob_sizes() == blobs, "no file goes before its manifest is certainly gone"
    use(three)
    prune_to(three, 2)
    require_all_whole(three)


def test_nobody_relies_on_a_savepoint_before_the_lease_of_the_prune_in_doubt_has_passed(
    three: SavepointRepository,
):
    three.store.refuse(unanswered="delete orders/savepoints/sp-1")  # type: ignore[attr-defined]
    with pytest.raises(StoreUnavailableError):
        prune_to(three, 2, lease_s=60.0)
    with pytest.raises(RepositoryBusyError, match="prune of a prune"):
        pin(three, "sp-1", reason="audit", by="ann", at_ms=1, wait_s=0.0)


def test_who_takes_over_from_a_dead_one_ends_what_that_one_had_to_end(three: SavepointRepository):
    """A prune sleeps before its first delete; who takes its slot dies at once; a third one finds both."""
    delete = three.delete_manifest

    def sleep(savepoint_id: str) -> None:
        three.store.refuse(denied="read orders/condemned")  # type: ignore[attr-defined]
        with pytest.raises(StoreDeniedError):
            take_slot(three, read_slot(three), holder="dies at once", lease_s=0.0)
        three.store.refuse()  # type: ignore[attr-defined]
        use(three)
        assert three.find(savepoint_id) is None, "the one asleep deletes it now"
        delete(savepoint_id)

    three.delete_manifest = sleep  # type: ignore[method-assign]
    with hold_prune(three, holder="asleep", lease_s=0.0, poll_s=0.001) as held:
        held.delete(savepoints=["sp-1"], blobs=[])
    require_all_whole(three)


def test_slot_that_was_given_back_ends_nothing_of_before(three: SavepointRepository):
    use(three)
    die_in_slot(three)
    use(three)
    slot = read_slot(three)
    assert slot is not None
    assert (slot.record.holder, slot.record.in_force) == (None, ())


def test_pin_of_one_who_was_taken_for_dead_is_not_promised(three: SavepointRepository):
    writes = three.store.write

    def write(key: str, data: bytes) -> str:
        for info in three.store.list("orders/takes/"):
            three.store.delete(info.key)  # as who gives it up does
        return writes(key, data)

    three.store.write = write  # type: ignore[method-assign]
    with pytest.raises(IntentBrokenError):
        pin(three, "sp-1", reason="audit", by="ann", at_ms=1)


@pytest.mark.parametrize("how", ["denied", "unanswered"])
@pytest.mark.parametrize("what", ["savepoints", "references", "verified", "blobs", "condemned", "takes", ""])
def test_whichever_deletes_fail_all_savepoints_stay_whole_and_the_next_prune_does_the_rest(
    a_checkpoint: Make, take: Make, what: str, how: str
):
    repository = of_three(a_checkpoint, take)
    orphan = repository.put_blob(b"of a take that never ended")
    repository.store.refuse(**{how: f"delete orders/{what}"})  # type: ignore[attr-defined]
    try:
        prune_to(repository)
    except StoreError as error:
        assert "nothing else was changed" not in error.state_after  # noqa: PT017
        assert error.state_after != "Nothing was changed."  # noqa: PT017
    repository.store.refuse()  # type: ignore[attr-defined]
    require_all_whole(repository)
    assert repository.find("sp-3") is not None
    use(repository)
    require_all_whole(repository)
    prune_to(repository)
    assert [one.savepoint_id for one in manifests_of(repository)] == ["sp-3"]
    assert orphan not in repository.blob_sizes()
    assert repository.blob_sizes().keys() == repository.read("sp-3").blobs.keys()


@pytest.mark.parametrize("wrong_ms", [86_400_000, -86_400_000])
def test_clock_that_is_a_day_wrong_costs_neither_the_newest_state_nor_what_is_held(
    three: SavepointRepository, wrong_ms: int
):
    pin(three, "sp-1", reason="audit", by="ann", at_ms=now_ms() + wrong_ms)
    clock = SleptClock()
    clock.at_ms = now_ms() + wrong_ms
    prune(three, RetentionPolicy(max_age_s=3600), in_use=dict, holder="t", wait_s=1, clock=clock)
    assert {"sp-1", "sp-3"} <= set(three.ids())
    require_all_whole(three)
