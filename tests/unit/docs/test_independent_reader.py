"""A reader that was written from docs/savepoint-format.md alone reads what the package writes."""

from __future__ import annotations

import gzip
import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore

ROOT = Path(__file__).parents[3]
READER = ROOT / "examples" / "savepoint_reader.py"
NEWEST = max((path for path in (ROOT / "tests" / "golden").iterdir() if path.is_dir()), key=str)

QUERIES = ("rocksdb", "rocksdb-changelog", "hdfs", "named-sources", "transform-with-state")


def read(*args: object, code: int = 0) -> str:
    """Run the reader without any package beside Python's own."""
    command = [sys.executable, "-I", "-S", READER, *args]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> SavepointRepository:
    """Several queries of real checkpoints in one savepoint, and the mark of an id that was withdrawn."""
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "orders")
    queries = [QuerySource(name=name, checkpoint=LocalStore(NEWEST / name), kafka={}) for name in QUERIES]
    label = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=7, spark_version=NEWEST.name, taken_from_generation=None
    )
    take_savepoint(repository, queries, label)
    repository.tombstone("sp-0", "its taker was given up")
    return repository


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_reader_imports_nothing_but_the_standard_library():
    modules = set(re.findall(r"^(?:from|import) (\w+)", READER.read_text(), re.MULTILINE))
    assert modules <= sys.stdlib_module_names


def test_it_lists_the_savepoints_and_no_withdrawn_ones(repository: SavepointRepository, tmp_path: Path):
    (line,) = read("list", tmp_path / "root", "orders").splitlines()
    batches = {query.name: query.batch_id for query in repository.read("sp-1").queries}
    assert line.startswith("sp-1 7 {")
    assert all(f'"{name}": {batch}' for name, batch in batches.items())
    assert "no savepoint sp-0" in read("verify", tmp_path / "root", "orders", "sp-0", code=1)


def test_it_verifies_all_bytes(repository: SavepointRepository, tmp_path: Path):
    total = repository.read("sp-1").total_bytes
    assert f"sp-1 is whole: {total} bytes" in read("verify", tmp_path / "root", "orders", "sp-1")


def test_it_restores_what_the_package_restores(repository: SavepointRepository, tmp_path: Path):
    manifest, target = repository.read("sp-1"), tmp_path / "target"
    read("restore", tmp_path / "root", "orders", "sp-1", target)
    theirs = contents(target)
    shutil.rmtree(target)  # the place stands in some of the files
    restore_savepoint(manifest, repository, lambda name: LocalStore(target / name))
    assert len(theirs) == sum(len(query.files) for query in manifest.queries)
    assert contents(target) == theirs


def test_it_reads_a_compressed_manifest_and_files_that_are_not_known_by_their_sha256(
    repository: SavepointRepository, tmp_path: Path
):
    manifest = repository.read("sp-1")
    query, *others = manifest.queries
    entries = list(query.files)
    for number, kind in ((0, "etag"), (2, "size"), (3, "other key")):
        entry, key = entries[number], f"origin/{query.query_id}/{number}"
        data = repository.read_file(entry)
        repository.store.write(f"orders/blobs/{key}", data)
        md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
        digest = {"etag": f"etag:{md5}", "size": None}.get(kind, entry.digest)
        entries[number] = replace(entry, blob=key, digest=digest, offset=None, pack_bytes=None)
    queries = (replace(query, files=tuple(entries)), *others)
    repository.publish(replace(manifest, savepoint_id="sp-2", queries=queries))
    path = tmp_path / "root" / "orders" / "savepoints" / "sp-2.json"
    path.write_bytes(gzip.compress(path.read_bytes()))
    said = read("restore", tmp_path / "root", "orders", "sp-2", tmp_path / "theirs")
    assert f"sp-2 is whole: {manifest.total_bytes} bytes" in said
    (tmp_path / "root" / "orders" / "blobs" / entries[0].blob).write_bytes(b"x" * entries[0].size_bytes)
    said = read("verify", tmp_path / "root", "orders", "sp-2", code=1)
    assert f"{entries[0].path} was altered" in said


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_it_never_unseals_a_damaged_savepoint(repository: SavepointRepository, tmp_path: Path, damage: str):
    query = repository.read("sp-1").queries[0]
    blob = tmp_path / "root" / "orders" / "blobs" / query.files[-1].blob
    data = blob.read_bytes()
    blob.unlink()
    if damage != "missing":
        blob.write_bytes(data[:-1] if damage == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    said = read("restore", tmp_path / "root", "orders", "sp-1", tmp_path / "theirs", code=1)
    assert ("is missing" if damage == "missing" else query.files[-1].path) in said
    assert not (tmp_path / "theirs").exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"format_version": 2', '"format_version": 3', "format 3 is newer"),
        ('"metadata"', '"../metadata"', "unsafe name '../metadata'"),
        ('"name": "rocksdb"', '"name": "../rocksdb"', "unsafe name '../rocksdb'"),
        ('"job": "orders"', '"job": "other"', "one of other/sp-1"),
    ],
)
def test_it_refuses_newer_formats_and_hostile_names(
    repository: SavepointRepository, tmp_path: Path, old: str, new: str, said: str
):
    path = tmp_path / "root" / "orders" / "savepoints" / "sp-1.json"
    path.write_text(manifest_json.with_checksum(path.read_text().replace(old, new, 1)))
    assert said in read("restore", tmp_path / "root", "orders", "sp-1", tmp_path / "theirs", code=1)
    assert not (tmp_path / "theirs" / "rocksdb").exists()
    assert not (tmp_path / "rocksdb").exists()


def test_it_notices_a_changed_byte_of_the_manifest(repository: SavepointRepository, tmp_path: Path):
    path = tmp_path / "root" / "orders" / "savepoints" / "sp-1.json"
    path.write_text(path.read_text().replace('"taken_at_ms": 7', '"taken_at_ms": 8'))
    assert "the manifest was altered" in read("verify", tmp_path / "root", "orders", "sp-1", code=1)
