"""Garbage where a record should stand: the error names the object and says what to do; nothing is deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import FlinkstyleError, MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.blobs.intents import Intent, hold_intent
from airflow_flinkstyle.savepoint.blobs.prune_slot import PruneSlot
from airflow_flinkstyle.savepoint.blobs.references import pin, pins
from airflow_flinkstyle.savepoint.errors import IntentBrokenError
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

    Make = Callable[..., Any]

SLOT = PruneSlot(holder="a prune", lease_s=1.0, begun_at_ms=1, prune_id="p").to_bytes()
INTENT = Intent(holder="a take", lease_s=1.0, begun_at_ms=1, kind="take", publishes="sp-2").to_bytes()
NO_JSON = [b"", b"\xff", b"[]", b"{", b"[" * 99_999]
WRONG = {
    "holder": 5,
    "lease_s": "long",
    "begun_at_ms": 10**30,
    "beat": None,
    "surprise": 1,
}


def garbage(record: bytes, **wrong: object) -> list[bytes]:
    """Return what is no JSON, and the record with one value altered at a time."""
    values = json.loads(record)
    altered = [{**values, name: value} for name, value in {**WRONG, **wrong}.items()]
    return [*NO_JSON, *(json.dumps(one).encode() for one in [*altered, {**values, "lease_s": float("nan")}])]


def prune_all(repository: SavepointRepository) -> object:
    return prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="a test", wait_s=0.0)


def rely(repository: SavepointRepository) -> None:
    with hold_intent(repository, "take", holder="a test"):
        pass


@pytest.fixture
def two(repository: SavepointRepository, a_checkpoint: Make, take: Make) -> SavepointRepository:
    for number in (1, 2):
        take(repository, a_checkpoint(), f"sp-{number}", taken_at_ms=number)
    return repository


def require_named(error: FlinkstyleError, key: str) -> None:
    assert f"/{key}: " in error.problem
    assert "delete it once no take" in error.remedy


@pytest.mark.parametrize("data", garbage(SLOT))
def test_garbage_in_the_slot_is_named_to_takes_and_prunes(
    two: SavepointRepository, a_checkpoint: Make, take: Make, data: bytes
):
    two.store.write("orders/prune.json", data)
    for act in (lambda: prune_all(two), lambda: take(two, a_checkpoint(), "sp-3")):
        with pytest.raises(MessageFormatError) as caught:
            act()
        require_named(caught.value, "orders/prune.json")
    assert len(two.ids()) == 2
    assert list(two.store.list("orders/takes/")) == []
    two.store.delete("orders/prune.json")
    prune_all(two)


@pytest.mark.parametrize("data", garbage(INTENT, publishes="../x"))
def test_garbage_among_the_intents_is_named_and_keeps_everything(two: SavepointRepository, data: bytes):
    two.store.write("orders/takes/1.json", data)
    with pytest.raises(MessageFormatError) as caught:
        prune_all(two)
    require_named(caught.value, "orders/takes/1.json")
    assert len(two.ids()) == 2


@pytest.mark.parametrize("folder", ["condemned", "references/sp-1", "verified"])
@pytest.mark.parametrize("data", [*NO_JSON, b'{"version": 1, "holder": null, "savepoints": [1], "blobs": 3}'])
def test_garbage_in_other_records_is_named_and_keeps_everything(
    two: SavepointRepository, folder: str, data: bytes
):
    two.store.write(f"orders/{folder}/sp-1.json", data)
    act = rely if folder == "condemned" else prune_all
    with pytest.raises(MessageFormatError) as caught:
        act(two)
    assert len(two.ids()) == 2
    require_named(caught.value, f"orders/{folder}/sp-1.json")


def test_record_of_a_newer_package_is_named(two: SavepointRepository):
    pin(two, "sp-1", reason="audit", by="ann", at_ms=1)
    two.store.write("orders/references/sp-1/pin.json", b'{"version": 7}')
    with pytest.raises(ProtocolVersionError, match=r"orders/references/sp-1/pin\.json") as caught:
        pins(two)
    assert "upgrade" in caught.value.remedy


def test_slot_that_turned_into_garbage_is_held_no_more(two: SavepointRepository):
    with hold_prune(two, holder="a test") as held:
        two.store.write("orders/prune.json", b"garbage")
        with pytest.raises(IntentBrokenError):
            held.delete(savepoints=["sp-1"], blobs=[])
    assert len(two.ids()) == 2
    assert two.store.read("orders/prune.json") == b"garbage"
