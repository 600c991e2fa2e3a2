from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.protocol.board import ROOT_KEY, JobBoard, Root, adopt_root, root_of
from airflow_flinkstyle.protocol.errors import ROOT_COPIED
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.unit.stores import ActingStore

if TYPE_CHECKING:
    from pathlib import Path


def test_root_has_one_id_however_often_and_at_once_it_is_asked_for():
    store = MemoryStore()
    at_once: list[Root] = []
    mine = root_of(ActingStore(store, lambda: at_once.append(root_of(store)), key=ROOT_KEY))  # type: ignore[arg-type]
    assert [mine, mine] == [*at_once, root_of(store)]
    assert root_of(MemoryStore()).root_id != mine.root_id


def test_id_whose_answer_was_lost_is_found_again():
    store = MemoryStore()
    store.fail_at(2, lost_answer=True)
    with pytest.raises(StoreUnavailableError):
        root_of(store)
    assert root_of(store) == Root.from_bytes(store.read(ROOT_KEY))


def test_job_reads_the_identity_of_its_root_once():
    store = MemoryStore()
    board = JobBoard(store, "orders")
    first, store.calls = board.root, 0
    assert (board.root, store.calls) == (first, 0)


@pytest.fixture
def copied(tmp_path: Path) -> LocalStore:
    root_of(LocalStore(tmp_path / "root"))
    shutil.copytree(tmp_path / "root", tmp_path / "copy")
    return LocalStore(tmp_path / "copy")


def test_root_that_was_copied_by_hand_is_noticed_with_both_places_and_the_command(copied: LocalStore):
    with refuses(ROOT_COPIED, match=r"created at file:///.*/root") as caught:
        root_of(copied).require_at(copied.uri)
    assert f"adopt-root {copied.uri}" in caught.value.remedy


def test_moved_root_keeps_its_id_and_a_copy_that_is_used_beside_it_gets_its_own(
    copied: LocalStore, tmp_path: Path
):
    original = root_of(LocalStore(tmp_path / "root"))
    moved = adopt_root(copied, is_copy=False)
    assert (moved.root_id, root_of(copied)) == (original.root_id, moved)
    moved.require_at(copied.uri)
    own = adopt_root(copied, is_copy=True)
    assert own.root_id != original.root_id
    assert root_of(copied) == own
    assert root_of(LocalStore(tmp_path / "root")) == original


def test_damaged_id_and_one_of_a_newer_version_are_named():
    store = MemoryStore()
    store.write(ROOT_KEY, b'{"version": 99, "root_id": "x"}')
    with pytest.raises(ProtocolVersionError, match="99"):
        root_of(store)
    store.write(ROOT_KEY, b"{")
    with pytest.raises(MessageFormatError, match="A root of protocol version"):
        root_of(store)
