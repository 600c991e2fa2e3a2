"""``flinkstyle store check`` and ``adopt-root``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.protocol.board import root_of
from airflow_flinkstyle.storage.contract import GUARANTEES
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.versions import Versioning

if TYPE_CHECKING:
    import pytest

Root = Any


def test_a_local_folder_may_hold_savepoints_and_is_left_as_it_was(root: Root):
    found = root.json("store", "check", root.uri)
    assert found["findings"] == []
    assert found["guarantees"] == [guarantee.name for guarantee in GUARANTEES]
    assert [path for path in (root.folder / "root").rglob("*") if path.is_file()] == []


def test_a_store_that_breaks_a_guarantee_ends_with_3_and_says_what_to_do(
    root: Root, monkeypatch: pytest.MonkeyPatch
):
    # A file system whose link() replaces the target, as some network mounts did: two creators win.
    monkeypatch.setattr(os, "link", os.replace)
    result = root.run("store", "check", root.uri, code=3)
    assert "create of what is not there: " in result.stdout
    assert "Two drivers could both believe" in result.stdout


def test_a_bucket_that_keeps_every_version_for_ever_is_warned_of(root: Root, monkeypatch: pytest.MonkeyPatch):
    days: list[int | None] = [None, 7]

    def versioning(_: LocalStore) -> Versioning:
        return Versioning(expire_days=days.pop(0))

    monkeypatch.setattr(LocalStore, "versioning", versioning, raising=False)
    (warning,) = root.json("store", "check", root.uri)["warnings"]
    assert "no lifecycle rule is seen" in warning
    assert "Add a lifecycle rule" in warning
    assert root.json("store", "check", root.uri)["warnings"] == []


def test_a_location_of_another_kind_is_refused(root: Root):
    assert root.run("store", "check", "ftp://x", code=1).stderr.startswith("BAD_INPUT: ")


def test_copy_of_a_root_is_adopted_after_a_question_and_gets_an_id_of_its_own(root: Root):
    store = LocalStore(root.folder / "root")
    first = root_of(store)
    assert "Nothing was done" in root.run("store", "adopt-root", root.uri, "--copy", code=130).stderr
    assert root_of(store) == first
    assert root.json("store", "adopt-root", root.uri, "--yes") == {"uri": store.uri, "root_id": first.root_id}
    own = root.json("store", "adopt-root", root.uri, "--copy", "--yes")
    assert own["root_id"] == root_of(store).root_id != first.root_id


def test_usage_says_what_is_kept_how_much_and_why(root: Root):
    for number in (1, 2):
        root.take(f"sp-{number}", "4.2.0/rocksdb", minute=number)
    root.run("savepoint", "pin", "sp-1", "--reason", "before the new year")
    found = root.json("store", "usage")
    kept = {one["savepoint_id"]: one for one in found["savepoints"]}
    assert kept["sp-1"]["reason"].endswith("before the new year")
    assert kept["sp-2"]["reason"] == "the newest complete one"
    assert kept["sp-1"]["own_bytes"] <= kept["sp-1"]["size_bytes"]
    assert [(one["holder"], one["has_ended"]) for one in found["references"]] == [("pin", False)]
    assert found["blob_bytes"] == found["total_bytes"] == sum(root.repository.blob_sizes().values())
    text = root.run("store", "usage").stdout
    assert "before the new year" in text
    assert "of which no savepoint needs 0 bytes" in text
