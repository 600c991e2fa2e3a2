from __future__ import annotations

import io
import json
import zipfile

import pytest

from airflow_flinkstyle.checkpoint.errors import (
    CHECKPOINT_UNSUPPORTED,
    CheckpointError,
    LogFormatError,
    StateIncompleteError,
)
from airflow_flinkstyle.checkpoint.state_store import refuse_unsupported, state_closure
from airflow_flinkstyle.checkpoint.stores_in_use import shuffle_partitions
from airflow_flinkstyle.types import StateVersion
from testbed.refusals import refuses

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
UUID = "08bf3a48-c489-4a5c-8d3c-39c12956a7ae"


def a_zip(*ssts: str, first_line: str = "v1") -> bytes:
    content = io.BytesIO()
    files = [{"localFileName": f"{n}.sst", "dfsSstFileName": n, "sizeBytes": 1} for n in ssts]
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("metadata", f"{first_line}\n" + json.dumps({"sstFiles": files, "numKeys": 2}))
    return content.getvalue()


def closure(version: int, *paths: str, **contents: bytes) -> list[str]:
    files = dict.fromkeys(paths, b"") | {f"state/0/0/{k.strip('_')}.zip": v for k, v in contents.items()}
    return [
        file.path
        for file in state_closure(files, StateVersion(version), {}, files.__getitem__, partitions=None)
    ]


def hdfs(*names: str) -> list[str]:
    return [f"state/0/0/{name}" for name in names]


def test_stateless_query_needs_no_state():
    assert closure(5) == []
    assert closure(5, "offsets/4", "metadata") == []


def test_hdfs_without_snapshot_needs_all_deltas_from_the_first():
    assert closure(2, *hdfs("1.delta", "2.delta", "3.delta")) == hdfs("1.delta", "2.delta")


def test_hdfs_takes_the_newest_snapshot_not_after_the_version():
    names = hdfs("1.delta", "2.delta", "2.snapshot", "3.delta", "4.delta", "5.delta", "5.snapshot")
    assert closure(4, *names) == hdfs("2.snapshot", "3.delta", "4.delta")
    assert closure(5, *names) == hdfs("5.snapshot")


def test_versions_are_compared_as_numbers():
    names = hdfs("9.snapshot", "10.delta", "11.delta", "100.snapshot")
    assert closure(11, *names) == hdfs("9.snapshot", "10.delta", "11.delta")


@pytest.mark.parametrize("missing", ["2.snapshot", "3.delta", "4.delta"])
def test_missing_hdfs_file_is_named(missing: str):
    names = [name for name in ("2.snapshot", "3.delta", "4.delta") if name != missing]
    with pytest.raises(StateIncompleteError, match=r"state/0/0.*version 4.*found no \d\.delta"):
        closure(4, *hdfs(*names))


def test_rocksdb_zip_comes_before_the_ssts_it_names():
    sst, other = f"000008-{UUID}.sst", f"000009-{UUID}.sst"
    found = closure(3, *hdfs(f"SSTs/{sst}", f"SSTs/{other}"), _2=a_zip(other), _3=a_zip(sst))
    assert found == hdfs("3.zip", f"SSTs/{sst}")


def test_rocksdb_version_is_not_replaced_by_an_older_one():
    with pytest.raises(StateIncompleteError, match=r"3\.changelog"):
        closure(3, _2=a_zip())


def test_changelogs_lead_from_the_newest_zip_to_the_version():
    names = hdfs("1.changelog", "2.changelog", "3.changelog", "4.changelog", "5.changelog")
    assert closure(4, *names, _2=a_zip(), _5=a_zip()) == hdfs("2.zip", "3.changelog", "4.changelog")
    assert closure(2, *names[:2]) == names[:2]


def test_missing_sst_is_named():
    sst = f"000008-{UUID}.sst"
    with pytest.raises(StateIncompleteError, match=sst):
        closure(3, _3=a_zip(sst))


@pytest.mark.parametrize("content", [b"", b"no zip", a_zip()[:40]], ids=["empty", "text", "cut"])
def test_broken_zip_is_refused(content: bytes):
    with pytest.raises(LogFormatError, match="state/0/0"):
        closure(3, _3=content)


def test_newer_file_list_is_refused():
    with refuses(CHECKPOINT_UNSUPPORTED, match=r"file list .* v2 is newer than this"):
        closure(3, _3=a_zip(first_line="v2"))


def test_visible_checksums_go_along_and_hidden_files_do_not():
    names = hdfs("1.delta", "1.delta.crc", ".1.delta.crc", "2.delta", "2.delta.crc", ".3.delta.x.tmp")
    assert set(closure(1, *names)) == set(hdfs("1.delta", "1.delta.crc"))


def test_every_store_of_every_partition_is_followed():
    names = [f"state/{op}/{part}/left/1.delta" for op in (0, 1) for part in (0, 1)]
    assert sorted(closure(1, *names)) == sorted(names)


def test_schema_folders_are_no_stores():
    names = ["state/0/0/_metadata/schema", "state/0/0/1.delta"]
    assert sorted(closure(1, *names)) == sorted(names)


def stores(*partitions: int, recorded: int = 2, inner: str = "default") -> dict[str, bytes]:
    """Files of one operator's partitions at version 1, and what Spark recorded of them."""
    metadata = {"stateStoreInfo": [{"storeName": inner, "numPartitions": recorded}]}
    folder = "" if inner == "default" else f"/{inner}"
    files = {f"state/0/{partition}{folder}/1.delta": b"" for partition in partitions}
    return files | {"state/0/_metadata/metadata": b"v1\n" + json.dumps(metadata).encode()}


def found_in(files: dict[str, bytes], pinned: int | None) -> set[str]:
    closure = state_closure(files, StateVersion(1), {}, files.__getitem__, partitions=pinned)
    return {file.path for file in closure}


def test_partition_that_is_missing_is_named():
    for pinned in (3, None):
        with pytest.raises(StateIncompleteError, match="state/0/1"):
            found_in(stores(0, 2, recorded=3), pinned)


def test_store_that_spark_recorded_and_is_missing_in_a_partition_is_named():
    files = stores(0, 1, inner="left")
    assert found_in(files, 2) == files.keys()
    files["state/0/1/right/1.delta"] = files.pop("state/0/1/left/1.delta")
    with pytest.raises(StateIncompleteError, match="state/0/1/left"):
        found_in(files, 2)


def test_operator_without_any_store_is_named():
    with pytest.raises(StateIncompleteError, match="state/0/0"):
        found_in(stores(), 2)


def test_operator_without_keys_has_one_partition_whatever_is_recorded():
    files = stores(0, recorded=200)
    assert found_in(files, 200) == files.keys()


def a_schema(*fields: str) -> str:
    """The file that Spark writes: of the key's fields, then the value's."""
    value = '{"type":"struct","fields":[{"name":"count","type":"long"}]}'
    return f'\0\2v2\0\0{{"type":"struct","fields":[{",".join(fields)}]}}\0\1{value}'


KEY, SESSION = '{"name":"k","type":"integer"}', '{"name":"sessionStartTime","type":"timestamp"}'


@pytest.mark.parametrize("schema", [a_schema(KEY), a_schema(KEY, SESSION)])
def test_schema_of_the_keys_tells_that_partitions_were_lost(schema: str):
    with pytest.raises(StateIncompleteError, match="state/0/1"):
        found_in(stores(0) | {"state/0/0/_metadata/schema": schema.encode()}, 2)


@pytest.mark.parametrize(
    "schema",
    [a_schema(), a_schema(SESSION), a_schema('{"name":"key","type":"void"}'), a_schema(KEY)[:60], ""],
)
def test_partition_0_is_all_there_is_where_no_schema_names_keys(schema: str):
    files = stores(0) | {"state/0/0/_metadata/schema": schema.encode()}
    assert found_in(files, 2) == files.keys()


def test_repartition_to_more_is_followed_though_the_metadata_is_not_corrected():
    files = stores(0, 1, 2, 3, recorded=2)
    assert found_in(files, 4) == files.keys()


def test_partitions_left_behind_by_a_repartition_to_fewer_are_left_out():
    files = stores(0, 1, 2, recorded=3)
    assert found_in(files, 2) == files.keys() - {"state/0/2/1.delta"}


def test_number_of_partitions_that_is_none_is_refused():
    assert shuffle_partitions({}) is None
    assert shuffle_partitions({"spark.sql.shuffle.partitions": "12"}) == 12
    for wrong in ("", "-1", "x", "9" * 5000):
        with pytest.raises(LogFormatError, match=r"shuffle\.partitions"):
            shuffle_partitions({"spark.sql.shuffle.partitions": wrong})


def test_format_v2_outside_rocksdb_is_refused_by_name():
    with refuses(CHECKPOINT_UNSUPPORTED, match="format v2 that RocksDB did not write"):
        closure(3, f"state/0/0/3_{UUID}.delta")


def test_foreign_provider_is_refused_by_name():
    refuse_unsupported({})
    refuse_unsupported({PROVIDER: "org.apache.spark.x.RocksDBStateStoreProvider"})
    with pytest.raises(CheckpointError, match="MyProvider"):
        refuse_unsupported({PROVIDER: "com.example.MyProvider"})


def test_files_outside_a_store_are_ignored():
    assert closure(1, "state/1.delta", "state/x/0/1.delta", "state/0/0/a/b/1.delta") == []
