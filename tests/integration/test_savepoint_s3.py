"""A savepoint in a bucket, of a checkpoint on disk, restored to disk and to the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.savepoint.repository import SavepointRepository
from airflow_flinkstyle.savepoint.restore import restore_query
from airflow_flinkstyle.savepoint.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.verify import verify_savepoint
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3 import S3Settings

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore
    from testbed.s3 import S3Server

pytestmark = pytest.mark.integration

GOLDEN = Path(__file__).parent.parent / "golden/4.2.0/rocksdb-changelog"


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list()}


def test_savepoint_in_a_bucket_restores_to_equal_bytes(s3_server: S3Server, tmp_path: Path):
    s3_server.create_bucket("savepoints")
    settings = S3Settings(
        endpoint=s3_server.endpoint, access_key=s3_server.access_key, secret_key=s3_server.secret_key
    )
    root = open_store("s3://savepoints/root", settings)
    repository = SavepointRepository(root, "orders")
    live = LocalStore(tmp_path / "live")
    for file in GOLDEN.rglob("*"):
        if file.is_file():
            live.upload(str(file.relative_to(GOLDEN)), file)
    large = next(info.key for info in live.list("state/0/0/SSTs/"))
    live.write(large, b"large " * 400_000)  # streamed, not held in memory
    source = QuerySource(name="q", checkpoint=live, kafka={})
    label = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None
    )
    manifest = take_savepoint(repository, [source], label)
    assert repository.read("sp-1") == manifest
    verify_savepoint(manifest, repository, level="full")

    query = manifest.queries[0]
    disk, bucket = LocalStore(tmp_path / "restored"), open_store("s3://savepoints/next", settings)
    for target in (disk, bucket):
        restore_query(manifest, query, repository, target, complete=False)
        assert restore_query(manifest, query, repository, target).files_written == 1
    assert contents(disk) == contents(bucket) == {e.path: live.read(e.path) for e in query.files}

    again = take_savepoint(
        SavepointRepository(root, "copy"), [QuerySource(name="q", checkpoint=bucket, kafka={})], label
    )
    assert [e.digest for e in again.queries[0].files] == [e.digest for e in query.files]

    entry = query.file(large)
    assert entry is not None
    root.write(f"orders/blobs/{entry.blob}", b"LARGE " * 400_000)
    with pytest.raises(SavepointDamagedError, match="was altered"):
        verify_savepoint(manifest, repository, level="full")
    with pytest.raises(SavepointDamagedError, match="was altered"):
        restore_query(manifest, query, repository, LocalStore(tmp_path / "damaged"))
