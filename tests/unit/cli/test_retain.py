"""What stays and what goes, by hand."""

from __future__ import annotations

import re
from typing import Any

from airflow_flinkstyle.savepoint.blobs.references import Reference, references, write_reference
from airflow_flinkstyle.types import Generation

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
    assert listed(root)["sp-1"]["damaged"]["level"] == "quick"
    assert re.search(r"damaged at 20\d\d-.*: .* is missing", root.run("savepoint", "list").stdout)


def ids(root: Root) -> list[str]:
    return [*listed(root)]


def blobs(root: Root) -> set[str]:
    return set(root.repository.blob_sizes())


def three_savepoints(root: Root) -> None:
    for number, golden in enumerate(("3.5.9/rocksdb", "4.0.5/rocksdb", "4.2.0/rocksdb"), start=1):
        root.take(f"sp-{number}", golden, minute=number)


def test_prune_only_says_what_it_would_do_when_told_so(root: Root):
    three_savepoints(root)
    before = blobs(root)
    found = root.json("savepoint", "prune", "--max-count", "1", "--dry-run", code=3)
    assert [d["decision"] for d in found["decisions"]] == ["keep", "dispose", "dispose"]
    assert all(d["reason"] for d in found["decisions"])
    assert found["freed_blobs"] > 0
    assert (ids(root), blobs(root)) == (["sp-3", "sp-2", "sp-1"], before)
    assert not root.json("savepoint", "prune", "--dry-run")["freed_blobs"]


def test_prune_shows_the_plan_and_asks_before_it_deletes(root: Root):
    three_savepoints(root)
    refused = root.run("savepoint", "prune", "--max-count", "1", code=130, answer="n\n")
    assert re.search("^sp-1 +dispose +[0-9]+ newer", refused.stderr, re.MULTILINE)
    assert ids(root) == ["sp-3", "sp-2", "sp-1"]
    root.run("savepoint", "prune", "--max-count", "1", answer="y\n")
    assert ids(root) == ["sp-3"]
    assert blobs(root) == set(root.repository.read("sp-3").blobs)


def test_prune_keeps_what_is_pinned(root: Root):
    three_savepoints(root)
    root.run("savepoint", "pin", "sp-1", "--reason", "before the upgrade")
    root.run("savepoint", "prune", "--max-count", "1", "--yes")
    assert ids(root) == ["sp-3", "sp-1"]
    root.run("savepoint", "verify", "sp-1", "--full")


def test_dispose_asks_and_frees_only_what_no_other_savepoint_needs(root: Root):
    three_savepoints(root)
    root.run("savepoint", "dispose", "sp-1", code=130, answer="n\n")
    assert ids(root) == ["sp-3", "sp-2", "sp-1"]
    done = root.json("savepoint", "dispose", "sp-1", "--yes")
    assert done["freed_blobs"] > 0
    assert ids(root) == ["sp-3", "sp-2"]
    for savepoint_id in ids(root):
        root.run("savepoint", "verify", savepoint_id, "--full")


def test_dispose_of_a_protected_savepoint_needs_the_protections_name(root: Root):
    root.take("sp-1", "4.2.0/stateless")
    refused = root.run("savepoint", "dispose", "sp-1", "--yes", code=1)
    assert refused.stderr.startswith("SAVEPOINT_PROTECTED: ")
    assert "with --despite last_good." in refused.stderr
    root.run("savepoint", "dispose", "sp-1", "--yes", "--despite", "anything", code=2)
    root.run("savepoint", "dispose", "sp-1", "--yes", "--despite", "last_good")
    assert ids(root) == []


def test_a_policy_that_would_keep_nothing_is_refused(root: Root):
    three_savepoints(root)
    assert root.run("savepoint", "prune", "--max-count", "0", code=1).stderr.startswith("BAD_INPUT: ")
    assert len(ids(root)) == 3


def test_job_whose_last_savepoint_is_gone_is_known_and_has_an_empty_list(root: Root):
    root.take("sp-1", "4.2.0/stateless")
    root.run("savepoint", "dispose", "sp-1", "--yes", "--despite", "last_good")
    assert listed(root) == {}


def test_a_holder_that_nobody_continues_is_released_by_name(root: Root):
    root.take("sp-1", "4.2.0/stateless")
    held = Reference(
        need="start", by="a DAG that is gone", reason="it starts", at_ms=1, generation=Generation(7)
    )
    write_reference(root.repository, "sp-1", "generation-000007", held)
    wrong = root.run("savepoint", "release", "sp-1", "--holder", "generation-1", "--yes", code=1)
    assert wrong.stderr.startswith("REFERENCE_MISSING: ")
    assert "generation-000007" in wrong.stderr
    found = root.json("savepoint", "release", "sp-1", "--holder", "generation-000007", "--yes")
    assert found["by"] == "a DAG that is gone"
    assert references(root.repository) == {}
