from __future__ import annotations

import json

import pytest

from airflow_flinkstyle.checkpoint.errors import (
    CHECKPOINT_UNSUPPORTED,
    LogFormatError,
    StateIncompleteError,
)
from airflow_flinkstyle.checkpoint.operator_metadata import (
    is_metadata,
    is_relocatable,
    metadata_paths,
    parse,
    relocate,
    renumbered,
)
from airflow_flinkstyle.checkpoint.state_store import state_closure
from airflow_flinkstyle.types import BatchId, StateVersion
from testbed.refusals import refuses

PATH = "state/0/_metadata/v2/3"
SCHEMA = "state/0/_stateSchema/default/0_x"


def metadata(*names: str, partitions: int = 1, version: str = "v2") -> bytes:
    store = {"storeName": "default", "numPartitions": partitions, "stateSchemaFilePaths": list(names)}
    fields = {"operatorInfo": {}, "stateStoreInfo": [store], "operatorPropertiesJson": '{"a":"b"}'}
    return f"{version}\n{json.dumps(fields, separators=(',', ':'))}".encode()


@pytest.mark.parametrize(
    ("old", "root", "new"),
    [
        ("file:/old", "file:///new/place", "file:/new/place"),
        ("file:/old", "s3://bucket/next", "s3a://bucket/next"),
        ("s3a://bucket/old", "s3://bucket/next", "s3a://bucket/next"),
        ("s3n://bucket/old", "s3://bucket/next", "s3n://bucket/next"),
        ("s3a://bucket/old", "file:///new", "file:/new"),
        ("file:/old", "hdfs://name:8020/next/", "hdfs://name:8020/next"),
        ("file:/state/0/_stateSchema/odd", "file:///new", "file:/new"),
        ("file:/\u00e4 b", "file:///c d/\u00fc", "file:/c d/\u00fc"),
    ],
)
def test_schema_paths_follow_the_checkpoint(old: str, root: str, new: str):
    moved = relocate(PATH, metadata(f"{old}/{SCHEMA}"), root)
    assert parse(PATH, moved.decode()).schemas == (SCHEMA,)
    assert json.loads(moved.partition(b"\n")[2])["stateStoreInfo"][0]["stateSchemaFilePaths"] == [
        f"{new}/{SCHEMA}"
    ]
    assert relocate(PATH, moved, root) == moved


def test_other_files_are_the_same_everywhere():
    for path in ("metadata", "state/0/0/1.zip", "state/0/_metadata/metadata", SCHEMA):
        assert not is_relocatable(path)
        assert relocate(path, b"v1\nanything", "file:///new") == b"v1\nanything"


def test_operator_with_another_number_names_its_own_schema_files():
    moved = renumbered(PATH, metadata(f"s3a://bucket/state/0/x/{SCHEMA}"), 3)
    found = json.loads(moved.partition(b"\n")[2])
    assert found["operatorInfo"]["operatorId"] == 3
    new = "state/3/_stateSchema/default/0_x"
    assert found["stateStoreInfo"][0]["stateSchemaFilePaths"] == [f"s3a://bucket/state/0/x/{new}"]
    assert parse("state/3/_metadata/v2/3", moved.decode()).schemas == (new,)
    assert is_metadata("state/3/_metadata/metadata")
    assert not is_metadata(new)


def test_metadata_in_force_is_the_newest_not_after_the_batch():
    paths = [f"state/0/_metadata/v2/{batch}" for batch in (0, 9, 10, 11)] + ["state/1/_metadata/metadata"]
    assert metadata_paths(paths, BatchId(10)) == ["state/0/_metadata/v2/10", "state/1/_metadata/metadata"]
    with pytest.raises(StateIncompleteError, match="batch 8"):
        metadata_paths(paths[1:], BatchId(8))


def test_closure_takes_only_the_metadata_in_force_and_the_schemas_it_names():
    files = {
        "state/0/0/4.changelog": b"",
        **{f"state/0/0/{version}.changelog": b"" for version in (1, 2, 3)},
        "state/0/_metadata/v2/0": metadata(f"file:/old/{SCHEMA}"),
        PATH: metadata(f"file:/old/{SCHEMA}"),
        "state/0/_metadata/v2/4": metadata(f"file:/old/{SCHEMA}", "file:/old/state/0/_stateSchema/default/4"),
        SCHEMA: b"",
        "state/0/_stateSchema/default/4": b"",
    }
    found = {
        file.path for file in state_closure(files, StateVersion(4), {}, files.__getitem__, partitions=None)
    }
    assert {path for path in found if "_" in path} == {PATH, SCHEMA}
    del files[SCHEMA]
    with pytest.raises(StateIncompleteError, match=f"found no {SCHEMA}"):
        state_closure(files, StateVersion(4), {}, files.__getitem__, partitions=None)


def test_store_that_the_metadata_counts_and_is_missing_is_named():
    files = {"state/0/0/1.zip": b"", "state/0/2/1.zip": b"", PATH: metadata(partitions=10**9)}
    with pytest.raises(StateIncompleteError, match="state/0/1"):
        state_closure(files, StateVersion(4), {}, files.__getitem__, partitions=None)


def test_newer_metadata_is_refused_by_name():
    with refuses(CHECKPOINT_UNSUPPORTED, match="v3 is newer than this package knows"):
        parse(PATH, metadata(version="v3").decode())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v2\n",
        "v2\n[]",
        "v2\n{}",
        'v2\n{"stateStoreInfo":[1]}',
        'v2\n{"stateStoreInfo":[{"storeName":"a"}]}',
        'v2\n{"stateStoreInfo":[{"storeName":"a","numPartitions":"x"}]}',
        'v2\n{"stateStoreInfo":[{"storeName":"a","numPartitions":1,"stateSchemaFilePaths":3}]}',
        "v2\n" + "[" * 100_000,
        metadata("file:/elsewhere/schema").decode(),
    ],
)
def test_malformed_metadata_is_refused(text: str):
    for call in (lambda: parse(PATH, text), lambda: relocate(PATH, text.encode(), "file:///new")):
        with pytest.raises(LogFormatError):
            call()


@pytest.mark.parametrize("field", ["stateSchemaFilePath", "newPaths"])
def test_field_that_names_files_and_is_not_known_is_refused_by_name(field: str):
    text = metadata(f"file:/old/{SCHEMA}").decode()
    other = text.replace(f'stateSchemaFilePaths":["file:/old/{SCHEMA}"]', f'{field}":"file:/old/{SCHEMA}"')
    assert other != text
    for call in (lambda: parse(PATH, other), lambda: relocate(PATH, other.encode(), "file:///new")):
        with refuses(CHECKPOINT_UNSUPPORTED, match=f"with the field {field},"):
            call()
