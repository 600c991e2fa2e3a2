"""``flinkstyle savepoint``, on savepoints of real checkpoints in a local root."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import Parent, Turn
from airflow_flinkstyle.protocol.places import own_place
from airflow_flinkstyle.savepoint.blobs.references import references
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import Generation
from tests import hostile
from tests.unit.agent.conftest import G1, a_claim

if TYPE_CHECKING:
    from pathlib import Path

Root = Any


def first_blob(root: Root, savepoint_id: str) -> Path:
    manifest = root.repository.read(savepoint_id)
    blob = next(entry.blob for entry in manifest.queries[0].files if entry.path.endswith(".zip"))
    return root.folder / "root" / root.job / "blobs" / blob


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_list_shows_the_newest_first_and_no_more_than_asked(root: Root):
    for number in range(3):
        root.take(f"sp-{number}", "4.2.0/rocksdb", minute=number)
    ids = [found["savepoint_id"] for found in root.json("savepoint", "list")["savepoints"]]
    assert ids == ["sp-2", "sp-1", "sp-0"]
    text = root.run("savepoint", "list", "--limit", "1").stdout
    assert "sp-2" in text
    assert "sp-1" not in text
    assert "totals@4" in text


def test_what_a_fork_has_left_is_listed_behind_the_others_with_the_start_that_left_it(root: Root):
    for number in range(2):
        root.take(f"sp-{number}", "4.2.0/rocksdb", minute=number)
    kept = root.repository.read("sp-0").batches_run
    root.seem_running(state="closed")
    later = root.repository.read("sp-1")
    root.repository.publish(replace(later, savepoint_id="sp-2", batches_run=kept + 1))
    parent = Parent(generation=Generation(1), batches_run=kept, savepoint_id="sp-1")
    root.seem_running(
        generation=2, turns=(Turn(generation=Generation(2), parent=parent, rewind="fork"),), state="closed"
    )
    listed = root.json("savepoint", "list")["savepoints"]
    assert [(one["savepoint_id"], one["beside"]) for one in listed] == [
        ("sp-1", None),
        ("sp-0", None),
        ("sp-2", "abandoned: generation 2 started from savepoint sp-1 (fork)"),
    ]
    assert "abandoned" in root.run("savepoint", "list").stdout


def test_a_job_without_savepoints_has_an_empty_list(root: Root):
    root.seem_closed("4.2.0/rocksdb")
    assert root.json("savepoint", "list") == {"job": "orders", "savepoints": [], "damaged": []}


def test_manifest_that_cannot_be_read_is_listed_as_damaged_beside_the_others(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    bad = root.folder / "root" / "orders" / "savepoints" / "sp-2.json"
    bad.write_bytes(b"{")
    listed = root.json("savepoint", "list")
    assert [found["savepoint_id"] for found in listed["savepoints"]] == ["sp-1"]
    (damaged,) = listed["damaged"]
    assert damaged["savepoint_id"] == "sp-2"
    assert str(bad) in damaged["problem"]
    assert "put it back from a copy" in damaged["remedy"]
    answer = root.run("savepoint", "list")
    assert "sp-2       damaged" in answer.stdout
    assert "put it back from a copy" in answer.stderr


def test_show_as_json_is_the_manifest_that_is_stored(root: Root):
    root.take("sp-1", "4.2.0/join")
    stored = root.folder / "root" / "orders" / "savepoints" / "sp-1.json"
    assert root.json("savepoint", "show", "sp-1") == json.loads(stored.read_bytes())


def test_show_lists_files_only_when_asked(root: Root):
    manifest = root.take("sp-1", "4.2.0/rocksdb")
    paths = [entry.path for entry in manifest.queries[0].files]
    brief = root.run("savepoint", "show", "sp-1").stdout
    assert "spark.sql.shuffle.partitions=2" in brief
    assert not [path for path in paths if path in brief]
    whole = root.run("savepoint", "show", "sp-1", "--files").stdout
    assert [path for path in paths if path not in whole] == []


def test_diff_tells_shared_files_and_changed_settings(root: Root):
    root.take("sp-1", "3.5.9/rocksdb")
    root.take("sp-2", "4.2.0/rocksdb", minute=1)
    found = root.json("savepoint", "diff", "sp-1", "sp-2")
    assert found["seconds_between"] == 60.0
    (query,) = found["queries"]
    assert not query["same_query_id"]
    assert query["confs"]["spark.sql.streaming.stateStore.encodingFormat"] == [None, "unsaferow"]
    before, after = root.repository.read("sp-1"), root.repository.read("sp-2")
    files = query["files"]
    assert files["shared"]["files"] + files["added"]["files"] == len(after.queries[0].files)
    assert files["shared"]["files"] + files["removed"]["files"] == len(before.queries[0].files)
    assert "Spark 3.5.9 -> 4.2.0" in root.run("savepoint", "diff", "sp-1", "sp-2").stdout


def test_diff_with_itself_finds_nothing(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    (query,) = root.json("savepoint", "diff", "sp-1", "sp-1")["queries"]
    assert query["confs"] == query["clusters"] == {}
    assert query["files"]["added"]["files"] == query["files"]["removed"]["files"] == 0


@pytest.mark.parametrize("level", [[], ["--full"]])
def test_verify_says_what_it_looked_at(root: Root, level: list[str]):
    root.take("sp-1", "4.2.0/rocksdb")
    found = root.json("savepoint", "verify", "sp-1", *level)
    assert found["level"] == ("full" if level else "quick")
    assert found["files"] == len(root.repository.read("sp-1").queries[0].files)


def test_verify_of_a_damaged_savepoint_ends_with_1_and_names_the_file(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    blob = first_blob(root, "sp-1")
    content = blob.read_bytes()
    blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    result = root.run("savepoint", "verify", "sp-1", "--full", code=1)
    problem, left, remedy = result.stderr.splitlines()
    assert problem.startswith("SAVEPOINT_DAMAGED: ")
    assert "state/0/_metadata/metadata was altered" in problem
    assert left
    assert remedy
    assert result.stdout == ""


def test_restore_writes_the_checkpoint_and_does_it_again_without_writing(root: Root):
    manifest = root.take("sp-1", "4.2.0/rocksdb")
    target = root.folder / "new"
    (done,) = root.json("savepoint", "restore", "sp-1", "--to", str(target))["queries"]
    assert done["location"] == str(target / "totals")
    written = contents(target / "totals")
    assert sorted(written) == [entry.path for entry in manifest.queries[0].files]
    (again,) = root.json("savepoint", "restore", "sp-1", "--to", str(target))["queries"]
    assert (again["files_written"], again["files_kept"]) == (0, len(written))
    assert contents(target / "totals") == written


def test_planned_batch_is_restored_unless_somebody_drops_it_by_name(root: Root):
    query = root.take("sp-1", "4.2.0/rocksdb").queries[0]
    log = root.repository.read_file(query.file(f"offsets/{query.batch_id}")).decode()
    saved = root.repository.read("sp-1")
    root.repository.publish(
        replace(saved, savepoint_id="sp-2", queries=(replace(query, planned_offsets=log),))
    )
    planned = f"totals/offsets/{query.batch_id + 1}"
    for name, dropped in (("as-it-was", ()), ("without", ("--drop-planned",))):
        root.run("savepoint", "restore", "sp-2", "--to", str(root.folder / name), *dropped)
        assert (planned in contents(root.folder / name)) == (not dropped)


def test_restore_over_another_query_is_refused_and_leaves_it(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    root.take("sp-2", "4.2.0/hdfs")
    target = root.folder / "new"
    root.run("savepoint", "restore", "sp-1", "--to", str(target))
    before = contents(target)
    result = root.run("savepoint", "restore", "sp-2", "--to", str(target), code=1)
    assert result.stderr.startswith("TARGET_OCCUPIED: ")
    assert contents(target) == before


def test_restore_to_a_place_that_a_job_owns_is_refused(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    board = JobBoard(root.repository.store, "orders")
    board.create_claim(G1, a_claim())
    own_place(LocalStore(root.folder / "live"), board, G1)
    before = contents(root.folder / "live")
    result = root.run("savepoint", "restore", "sp-1", "--to", str(root.folder / "live"), code=1)
    assert result.stderr.startswith("PLACE_OCCUPIED: ")
    assert contents(root.folder / "live") == before


def test_a_hostile_query_name_cannot_leave_the_location(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    hostile.plant_manifest(root.repository, "sp-1", name="../outside")
    before = contents(root.folder)
    result = root.run("savepoint", "restore", "sp-1", "--to", str(root.folder / "new"), code=1)
    assert result.stderr.startswith("MANIFEST_FORMAT: ")
    assert contents(root.folder) == before


def test_a_claimed_savepoint_is_marked_as_owned(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    root.run("savepoint", "restore", "sp-1", "--to", str(root.folder / "a"))
    assert references(root.repository) == {}
    root.run("savepoint", "restore", "sp-1", "--to", str(root.folder / "b"), "--claim")
    assert str(root.folder / "b") in next(iter(references(root.repository)["sp-1"].values())).by


@pytest.mark.parametrize("name", ["folder", "file.tar"])
def test_a_savepoint_moves_to_another_root_and_job(root: Root, name: str):
    manifest = root.take("sp-1", "4.2.0/rocksdb")
    place = str(root.folder / name)
    exported = root.json("savepoint", "export", "sp-1", "--to", place)
    assert exported["files_written"] == len(manifest.contents)
    other = type(root)(root.folder / "other", job="sums")
    refused = other.run("savepoint", "import", place, code=1)
    assert "say --from-job orders." in refused.stderr
    assert not list(other.repository.ids())
    imported = other.json("savepoint", "import", place, "--from-job", "orders")
    assert (imported["savepoint_id"], imported["job"]) == ("sp-1", "sums")
    other.run("savepoint", "verify", "sp-1", "--full")
    for one, target in ((root, "a"), (other, "b")):
        one.run("savepoint", "restore", "sp-1", "--to", str(root.folder / target))
    assert contents(root.folder / "a") == contents(root.folder / "b")


def test_an_error_as_json_stands_on_standard_error(root: Root):
    result = root.run("savepoint", "show", "sp-9", "--json", code=1)
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error.pop("code") == "SAVEPOINT_MISSING"
    assert sorted(error) == ["problem", "remedy", "retryable", "state_after"]


@pytest.mark.parametrize(
    "args", [["savepoint", "show"], ["savepoint", "nope"], ["savepoint", "list", "--nope"], ["nope"]]
)
def test_a_command_line_that_is_not_understood_ends_with_2(root: Root, args: list[str]):
    root.run(*args, code=2)


def test_take_of_a_job_that_never_ran_is_refused(root: Root):
    result = root.run("savepoint", "take", code=1)
    assert result.stderr.startswith("JOB_UNKNOWN: ")


def test_take_of_a_stopped_job_is_made_here_and_found_again_by_its_key(root: Root):
    root.seem_closed("4.2.0/rocksdb")
    taken = root.json("savepoint", "take", "--key", "tonight")
    assert taken["batches"] == {"totals": 4}
    root.run("savepoint", "verify", taken["savepoint_id"], "--full")
    assert root.json("job", "status")["status"] == "closed"
    again = root.json("savepoint", "take", "--key", "tonight")
    assert again == taken
    assert root.json("savepoint", "take")["savepoint_id"] != taken["savepoint_id"]


def test_an_aligned_savepoint_of_a_stopped_job_is_refused(root: Root):
    root.seem_closed("4.2.0/rocksdb")
    refused = root.run("savepoint", "take", "--alignment", "aligned", code=1)
    assert refused.stderr.startswith("JOB_NOT_RUNNING: ")
    assert root.json("savepoint", "list")["savepoints"] == []
