"""Real checkpoint directories, made by ``make_checkpoints.py`` with each Spark version."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_flinkstyle.checkpoint import commit_log, metadata, offset_log
from airflow_flinkstyle.checkpoint.errors import UnsupportedCheckpointError
from airflow_flinkstyle.checkpoint.inventory import Inventory, read_inventory
from airflow_flinkstyle.checkpoint.state_store import state_closure
from airflow_flinkstyle.savepoint.repository import SavepointRepository
from airflow_flinkstyle.savepoint.restore import restore_query
from airflow_flinkstyle.savepoint.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.verify import verify_savepoint
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.memory import MemoryStore
from airflow_flinkstyle.types import BatchId, version_after

ROOT = Path(__file__).parent
ALL = sorted(path for path in ROOT.glob("*/*") if path.is_dir() and path.name != "__pycache__")
SUPPORTED = [path for path in ALL if path.name != "format-v2"]
STATEFUL = [path for path in SUPPORTED if path.name != "stateless"]


def label(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


def closure(path: Path) -> list[str]:
    store = LocalStore(path)
    version = version_after(read_inventory(store).committed)
    return [file.path for file in state_closure([i.key for i in store.list("state/")], version, store.read)]


def test_every_spark_version_is_covered():
    assert {path.parent.name for path in ALL} == {"3.5.9", "4.0.5", "4.2.0"}
    assert len(ALL) == 18


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
    assert read_inventory(LocalStore(path)) == Inventory(committed=BatchId(last), pending=None)


@pytest.mark.parametrize("path", [path for path in ALL if path.name == "hdfs"], ids=label)
def test_hdfs_closure_is_newest_snapshot_and_deltas_behind_it(path: Path):
    version = read_inventory(LocalStore(path)).committed + 1
    found = set(closure(path))
    for folder in (path / "state/0/0", path / "state/0/1"):
        base = max((int(file.stem) for file in folder.glob("*.snapshot")), default=0)
        expected = {f"{number}.delta" for number in range(base + 1, version + 1)}
        expected |= {f"{base}.snapshot"} if base else set()
        names = {file.rpartition("/")[2] for file in found if Path(path / file).parent == folder}
        assert names == expected
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


@pytest.mark.parametrize("path", [path for path in ALL if path.name == "format-v2"], ids=label)
def test_format_v2_is_refused_by_name(path: Path):
    with pytest.raises(UnsupportedCheckpointError, match="checkpoint format v2"):
        closure(path)


@pytest.mark.parametrize("path", [path for path in ALL if path.name == "join"], ids=label)
def test_join_closure_covers_all_four_stores(path: Path):
    stores = {file.split("/")[3] for file in closure(path) if file.endswith((".delta", ".snapshot"))}
    sides = ("left", "right")
    assert stores == {f"{s}-{kind}" for s in sides for kind in ("keyToNumValues", "keyWithIndexToValue")}


@pytest.mark.parametrize("path", SUPPORTED, ids=label)
def test_savepoint_holds_the_closure_and_restores_to_equal_bytes(path: Path):
    repository, target = SavepointRepository(MemoryStore(), "orders"), MemoryStore()
    source = QuerySource(name="q", checkpoint=LocalStore(path), kafka={})
    about = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version=path.parent.name, taken_from_generation=None
    )
    manifest = take_savepoint(repository, [source], about)
    verify_savepoint(manifest, repository, level="full")
    restore_query(manifest, manifest.queries[0], repository, target)
    restored = {info.key: target.read(info.key) for info in target.list()}
    assert {key: (path / key).read_bytes() for key in restored} == restored
    assert {key for key in restored if key.startswith("state/")} == set(closure(path))


def test_named_sources_are_edited_by_name():
    path = ROOT / "4.2.0/named-sources/offsets/4"
    log = offset_log.parse(path.read_text())
    assert log.version == 2
    assert set(log.sources) == {"alpha", "zeta"}
