"""What stays and what goes, by hand."""

from __future__ import annotations

from typing import Any

Root = Any


def listed(root: Root) -> dict[str, Any]:
    return {found["savepoint_id"]: found for found in root.json("savepoint", "list")["savepoints"]}


def test_a_pin_and_its_reason_show_in_the_list_until_it_is_taken_back(root: Root):
    root.take("sp-1", "4.2.0/stateless")
    root.take("sp-2", "4.2.0/stateless", minute=1)
    root.run("savepoint", "pin", "sp-1", "--reason", "before the new year")
    found = listed(root)
    assert (found["sp-1"]["pinned"]["reason"], found["sp-2"]["pinned"]) == ("before the new year", None)
    assert "before the new year" in root.run("savepoint", "list").stdout
    root.run("savepoint", "unpin", "sp-1")
    assert listed(root)["sp-1"]["pinned"] is None


def test_what_does_not_exist_is_neither_pinned_nor_unpinned(root: Root):
    for command in (["pin", "sp-9", "--reason", "x"], ["unpin", "sp-9"]):
        assert root.run("savepoint", *command, code=1).stderr.startswith("SAVEPOINT_MISSING: ")


def test_a_verified_savepoint_is_listed_as_such_until_it_is_found_damaged(root: Root):
    manifest = root.take("sp-1", "4.2.0/stateless")
    assert listed(root)["sp-1"]["verified"] is None
    root.run("savepoint", "verify", "sp-1", "--full")
    assert listed(root)["sp-1"]["verified"]["level"] == "full"
    (root.folder / "root" / "orders" / "blobs" / manifest.queries[0].files[0].blob).unlink()
    root.run("savepoint", "verify", "sp-1", code=1)
    assert listed(root)["sp-1"]["verified"] is None
