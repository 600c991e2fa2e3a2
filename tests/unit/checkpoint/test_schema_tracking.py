"""Delta's log of schemas: which entries belong to a cut, and how it follows a copy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_flinkstyle.checkpoint.errors import CHECKPOINT_UNSUPPORTED, LogFormatError
from airflow_flinkstyle.checkpoint.relocation import is_relocatable, relocate
from airflow_flinkstyle.checkpoint.schema_tracking import entries_up_to, is_entry, same_schema
from testbed.refusals import refuses

LOG = "sources/schema/_schema/_schema_log_t-1"
ENTRY = f"{LOG}/0"


def an_entry(version: int = 2, place: str | None = "file:/old/q/sources/0", **more: Any) -> bytes:
    fields = {"tableId": "t-1", "deltaCommitVersion": version, "dataSchemaJson": "{}", **more}
    if place is not None:
        fields["sourceMetadataPath"] = place
    return f"v1\n{json.dumps(fields, separators=(',', ':'))}".encode()


def an_offset(version: int, index: int = -1, table: str = "t-1") -> str:
    return json.dumps({"sourceVersion": 1, "reservoirId": table, "reservoirVersion": version, "index": index})


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("file:///new/q", "file:/new/q/sources/0"),
        ("s3://bucket/new/q", "s3a://bucket/new/q/sources/0"),
        ("hdfs://node:8020/new/q/", "hdfs://node:8020/new/q/sources/0"),
    ],
)
def test_entry_names_the_place_of_its_copy_and_nothing_else_changes(root: str, expected: str):
    assert is_relocatable(ENTRY)
    assert relocate(ENTRY, an_entry(), root) == an_entry(place=expected)
    assert same_schema(relocate(ENTRY, an_entry(), root), an_entry())
    assert relocate(ENTRY, an_entry(place=None), root) == an_entry(place=None)


def test_other_files_of_sources_are_no_entries():
    for path in ("sources/0/0", f"{LOG}/.0.crc", "state/0/0/1.zip", "sources/schema/x/0"):
        assert not is_entry(path)
        assert relocate(path, b"as it is", "file:///new") == b"as it is"


@pytest.mark.parametrize(
    ("version", "index", "kept"),
    [
        (3, -1, [0]),
        (5, -1, [0]),  # every file of version 4, and nothing of the change in version 5
        (5, -100, [0]),
        (5, -20, [0, 1]),
        (5, -19, [0, 1]),
        (5, 0, [0, 1]),
        (6, -1, [0, 1]),
        (9, -1, [0, 1, 2]),
    ],
)
def test_entries_behind_the_cut_are_left_out(version: int, index: int, kept: list[int]):
    """The query went on over a change of the schema while its savepoint was copied."""
    files = {f"{LOG}/0": an_entry(2), f"{LOG}/1": an_entry(5), f"{LOG}/2": an_entry(8), "sources/0/0": b"-"}
    found = entries_up_to(files, [an_offset(version, index)], files.__getitem__)
    assert found == {path: files[path] if int(path[-1]) in kept else None for path in files if is_entry(path)}


def test_first_entry_is_what_the_source_began_with():
    files = {f"{LOG}/0": an_entry(2)}
    for offsets in ([], ["-"], [an_offset(0, table="t-2")]):
        assert entries_up_to(files, offsets, files.__getitem__) == files


@pytest.mark.parametrize(
    "content",
    [b"", b"v1", b"v1\n[]", b"v1\n{}", b"v1\n{\"tableId\":\"t\",\"deltaCommitVersion\":\"2\"}", b"\xff",
     an_entry(place="file:/old/q")],
)  # fmt: skip
def test_malformed_entry_is_refused(content: bytes):
    with pytest.raises(LogFormatError):
        relocate(ENTRY, content, "file:///new")


def test_newer_version_of_the_log_is_refused_by_name():
    with refuses(CHECKPOINT_UNSUPPORTED, match="v2"):
        relocate(ENTRY, an_entry().replace(b"v1", b"v2", 1), "file:///new")


def test_other_schema_is_another():
    assert not same_schema(an_entry(), an_entry(dataSchemaJson='{"fields":[]}'))
