"""Whatever one call to a store does, a savepoint is whole or absent, and the checkpoint is as it was."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from airflow_flinkstyle.savepoint.errors import (
    TAKE_TIMED_OUT,
    ManifestFormatError,
    SavepointDamagedError,
    SavepointError,
)
from airflow_flinkstyle.savepoint.exchange.export import export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import StoreError
from testbed.memory_store import MemoryStore
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_flinkstyle.storage.base import ObjectStore

    Make = Callable[..., Any]

Repository = SavepointRepository
ROOT = Path(__file__).parents[3]
Fault = Literal["fails", "loses its answer", "hangs", "answers late"]
FAULTS: tuple[Fault, ...] = ("fails", "loses its answer", "hangs", "answers late")
SEAL = b"v2147483647\n"
SLOW_S = 0.004


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list()}


def break_call(store: MemoryStore, call: int, fault: Fault) -> None:
    """Let one call of a store go wrong; a hanging one ends after a while, as every store's does."""
    end = threading.Event() if fault in {"hangs", "answers late"} else None
    store.fail_at(call, lost_answer=fault == "loses its answer", hang=end, recovers=fault == "answers late")
    if end is not None:
        threading.Timer(SLOW_S, end.set).start()


def require_whole(repository: Repository) -> None:
    """Check that every savepoint that exists is whole."""
    for savepoint_id in repository.ids():
        verify_savepoint(repository.read(savepoint_id), repository, level="full")


def copy_of(store: ObjectStore) -> MemoryStore:
    copy = MemoryStore(store.uri)
    for key, content in contents(store).items():
        copy.write(key, content)
    return copy


def orphans(repository: Repository) -> set[str]:
    return set(repository.blob_sizes()).difference(*(manifest.blobs for manifest in manifests_of(repository)))


def intents(repository: Repository) -> list[str]:
    return [info.key for info in repository.store.list("orders/takes/")]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One operation, the stores that may fail, and what must hold afterwards."""

    run: Callable[[], object]
    stores: Mapping[str, Any]
    require: Callable[[], None]


class Worlds:
    """Makes every world anew, so that no fault meets the traces of another."""

    def __init__(self, a_checkpoint: Make, take: Make) -> None:
        self.checkpoint, self.take = a_checkpoint(batches=2, store=MemoryStore("live")), take
        self.live = contents(self.checkpoint.store)
        whole = Repository(MemoryStore("whole"), "orders")
        self.manifest = take(whole, self.checkpoint)
        self.folder = MemoryStore("folder")
        export_savepoint(whole, "sp-1", self.folder)
        self.whole = whole.store

    def make(self, operation: str) -> World:
        self.checkpoint.store.fail_at(None)
        assert contents(self.checkpoint.store) == self.live
        made: World = getattr(self, operation)()
        return made

    def of_take(self) -> World:
        root = Repository(MemoryStore("root"), "orders")

        def require() -> None:
            require_whole(root)
            if root.ids():  # else the next take finds what was uploaded
                assert orphans(root) == set()

        return World(
            run=lambda: self.take(root, self.checkpoint),
            stores={"root": root.store, "other": self.checkpoint.store},
            require=require,
        )

    def of_restore(self) -> World:
        root, target = Repository(copy_of(self.whole), "orders"), MemoryStore("target")
        (query,) = self.manifest.queries
        wanted = {entry.path: self.live[entry.path] for entry in query.files}

        def require() -> None:
            require_whole(root)
            found = contents(target)
            newest = max((key for key in found if key.startswith("offsets/")), default=None)
            assert not found or found == wanted or (newest and found[newest].startswith(SEAL))

        return World(
            run=lambda: restore_savepoint(self.manifest, root, lambda _: target, claim_mode="claim"),
            stores={"root": root.store, "other": target},
            require=require,
        )

    def of_export(self) -> World:
        root, target = Repository(copy_of(self.whole), "orders"), MemoryStore("target")

        def require() -> None:
            require_whole(root)
            if target.head("savepoint.json") is not None:
                imported = import_savepoint(target, Repository(MemoryStore(), "orders"))
                assert imported == replace(self.manifest, taken_from_generation=None)  # a run of another root

        return World(
            run=lambda: export_savepoint(root, "sp-1", target),
            stores={"root": root.store, "other": target},
            require=require,
        )

    def of_import(self) -> World:
        root, source = Repository(MemoryStore("root"), "orders"), copy_of(self.folder)
        return World(
            run=lambda: import_savepoint(source, root),
            stores={"root": root.store, "other": source},
            require=lambda: require_whole(root),
        )


@pytest.fixture
def worlds(a_checkpoint: Make, take: Make) -> Worlds:
    return Worlds(a_checkpoint, take)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("store", ["root", "other"])
@pytest.mark.parametrize("operation", ["of_take", "of_restore", "of_export", "of_import"])
def test_savepoint_is_whole_or_absent_whichever_call_goes_wrong(
    worlds: Worlds, operation: str, store: str, fault: Fault
):
    failed = 0
    for call in itertools.count(1):
        world = worlds.make(operation)
        broken = world.stores[store]
        break_call(broken, call, fault)
        try:
            world.run()
        except (StoreError, SavepointError):
            failed += 1
        reached = broken.calls >= call
        broken.fail_at(None)
        world.require()
        world.run()
        world.require()
        if not reached:
            break
    assert call > 5
    assert failed > 0 or fault == "answers late"


def test_take_whose_store_hangs_ends_when_its_time_is_up_and_leaves_no_savepoint(
    a_checkpoint: Make, take: Make
):
    checkpoint, timed_out = a_checkpoint(batches=1), 0
    for call in itertools.count(1):
        root = Repository(MemoryStore("root"), "orders")
        assert isinstance(root.store, MemoryStore)
        end = threading.Event()
        root.store.fail_at(call, hang=end, recovers=True)
        threading.Timer(0.03, end.set).start()
        try:
            take(root, checkpoint, timeout_s=0.02)
        except SavepointError as error:
            if error.code != TAKE_TIMED_OUT.code:
                raise
            assert root.ids() == ()
            timed_out += 1
        if root.store.calls < call:
            break
        root.store.fail_at(None)
        require_whole(root)
    assert timed_out > 5


# --- damaged files -----------------------------------------------------------------------------


def damages(content: bytes) -> dict[str, bytes | None]:
    """Return what can happen to a file: nothing of it, less or more of it, or one byte of it, anywhere."""
    found: dict[str, bytes | None] = {
        "missing": None, "empty": b"", "cut": content[:-1], "longer": content + b"\0",
    }  # fmt: skip
    for position in {0, 1, len(content) // 3, len(content) // 2, len(content) - 2, len(content) - 1}:
        if 0 <= position < len(content):
            changed = bytearray(content)
            changed[position] ^= 1 << (position % 8)
            found[f"byte {position} flipped"] = bytes(changed)
    return {how: changed for how, changed in found.items() if changed != content}


def test_every_damage_to_every_file_is_found_by_verify_and_never_restored_or_exported(
    a_checkpoint: Make, take: Make
):
    store = MemoryStore()
    repository = Repository(store, "orders")
    manifest = take(repository, a_checkpoint(), packed_below_bytes=0)
    tried = 0
    for (blob, _, _), entry in manifest.contents.items():
        key = f"orders/blobs/{blob}"
        whole = store.read(key)
        for how, content in damages(whole).items():
            store.delete(key) if content is None else store.write(key, content)
            target, folder = MemoryStore(), MemoryStore()
            with pytest.raises(SavepointDamagedError, match=entry.path):
                verify_savepoint(manifest, repository, level="full")
            with pytest.raises(SavepointDamagedError, match=entry.path):
                restore_savepoint(manifest, repository, lambda _, target=target: target)
            assert target.read("offsets/2").startswith(SEAL), how
            with pytest.raises(SavepointDamagedError, match=entry.path):
                export_savepoint(repository, "sp-1", folder)
            assert folder.head("savepoint.json") is None
            tried += 1
        store.write(key, whole)
    assert tried > 50
    verify_savepoint(manifest, repository, level="full")


def test_damaged_manifest_is_no_savepoint(a_checkpoint: Make, take: Make):
    store = MemoryStore()
    repository = Repository(store, "orders")
    take(repository, a_checkpoint())
    key = "orders/savepoints/sp-1.json"
    whole = store.read(key)
    for how, content in damages(whole).items():
        if content is not None:
            store.write(key, content)
            with pytest.raises(ManifestFormatError):
                pytest.fail(f"{how}: {repository.read('sp-1')}")
