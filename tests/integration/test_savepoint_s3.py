"""A savepoint in a bucket, of a checkpoint on disk, restored to disk and to the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import SavepointDamagedError
from airflow_flinkstyle.savepoint.files.restore import restore_query
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore
    from testbed.s3 import S3Server

pytestmark = pytest.mark.integration

GOLDEN = Path(__file__).parent.parent / "golden/4.2.0/rocksdb-changelog"


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list()}


def settings_of(server: S3Server) -> S3Settings:
    return S3Settings(endpoint=server.endpoint, access_key=server.access_key, secret_key=server.secret_key)


def label(savepoint_id: str) -> SavepointLabel:
    return SavepointLabel(
        savepoint_id=savepoint_id, taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None
    )


def test_savepoint_in_a_bucket_restores_to_equal_bytes(s3_server: S3Server, tmp_path: Path):
    s3_server.create_bucket("savepoints")
    settings = settings_of(s3_server)
    root = open_store("s3://savepoints/root", settings)
    repository = SavepointRepository(root, "orders")
    live = LocalStore(tmp_path / "live")
    for file in GOLDEN.rglob("*"):
        if file.is_file():
            live.upload(str(file.relative_to(GOLDEN)), file)
    large = next(info.key for info in live.list("state/0/0/SSTs/"))
    live.write(large, b"large " * 400_000)  # streamed, not held in memory
    source = QuerySource(name="q", checkpoint=live, kafka={})
    manifest = take_savepoint(repository, [source], label("sp-1"))
    assert repository.read("sp-1") == manifest
    verify_savepoint(manifest, repository, level="full")

    query = manifest.queries[0]
    disk, bucket = LocalStore(tmp_path / "restored"), open_store("s3://savepoints/next", settings)
    for target in (disk, bucket):
        restore_query(manifest, query, repository, target, complete=False)
        assert restore_query(manifest, query, repository, target).files_written == 1
    assert contents(disk) == contents(bucket) == {e.path: live.read(e.path) for e in query.files}

    again = take_savepoint(
        SavepointRepository(root, "copy"), [QuerySource(name="q", checkpoint=bucket, kafka={})], label("sp-1")
    )
    assert [(e.path, e.size_bytes) for e in again.queries[0].files] == [
        (e.path, e.size_bytes) for e in query.files
    ]
    verify_savepoint(again, SavepointRepository(root, "copy"), level="full")

    entry = query.file(large)
    assert entry is not None
    root.write(f"orders/blobs/{entry.blob}", b"LARGE " * 400_000)
    with pytest.raises(SavepointDamagedError, match="was altered"):
        verify_savepoint(manifest, repository, level="full")
    with pytest.raises(SavepointDamagedError, match="was altered"):
        restore_query(manifest, query, repository, LocalStore(tmp_path / "damaged"))


@pytest.mark.parametrize(("fixture", "kind"), [("versitygw", "sha256"), ("s3_server", "etag")])
def test_checkpoint_on_the_same_service_is_copied_there_and_its_state_never_fetched(
    request: pytest.FixtureRequest, fixture: str, kind: str, tmp_path: Path
):
    server: S3Server = request.getfixturevalue(fixture)
    buckets = [server.create_bucket(f"{name}-of-copies") for name in ("checkpoints", "savepoints")]
    settings = settings_of(server)
    live, root = (open_store(f"s3://{bucket}/at", settings) for bucket in buckets)
    for file in GOLDEN.rglob("*"):
        if file.is_file():
            live.upload(str(file.relative_to(GOLDEN)), file)
    fetched: list[str] = []
    live._client.meta.events.register(
        "before-parameter-build.s3.GetObject", lambda params, **_: fetched.append(params["Key"])
    )
    repository = SavepointRepository(root, "orders")
    source = QuerySource(name="q", checkpoint=live, kafka={})
    first = take_savepoint(repository, [source], label("sp-1"))
    copied = [entry for entry in first.queries[0].files if entry.blob.startswith("origin/")]
    assert {entry.path.rpartition(".")[2] for entry in copied} >= {"sst", "changelog"}
    assert all((entry.digest or "").startswith(f"{kind}:") for entry in copied)
    assert not [key for key in fetched if key.endswith((".sst", ".changelog"))]
    verify_savepoint(first, repository, level="full")
    disk = LocalStore(tmp_path / "restored")
    restore_query(first, first.queries[0], repository, disk)
    assert contents(disk) == {entry.path: live.read(entry.path) for entry in first.queries[0].files}

    changed = next(entry.path for entry in copied if entry.path.endswith(".changelog"))
    live.write(changed, b"written anew by a batch that ran again")
    second = take_savepoint(repository, [source], label("sp-2"), previous=first)
    by_path = {entry.path: entry for entry in first.queries[0].files}
    assert [e.path for e in second.queries[0].files if e != by_path[e.path]] == [changed]
    verify_savepoint(first, repository, level="full")
    verify_savepoint(second, repository, level="full")


def test_bytes_altered_inside_the_service_are_found_in_a_copy_that_nothing_read(
    versitygw: S3Server, tmp_path: Path
):
    server = versitygw
    live = open_store(f"s3://{server.create_bucket('altered-copies')}/live", settings_of(server))
    root = open_store("s3://altered-copies/root", settings_of(server))
    for file in GOLDEN.rglob("*"):
        if file.is_file():
            live.upload(str(file.relative_to(GOLDEN)), file)
    repository = SavepointRepository(root, "orders")
    manifest = take_savepoint(repository, [QuerySource(name="q", checkpoint=live, kafka={})], label("sp-1"))
    entry = next(entry for entry in manifest.queries[0].files if entry.path.endswith(".sst"))
    content = bytearray(root.read(f"orders/blobs/{entry.blob}"))
    content[len(content) // 2] ^= 1
    root.write(f"orders/blobs/{entry.blob}", bytes(content))
    with pytest.raises(SavepointDamagedError, match="was altered"):
        verify_savepoint(manifest, repository, level="full")
    with pytest.raises(SavepointDamagedError, match="was altered"):
        restore_query(manifest, manifest.queries[0], repository, LocalStore(tmp_path / "damaged"))
