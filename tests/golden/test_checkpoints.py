"""Real checkpoint directories, made by ``make_checkpoints.py`` with each Spark version."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint import commit_log, metadata, offset_log, operator_metadata
from airflow_flinkstyle.checkpoint.errors import StateIncompleteError
from airflow_flinkstyle.checkpoint.inventory import Inventory, read_inventory
from airflow_flinkstyle.checkpoint.operator_metadata import relocate
from airflow_flinkstyle.checkpoint.state_store import state_closure
from airflow_flinkstyle.checkpoint.stores_in_use import shuffle_partitions
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import RenumberError, SavepointDamagedError
from airflow_flinkstyle.savepoint.files.renumber import renumber
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import BatchId, version_after
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent
ALL = sorted(path for path in ROOT.glob("*/*") if path.is_dir() and path.name != "__pycache__")
VERSIONS = {"3.5.9": 11, "4.0.5": 16, "4.1.4": 17, "4.2.0": 20, "4.3.0": 20}
"""How many cases each Spark version can make, and Kafka with the version whose connector is locked."""
KAFKA = {"kafka": {"0": KafkaLog(cluster_id="c", topic_ids={"golden": "t"}, log_range={})}}
FORMAT_V2 = [path for path in ALL if "stateUniqueIds" in (path / "commits/4").read_text()]
RELOCATABLE = [path for path in ALL if list(path.glob("state/*/_metadata/v2/*"))]


def label(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


def closure(path: Path, *, lost: Callable[[str], bool] = lambda _: False) -> list[str]:
    store = LocalStore(path)
    batch = read_inventory(store).committed
    ids = commit_log.parse(store.read(f"commits/{batch}").decode()).state_unique_ids
    paths = [info.key for info in store.list("state/") if not lost(info.key)]
    confs = offset_log.parse(store.read(f"offsets/{batch}").decode()).confs
    found = state_closure(paths, version_after(batch), ids, store.read, partitions=shuffle_partitions(confs))
    return [file.path for file in found]


def test_every_spark_version_is_covered():
    assert {version: len(list((ROOT / version).iterdir())) for version in VERSIONS} == VERSIONS
    assert len(ALL) == sum(VERSIONS.values())


@pytest.mark.parametrize("path", ALL, ids=label)
def test_parse_then_render_equals_the_bytes(path: Path):
    logs = [file for file in path.glob("offsets/*") if not file.name.startswith(".")]
    assert len(logs) >= 5
    for file in logs:
        assert offset_log.parse(file.read_bytes().decode()).render().encode() == file.read_bytes()
        commit = path / "commits" / file.name
        assert commit_log.parse(commit.read_bytes().decode()).render().encode() == commit.read_bytes()
    raw = (path / "metadata").read_bytes()
    assert metadata.parse(raw.decode()).render().encode() == raw


@pytest.mark.parametrize("path", ALL, ids=label)
def test_newest_batch_is_the_last_committed(path: Path):
    last = max(int(file.name) for file in path.glob("commits/[0-9]*"))
    assert read_inventory(LocalStore(path)) == Inventory(committed=BatchId(last), planned=None)


@pytest.mark.parametrize("path", [path for path in ALL if (path / "state/0/1").exists()], ids=label)
def test_keyed_state_of_which_only_one_partition_is_left_is_incomplete(path: Path):
    with pytest.raises(StateIncompleteError, match="state/0/1"):
        closure(path, lost=lambda key: key.startswith("state/0/1/"))


@pytest.mark.parametrize("path", [path for path in ALL if path.name == "hdfs"], ids=label)
def test_hdfs_closure_is_newest_snapshot_and_deltas_behind_it(path: Path):
    version = read_inventory(LocalStore(path)).committed + 1
    found = set(closure(path))
    for folder in (path / "state/0/0", path / "state/0/1"):
        base = max((int(file.stem) for file in folder.glob("*.snapshot")), default=0)
        expected = {f"{number}.delta" for number in range(base + 1, version + 1)}
        expected |= {f"{base}.snapshot"} if base else set()
        names = {file.rpartition("/")[2] for file in found if Path(path / file).parent == folder}
        assert {name for name in names if not name.endswith(".crc")} == expected
        assert base > 0


@pytest.mark.parametrize("path", [path for path in ALL if path.name.startswith("rocksdb")], ids=label)
def test_rocksdb_closure_is_one_zip_its_ssts_and_changelogs_behind_it(path: Path):
    version = read_inventory(LocalStore(path)).committed + 1
    for partition in ("state/0/0", "state/0/1"):
        names = [file.removeprefix(f"{partition}/") for file in closure(path) if file.startswith(partition)]
        zips = [name for name in names if name.endswith(".zip")]
        assert len(zips) == 1
        base = int(zips[0].removesuffix(".zip"))
        changelogs = [name for name in names if name.endswith(".changelog")]
        assert changelogs == [f"{number}.changelog" for number in range(base + 1, version + 1)]
        ssts = [position for position, name in enumerate(names) if name.startswith("SSTs/")]
        assert ssts
        assert min(ssts) > names.index(zips[0])


@pytest.mark.parametrize("path", FORMAT_V2, ids=label)
def test_format_v2_closure_is_the_committed_attempt_and_what_it_builds_on(path: Path):
    committed = commit_log.parse((path / "commits/4").read_text())
    files = [file for file in closure(path) if "/_" not in file and not file.endswith(".crc")]
    for partitions in committed.state_unique_ids.values():
        for uid in {uid for uids in partitions for uid in uids}:
            newest = next(file for file in files if f"5_{uid}." in file)
            store = newest.rpartition("/")[0]
            mine = [file for file in files if file.startswith(f"{store}/")]
            zips = [file for file in mine if file.endswith(".zip")]
            assert len(zips) == 1
            changelogs = {int(Path(file).name.split("_")[0]) for file in mine if file.endswith(".changelog")}
            base = int(Path(zips[0]).name.split("_")[0])
            assert changelogs in (set(), set(range(base, 6)))
            assert changelogs or zips == [newest]
            assert {file for file in mine if "/SSTs/" in file}


@pytest.mark.parametrize("path", RELOCATABLE, ids=label)
def test_schema_paths_follow_the_checkpoint_and_nothing_else_changes(path: Path):
    (file,) = path.glob("state/0/_metadata/v2/*")
    name, content = str(file.relative_to(path)), file.read_bytes()
    moved = relocate(name, content, "s3://bucket/new")
    found = operator_metadata.parse(name, content.decode())
    assert found.schemas
    assert set(found.schemas) <= set(closure(path))
    first = found.schemas[0].encode()
    old_root = content[: content.index(b"/" + first)].rpartition(b'"')[2]
    assert old_root.startswith(b"file:/")
    assert moved == content.replace(old_root, b"s3a://bucket/new")
    assert relocate(name, content, old_root.decode().replace("file:", "file://")) == content


@pytest.mark.parametrize("path", [path for path in ALL if path.name == "join"], ids=label)
def test_join_closure_covers_all_four_stores(path: Path):
    stores = {file.split("/")[3] for file in closure(path) if file.endswith((".delta", ".snapshot"))}
    sides = ("left", "right")
    assert stores == {f"{s}-{kind}" for s in sides for kind in ("keyToNumValues", "keyWithIndexToValue")}


@pytest.mark.parametrize("path", ALL, ids=label)
def test_savepoint_holds_the_closure_and_restores_to_equal_bytes(path: Path):
    repository, target = SavepointRepository(MemoryStore(), "orders"), MemoryStore("next")
    source = QuerySource(name="q", checkpoint=LocalStore(path), kafka=KAFKA.get(path.name, {}))
    about = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version=path.parent.name, taken_from_generation=None
    )
    manifest = take_savepoint(repository, [source], about)
    verify_savepoint(manifest, repository, level="full")
    restore_query(manifest, manifest.queries[0], repository, target)
    restored = {info.key: target.read(info.key) for info in target.list()}
    original = {key: relocate(key, (path / key).read_bytes(), target.uri) for key in restored}
    assert original == restored
    assert {key for key in restored if key.startswith("state/")} == set(closure(path))
    logs = {"metadata", "offsets/3", "offsets/4", "commits/4"}
    assert {key for key in restored if not key.startswith(("state/", "sources/"))} == logs
    again = restore_query(manifest, manifest.queries[0], repository, target)
    assert (again.files_written, again.files_kept) == (0, len(restored))


@pytest.mark.parametrize("path", ALL, ids=label)
def test_savepoint_under_another_number_is_whole_there_or_refused(path: Path):
    repository = SavepointRepository(MemoryStore(), "orders")
    source = QuerySource(name="q", checkpoint=LocalStore(path), kafka=KAFKA.get(path.name, {}))
    about = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version=path.parent.name, taken_from_generation=None
    )
    manifest = take_savepoint(repository, [source], about)
    query, number = manifest.queries[0], BatchId(1_000_004)
    if path in FORMAT_V2 or path in RELOCATABLE:
        with pytest.raises(RenumberError, match="query q"):
            renumber(query, number)
        return
    moved, there = renumber(query, number), MemoryStore("there")
    restore_query(replace(manifest, queries=(moved,)), moved, repository, there)
    again = take_savepoint(
        repository, [replace(source, checkpoint=there)], replace(about, savepoint_id="sp-2")
    )
    assert (again.queries[0].batch_id, again.queries[0].files) == (number, moved.files)


@pytest.mark.parametrize("how", ["missing", "altered", "cut"])
def test_damaged_operator_metadata_is_refused_and_the_target_stays_sealed(how: str):
    store, target = MemoryStore(), MemoryStore("next")
    repository = SavepointRepository(store, "orders")
    source = QuerySource(name="q", checkpoint=LocalStore(ROOT / "4.2.0/transform-with-state"), kafka={})
    about = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None
    )
    manifest = take_savepoint(repository, [source], about)
    entry = manifest.queries[0].file("state/0/_metadata/v2/0")
    assert entry is not None
    key = f"orders/blobs/{entry.blob}"
    content = store.read(key)
    store.delete(key)
    if how != "missing":
        cut = content[: (entry.offset or 0) + entry.size_bytes - 1]
        store.write(key, content.replace(b"4.2.0", b"4.2.1") if how == "altered" else cut)
    with pytest.raises(SavepointDamagedError, match="state/0/_metadata/v2/0"):
        restore_query(manifest, manifest.queries[0], repository, target)
    assert target.read("offsets/4").startswith(b"v2147483647")
    assert target.head(entry.path) is None


def test_named_sources_are_edited_by_name():
    path = ROOT / "4.2.0/named-sources/offsets/4"
    log = offset_log.parse(path.read_text())
    assert log.version == 2
    assert set(log.sources) == {"alpha", "zeta"}


def test_commit_log_v3_names_the_sink_and_the_attempts():
    log = commit_log.parse((ROOT / "4.3.0/named-sink/commits/4").read_text())
    assert log.version == 3
    assert '"sinkName":"out"' in log.body
    assert [len(uids) for uids in log.state_unique_ids["0"]] == [1, 1]
