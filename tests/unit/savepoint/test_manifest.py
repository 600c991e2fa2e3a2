from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.savepoint.ids import new_savepoint_id
from airflow_flinkstyle.savepoint.manifest_json import from_json, to_json, with_checksum
from tests.unit.savepoint.manifests import a_manifest

SINKS = ("queries", 0, "sinks")
FILES = ("queries", 0, "files")
LINEAGE = (*SINKS, "lineages", 0)
TABLE = ("queries", 0, "tables", "1")


def edited(*path: str | int, **changes: object) -> str:
    """Return a manifest's text in which fields of one object were set, or removed where None is given."""
    document = json.loads(to_json(a_manifest()))
    place = document
    for step in path:
        place = place[step]
    place.update(changes)
    return json.dumps(document)


def test_text_gives_the_same_manifest_back():
    assert from_json(to_json(a_manifest())) == a_manifest()


def test_equal_manifests_give_equal_text():
    query = a_manifest().queries[0]
    shuffled = replace(query.kafka["0"], offsets=Offsets.of({"orders": {2: 4, 10: 3, 0: 1050}}))  # type: ignore[dict-item]
    other = a_manifest(queries=(replace(query, kafka={"0": shuffled}),))
    assert to_json(other) == to_json(a_manifest())


def test_newer_format_is_refused_by_name():
    with pytest.raises(ManifestFormatError, match="format_version: expected one of 1, 2, found 3"):
        from_json(edited(format_version=3))


def test_every_flipped_bit_of_a_manifest_is_found():
    content = to_json(a_manifest()).encode()
    for position in range(len(content)):
        for bit in (1, 0x10):
            damaged = content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :]
            with pytest.raises(ManifestFormatError):
                from_json(damaged.decode("utf-8", "replace"))


def test_changed_value_that_could_be_one_is_refused_by_the_checksum():
    document = json.loads(to_json(a_manifest()))
    document["queries"][0]["planned_offsets"] = "v1\n{}\n{}"
    text = json.dumps(document)
    with pytest.raises(ManifestFormatError, match="checksum"):
        from_json(text)
    assert from_json(with_checksum(text)).queries[0].planned_offsets == "v1\n{}\n{}"


BAD_PATHS = [
    "",
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a\b",
    "a//b",
    "a/",
    "state/.",
    "a\nb",
    "\udc80",
    "x" * 901,
]


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize("field", ["path", "blob"])
def test_hostile_paths_are_refused_and_not_rendered(field: str, path: str):
    columns = {"path": ["x", path]} if field == "path" else {"blob": {"0": path, "1": "ab"}}
    with pytest.raises(ManifestFormatError, match=rf"files.* ({field}|size_bytes)\b.*: expected"):
        from_json(with_checksum(edited(*FILES, **columns)))
    (query,) = a_manifest().queries
    entry = replace(query.files[0], **{field: path})
    for files in ((entry,), (query.files[1], entry)):
        with pytest.raises(ManifestFormatError, match=f"files of query totals, {field}"):
            to_json(a_manifest(queries=(replace(query, files=files),)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("path", "metadata"),
        ("size_bytes", -1),
        ("size_bytes", True),
        ("digest", "sha256:xyz"),
        ("digest", "x"),
    ],
)
def test_what_could_not_be_read_back_is_not_rendered(field: str, value: object):
    (query,) = a_manifest().queries
    files = (replace(query.files[0], **{field: value}), query.files[1])  # type: ignore[arg-type]
    with pytest.raises(ManifestFormatError, match="files of query totals"):
        to_json(a_manifest(queries=(replace(query, files=files),)))


def test_files_of_every_kind_come_back_in_their_order():
    entry, *_ = a_manifest().queries[0].files
    sha256 = [f"{number:064x}" for number in range(3)]
    files = (
        replace(entry, path="commits/5", blob=sha256[0], digest=f"sha256:{sha256[0]}"),
        replace(entry, path="metadata", blob=f"{sha256[1]}.1", digest=f"sha256:{sha256[1]}"),
        replace(entry, path="state/0/0/1.zip", blob="origin/q/1.zip-7", digest="etag:" + "ab" * 16),
        replace(entry, path="state/0/0/SSTs/1.sst", blob="origin/q/1.sst-3", digest=None),
        replace(entry, path="state/0/1/1.zip", blob=sha256[2], digest=f"sha256:{sha256[2]}", size_bytes=0),
        replace(entry, path="topmost", blob="origin/q/t", digest=f"sha256:{sha256[2]}"),
    )
    (query,) = a_manifest().queries
    manifest = a_manifest(queries=(replace(query, files=files), replace(query, name="without", files=())))
    text = to_json(manifest)
    assert from_json(text) == manifest
    columns = json.loads(text)["queries"][0]["files"]
    assert columns["path"] == [
        *("commits/", "5", "/", "metadata", "state/0/0/", "1.zip", "state/0/0/SSTs/", "1.sst"),
        *("state/0/1/", "1.zip", "/", "topmost"),
    ]
    assert columns["digest"] == {"2": "etag:" + "ab" * 16, "3": None}
    assert sorted(columns["blob"]) == ["1", "2", "3", "5"]


@pytest.mark.parametrize(
    "changes",
    [
        {"path": ["offsets/", "5"]},
        {"path": ["offsets/", "5", "5"]},
        {"path": ["offsets/", "5", "/", "metadata", "more", "most"]},
        {"path": ["offsets/", "5", "/", "offsets/5"]},
        {"path": ["offsets/", "5", "/", 1]},
        {"path": {}},
        {"size_bytes": [3]},
        {"size_bytes": [3, "3"]},
        {"size_bytes": [3, True]},
        {"size_bytes": [3, -1]},
        {"sha256": ""},
        {"sha256": "x"},
        {"sha256": "ü"},
        {"sha256": "AAAA"},
        {"digest": {}},
        {"digest": {"1": None, "2": None}},
        {"digest": {"01": None}},
        {"digest": {"1": "abc"}},
        {"blob": {}},
        {"blob": {"1": "ab", "2": "ab"}},
        {"blob": {"1": 1}},
        {"surprise": 1},
        {"packs": []},
        {"packs": [["packs/x", 6]]},
        {"packs": [["packs/x", -1]]},
        {"packs": [["../x", 20]]},
        {"packs": [["packs/x", 20, 1]]},
        {"packs": [["packs/x", 20], ["packs/x", 21]]},
        {"packed": [2, 1, 0]},
        {"packed": [2, 1, 0, "4"]},
        {"packed": [2, 1, 0, -4]},
        {"packed": [2, 1, 1, 4]},
        {"packed": [2, 2, 0, 4]},
        {"packed": [2, 0, 0, 4]},
        {"packed": [1, 2, 0, 4]},
        {"packed": [2, 1, 0, 4, 0, 1, 0, 4]},
        {"packed": [2, 1, 0, 18]},
    ],
    ids=str,
)
def test_columns_that_are_not_of_the_same_files_are_refused(changes: dict[str, object]):
    with pytest.raises(ManifestFormatError, match="files of query totals"):
        from_json(with_checksum(edited(*FILES, **changes)))


@pytest.mark.parametrize(
    "path", [(), ("queries", 0), FILES, ("queries", 0, "kafka", "0"), TABLE, SINKS, LINEAGE]
)
def test_unknown_fields_are_refused(path: tuple[str | int, ...]):
    with pytest.raises(ManifestFormatError, match=r"no further fields, found \['surprise'\]"):
        from_json(edited(*path, surprise=1))


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ((), {"job": "../other"}),
        ((), {"savepoint_id": "a/b"}),
        ((), {"parent": ".."}),
        ((), {"alignment": "maybe"}),
        ((), {"taken_at_ms": "now"}),
        ((), {"queries": {}}),
        (("queries", 0), {"batch_id": -1}),
        (("queries", 0), {"batch_id": True}),
        (("queries", 0), {"sinks": []}),
        (("queries", 0), {"tables": None}),
        (("queries", 0), {"sink_table": {}}),
        (TABLE, {"format": "hudi"}),
        (TABLE, {"table_id": ""}),
        (TABLE, {"version": -1}),
        (TABLE, {"files_read": "2"}),
        (("queries", 0, "sinks"), {"begins": None}),
        (("queries", 0, "sinks"), {"under_way": 1}),
        (("queries", 0, "sinks", "lineages", 0), {"lineage": ""}),
        (("queries", 0, "sinks", "lineages", 0), {"shards": 0}),
        (("queries", 0, "sinks", "lineages", 0), {"shards": -1}),
        (("queries", 0, "sinks", "lineages", 0), {"completed_batch": -2}),
        (("queries", 0, "sinks", "lineages", 0), {"markers": {"x": 1}}),
        (("queries", 0), {"pinned_confs": {"a": 1}}),
        (("queries", 0, "kafka", "0"), {"offsets": {"orders": {"0": -2}}}),
        (("queries", 0, "kafka", "0"), {"offsets": {"orders": {"x": 2}}}),
        (("queries", 0, "kafka", "0"), {"log_range": {"orders": {"0": [1]}}}),
    ],
)
def test_malformed_values_are_refused(path: tuple[str | int, ...], changes: dict[str, object]):
    with pytest.raises(ManifestFormatError, match="Savepoint manifest"):
        from_json(edited(*path, **changes))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}"])
def test_other_texts_are_refused(text: str):
    with pytest.raises(ManifestFormatError):
        from_json(text)


def test_missing_field_is_named():
    document = json.loads(to_json(a_manifest()))
    del document["queries"][0]["query_id"]
    with pytest.raises(ManifestFormatError, match="'query_id'"):
        from_json(json.dumps(document))


def test_repeated_request_gives_the_same_id_and_another_one_another():
    assert new_savepoint_id("orders", "r-1") == new_savepoint_id("orders", "r-1")
    assert len({new_savepoint_id(j, r) for j in ("a", "b") for r in ("r-1", "r-2")}) == 4
    assert new_savepoint_id("orders", "r/1 ü").startswith("sp-")
