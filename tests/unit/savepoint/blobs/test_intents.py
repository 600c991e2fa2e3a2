from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.references import pin, pins
from airflow_flinkstyle.savepoint.errors import SAVEPOINT_TOMBSTONED, IntentBrokenError, RepositoryBusyError
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import ObjectExistsError, StoreUnavailableError
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]

Repository = SavepointRepository
NOW = {"wait_s": 0.0, "poll_s": 0.01}
SOON = {"wait_s": 5.0, "poll_s": 0.01}
DEAD = {"lease_s": 0.0}
"""Whoever looks twice finds it expired."""


def intents(repository: Repository) -> list[str]:
    return [info.key for info in repository.store.list("orders/takes/")]


def test_intent_lasts_as_long_as_its_block(repository: Repository):
    with hold_intent(repository, "take", holder="task a") as held:
        assert len(intents(repository)) == 1
        held.require_alive()
    assert intents(repository) == []


def test_intent_is_withdrawn_whatever_the_block_raises(repository: Repository):
    with pytest.raises(ZeroDivisionError), hold_intent(repository, "export", holder="task a"):
        raise ZeroDivisionError
    assert intents(repository) == []


@pytest.mark.parametrize("kind", ["take", "restore", "export", "precopy"])
def test_prune_waits_for_every_live_intent_and_names_its_holder(repository: Repository, kind: Any):  # noqa: ANN401
    with (
        hold_intent(repository, kind, holder="task a"),
        pytest.raises(RepositoryBusyError, match=f"{kind} intent of task a, begun 20") as caught,
        hold_prune(repository, holder="task b", **NOW),
    ):
        pytest.fail("nothing may be freed")
    assert caught.value.retryable
    with hold_prune(repository, holder="task b", **NOW):
        pass


def test_take_waits_for_a_prune_and_leaves_no_intent_meanwhile(repository: Repository):
    with (
        hold_prune(repository, holder="task b"),
        pytest.raises(RepositoryBusyError, match="prune of task b"),
        hold_intent(repository, "take", holder="task a", **NOW),
    ):
        pytest.fail("blobs are being freed")
    assert intents(repository) == []
    with hold_intent(repository, "take", holder="task a", **NOW):
        pass


def test_take_that_waits_goes_on_once_the_prune_has_ended(repository: Repository):
    entered, leave = threading.Event(), threading.Event()

    def prune() -> None:
        with hold_prune(repository, holder="task b"):
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=prune)
    thread.start()
    entered.wait(10)
    threading.Timer(0.1, leave.set).start()
    with hold_intent(repository, "take", holder="task a", wait_s=10, poll_s=0.01):
        assert leave.is_set()
    thread.join()


def test_two_prunes_never_hold_the_slot_at_once(repository: Repository):
    with (
        hold_prune(repository, holder="task a"),
        pytest.raises(RepositoryBusyError, match="prune of task a"),
        hold_prune(repository, holder="task b", **NOW),
    ):
        pytest.fail("two at once")


def test_expired_intent_is_given_up_and_its_holder_can_publish_nothing(
    repository: Repository, a_checkpoint: Make, take: Make
):
    manifest = take(Repository(MemoryStore(), "orders"), a_checkpoint(), "sp-1")
    with hold_intent(repository, "take", holder="task a", publishes="sp-1", **DEAD) as held:
        with hold_prune(repository, holder="task b", **SOON):
            assert intents(repository) == []
        with refuses(SAVEPOINT_TOMBSTONED, match="take intent of task a"):
            repository.publish(manifest)
        with pytest.raises(IntentBrokenError, match="take intent of task a"):
            held.require_alive()
    assert repository.find("sp-1") is None
    assert manifests_of(repository) == ()
    with (
        refuses(SAVEPOINT_TOMBSTONED),
        hold_intent(repository, "take", holder="task a, try 2", publishes="sp-1"),
    ):
        pytest.fail("the id is tombstoned")


def test_savepoint_published_before_its_intent_expired_stays(
    repository: Repository, a_checkpoint: Make, take: Make
):
    with hold_intent(repository, "take", holder="task a", publishes="sp-1", **DEAD):
        manifest = take(repository, a_checkpoint(), "sp-1")
        with hold_prune(repository, holder="task b", **SOON):
            pass
    assert repository.read("sp-1") == manifest


class Late(MemoryStore):
    """Carries one manifest's create out long after whoever asked for it has given up waiting."""

    late: tuple[str, bytes] | None = None

    def create(self, key: str, data: bytes) -> str:
        if self.late is None and "/savepoints/" in key:
            self.late = (key, data)
            raise StoreUnavailableError.during(f"create {key}", self.uri, "no answer")
        return super().create(key, data)

    def catch_up(self) -> None:
        assert self.late is not None
        with contextlib.suppress(ObjectExistsError):
            super().create(*self.late)


def test_manifest_that_arrives_after_its_take_has_failed_finds_its_files(a_checkpoint: Make, take: Make):
    repository = Repository(Late(), "orders")
    with pytest.raises(StoreUnavailableError, match="no answer"):
        take(repository, a_checkpoint(), "sp-1")
    with (
        pytest.raises(RepositoryBusyError, match="the taker of sp-1"),
        hold_prune(repository, holder="task b", **NOW),
    ):
        pytest.fail("a prune might free what the savepoint needs")
    repository.store.catch_up()
    verify_savepoint(repository.read("sp-1"), repository, level="full")


def test_manifest_that_arrives_after_a_prune_makes_no_savepoint(a_checkpoint: Make, take: Make):
    repository = Repository(Late(), "orders")
    manifest = take(Repository(MemoryStore(), "orders"), a_checkpoint(), "sp-1")
    with (
        pytest.raises(StoreUnavailableError, match="no answer"),
        hold_intent(repository, "take", holder="task a", publishes="sp-1", **DEAD) as held,
    ):
        held.publish(repository, manifest)
    with hold_prune(repository, holder="task b", **SOON):
        pass
    repository.store.catch_up()
    assert repository.find("sp-1") is None


def test_take_that_got_no_answer_can_be_tried_again_at_once(a_checkpoint: Make, take: Make):
    repository, checkpoint = Repository(Late(), "orders"), a_checkpoint()
    with pytest.raises(StoreUnavailableError, match="no answer"):
        take(repository, checkpoint, "sp-1")
    manifest = take(repository, checkpoint, "sp-1")
    repository.store.catch_up()
    assert repository.read("sp-1") == manifest
    verify_savepoint(manifest, repository, level="full")


def test_intent_is_renewed_while_it_is_held(repository: Repository):
    with hold_intent(repository, "take", holder="task a", lease_s=0.4) as held:
        with pytest.raises(RepositoryBusyError), hold_prune(repository, holder="b", wait_s=1, poll_s=0.05):
            pytest.fail("it was renewed")
        held.require_alive()


def test_renewal_whose_answer_was_lost_is_no_loss_of_the_intent(repository: Repository):
    store = repository.store
    assert isinstance(store, MemoryStore)
    with hold_intent(repository, "take", holder="task a") as held:
        store.fail_at(1, lost_answer=True)
        with pytest.raises(StoreUnavailableError):
            held.require_alive()
        held.require_alive()


def test_prune_that_died_is_given_up_by_the_next_take(repository: Repository):
    with hold_prune(repository, holder="task b", **DEAD) as dead:
        with hold_intent(repository, "take", holder="task a", **SOON):
            pass
        with pytest.raises(IntentBrokenError):
            dead.delete(savepoints=(), blobs=["b"])
    with hold_prune(repository, holder="task c", **NOW) as held:
        held.renewed.require_alive()


def test_prune_that_wakes_does_not_give_away_the_slot_of_another(repository: Repository):
    with contextlib.ExitStack() as stack:
        with hold_prune(repository, holder="task b", **DEAD):
            held = stack.enter_context(hold_prune(repository, holder="task c", **SOON))
        held.renewed.require_alive()


def test_blob_that_a_prune_given_up_may_still_delete_goes_under_another_key(repository: Repository):
    blob = repository.put_blob(b"content")
    die_while_deleting(repository, savepoints=[], blobs=[blob])
    with hold_intent(repository, "take", holder="task a", **SOON):
        assert repository.reusable_blobs() == {}
        again = repository.put_blob(b"content")
        assert again == f"{blob}.1"
        repository.delete_blob(blob)  # the dead one wakes
        assert b"".join(repository.open(again)) == b"content"


def test_savepoint_that_a_prune_given_up_was_disposing_of_is_gone_before_anybody_relies_on_it(
    repository: Repository, a_checkpoint: Make, take: Make
):
    manifest = take(repository, a_checkpoint(), "sp-1")
    die_while_deleting(repository, savepoints=["sp-1"], blobs=list(manifest.blobs))
    with hold_intent(repository, "restore", holder="task a", **SOON):
        assert repository.find("sp-1") is None


def test_prune_that_wakes_takes_neither_a_savepoint_nor_its_new_pin(
    repository: Repository, a_checkpoint: Make, take: Make
):
    manifest = take(repository, a_checkpoint(), "sp-1")
    with hold_prune(repository, holder="task b", **DEAD) as late:
        with hold_intent(repository, "restore", holder="task a", **SOON):
            pass  # the prune is given up
        pin(repository, "sp-1", reason="audit", by="ann", at_ms=1)
        with pytest.raises(IntentBrokenError):
            late.delete(savepoints=["sp-1"], blobs=list(manifest.blobs))
    assert pins(repository).keys() == {"sp-1"}
    die_while_deleting(repository, savepoints=[], blobs=[repository.put_blob(b"orphan")])
    with hold_intent(repository, "restore", holder="task a", **SOON):
        verify_savepoint(repository.read("sp-1"), repository, level="full")


def die_while_deleting(repository: Repository, *, savepoints: list[str], blobs: list[str]) -> None:
    """Leave the slot held and the list of the condemned behind, with nothing deleted."""
    store = repository.store
    assert isinstance(store, MemoryStore)
    slot = "orders/prune.json"
    with hold_prune(repository, holder="task b", **DEAD) as dead:
        # By what is asked for: a renewal in the background may come in between.
        store.refuse(unanswered="delete orders/")
        with pytest.raises(StoreUnavailableError):
            dead.delete(savepoints=savepoints, blobs=blobs)
        store.refuse()
        held = store.read(slot)
    store.write(slot, held)
