from __future__ import annotations

import multiprocessing
import resource
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    StoreDeniedError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3 import S3Store
from airflow_flinkstyle.storage.s3_settings import S3Settings


def add_one(root: str, times: int) -> None:
    store = LocalStore(Path(root))
    for _ in range(times):
        while True:
            found = store.get("counter")
            assert found is not None
            try:
                store.replace("counter", str(int(found.data) + 1).encode(), expected=found.version)
            except ObjectChangedError:
                continue
            break


def test_no_update_is_lost_among_racing_processes(tmp_path: Path):
    LocalStore(tmp_path).write("counter", b"0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=add_one, args=(str(tmp_path), 20)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert LocalStore(tmp_path).read("counter") == b"60"


def test_version_differs_for_equal_content_written_again(tmp_path: Path):
    store = LocalStore(tmp_path)
    assert len({store.write("a", b"same") for _ in range(50)}) == 50


def test_stale_version_is_refused_although_content_is_the_same_again(tmp_path: Path):
    store = LocalStore(tmp_path)
    first = store.write("a", b"1")
    store.write("a", b"2")
    store.write("a", b"1")
    with pytest.raises(ObjectChangedError):
        store.replace("a", b"3", expected=first)


def test_hidden_files_of_others_are_listed_and_own_temporary_ones_are_not(tmp_path: Path):
    store = LocalStore(tmp_path)
    store.write("offsets/.5.crc", b"")
    (tmp_path / "offsets" / ".flinkstyle-0123").write_bytes(b"half")
    assert [info.key for info in store.list()] == ["offsets/.5.crc"]


def test_failed_create_leaves_no_temporary_file(tmp_path: Path):
    store = LocalStore(tmp_path)
    store.create("a", b"1")
    with pytest.raises(ObjectExistsError):
        store.create("a", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_listing_a_folder_that_does_not_exist_is_empty(tmp_path: Path):
    assert list(LocalStore(tmp_path / "none").list("a/")) == []


def test_full_disk_is_retryable_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        with Path("/dev/full").open("wb", buffering=0) as device:
            device.write(b"1")

    monkeypatch.setattr("os.fsync", full)  # the system's own answer, without filling a disk
    with pytest.raises(StoreUnavailableError, match="ENOSPC") as caught:
        LocalStore(tmp_path).write("a", b"1")
    assert caught.value.retryable
    assert list(tmp_path.iterdir()) == []


def test_write_that_the_disk_cuts_short_takes_no_name(tmp_path: Path):
    """The write that meets the end of the space writes less, and raises nothing; the next one raises."""
    store, limit = LocalStore(tmp_path), resource.getrlimit(resource.RLIMIT_FSIZE)
    for write in (store.write, lambda key, data: store.write_many([(key, data)])):
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (160 << 10, limit[1]))
            with pytest.raises(StoreUnavailableError):
                write("folder/file", bytes(200_000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_folder_without_permission_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def deny(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.link", deny)  # root may write everywhere, so the system's answer is given here
    with pytest.raises(StoreDeniedError, match="Permission denied"):
        LocalStore(tmp_path).create("a", b"1")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/data/root", "file:///data/root"),
        ("file:///data/root", "file:///data/root"),
        ("file:/data/root", "file:///data/root"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket", "s3://bucket"),
    ],
)
def test_locations_open_the_store_they_name(uri: str, expected: str):
    assert open_store(uri).uri == expected


@pytest.mark.parametrize("uri", ["", "relative/path", "hdfs://host/path", "s3:///path", "file://host/path"])
def test_other_locations_are_refused(uri: str):
    with pytest.raises(BadInputError, match="Expected a location like"):
        open_store(uri)


def test_secrets_are_in_no_representation():
    settings = S3Settings(access_key="AKIA-X", secret_key="s3cr3t", session_token="t0ken")  # noqa: S106
    text = repr(settings) + str(settings) + repr(S3Store(bucket="b", settings=settings))
    assert not any(secret in text for secret in ("AKIA-X", "s3cr3t", "t0ken"))
    assert urlsplit(S3Store(bucket="b", settings=settings).uri).scheme == "s3"
