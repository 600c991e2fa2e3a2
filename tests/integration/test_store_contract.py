"""What every store must do, on each backend; S3 against a real server."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.storage.contract import GUARANTEES, check_store
from airflow_flinkstyle.storage.errors import (
    BadKeyError,
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3 import S3Store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from airflow_flinkstyle.storage.streams import sha256_of
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.storage.base import ObjectStore
    from testbed.s3 import S3Server

pytestmark = pytest.mark.integration

RACERS = 8


def settings_of(server: S3Server, **changes: object) -> S3Settings:
    values = {"endpoint": server.endpoint, "access_key": server.access_key, "secret_key": server.secret_key}
    return S3Settings(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(params=["local", "memory", "s3_server", "versitygw"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "local":
        return LocalStore(tmp_path / "root")
    if request.param == "memory":
        return MemoryStore()
    server: S3Server = request.getfixturevalue(request.param)
    bucket = "contract-" + hashlib.sha256(request.node.name.encode()).hexdigest()[:20]
    server.create_bucket(bucket)
    return open_store(f"s3://{bucket}/some/prefix", settings_of(server))


def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def test_folders_are_named_once_and_in_order(store: ObjectStore):
    assert list(store.folders()) == []
    for key in ("b/1", "a/x/1", "a/y/1", "a/y/2", "file"):
        store.write(key, b"")
    assert list(store.folders()) == ["a", "b"]
    assert list(store.folders("a/")) == ["x", "y"]
    assert list(store.folders("nothing/")) == []


def test_what_is_written_is_read_back_whole_and_in_ranges(store: ObjectStore):
    version = store.write("a/b", b"0123456789")
    assert store.read("a/b") == b"0123456789"
    assert store.read("a/b", start=3, length=4) == b"3456"
    assert store.read("a/b", start=8) == b"89"
    assert store.read("a/b", start=8, length=100) == b"89"
    assert store.read("a/b", start=10, length=5) == b""
    info = store.head("a/b")
    assert info is not None
    assert (info.key, info.size_bytes, info.version) == ("a/b", 10, version)


def test_list_is_sorted_filtered_by_prefix_and_complete(store: ObjectStore):
    for key in ("b/2", "b/10", "a", "b.txt", "c/d/e"):
        store.write(key, key.encode())
    assert keys(store) == ["a", "b.txt", "b/10", "b/2", "c/d/e"]
    assert keys(store, "b/") == ["b/10", "b/2"]
    assert keys(store, "b") == ["b.txt", "b/10", "b/2"]
    assert keys(store, "none/") == []
    found = next(store.list("c/"))
    assert found == store.head("c/d/e")


def test_missing_object_is_none_or_its_own_error(store: ObjectStore, tmp_path: Path):
    assert store.head("a") is None
    assert store.get("a") is None
    with pytest.raises(ObjectMissingError, match="found none"):
        store.read("a")
    with pytest.raises(ObjectMissingError):
        store.download("a", tmp_path / "target")
    store.delete("a")


def test_get_answers_none_while_the_version_is_known(store: ObjectStore):
    version = store.write("a", b"1")
    assert store.get("a", unless=version) is None
    newer = store.write("a", b"2")
    found = store.get("a", unless=version)
    assert found is not None
    assert (found.data, found.version) == (b"2", newer)
    assert newer != version


def test_create_refuses_an_existing_object_and_keeps_it(store: ObjectStore):
    version = store.create("a", b"first")
    with pytest.raises(ObjectExistsError, match="found one"):
        store.create("a", b"second")
    found = store.get("a")
    assert found is not None
    assert (found.data, found.version) == (b"first", version)


def test_exactly_one_of_racing_creators_wins(store: ObjectStore):
    for number in range(5):
        barrier = threading.Barrier(RACERS)

        def race(racer: int, key: str = f"race/{number}", barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                store.create(key, f"racer {racer}".encode())
            except ObjectExistsError:
                return False
            return True

        with ThreadPoolExecutor(RACERS) as pool:
            won = list(pool.map(race, range(RACERS)))
        assert won.count(True) == 1
        assert store.read(f"race/{number}") == f"racer {won.index(True)}".encode()


def test_replace_needs_the_version_that_is_there(store: ObjectStore):
    first = store.write("a", b"1")
    second = store.replace("a", b"2", expected=first)
    with pytest.raises(ObjectChangedError, match="found version"):
        store.replace("a", b"3", expected=first)
    assert store.read("a") == b"2"
    store.replace("a", b"4", expected=second)
    store.delete("a")
    with pytest.raises(ObjectChangedError, match="found nothing"):
        store.replace("a", b"5", expected=second)
    assert store.head("a") is None


# Not s3proxy: it answers If-Match by looking first and writing then; versitygw, AWS and MinIO do both in one.
@pytest.mark.parametrize("store", ["local", "memory", "versitygw"], indirect=True)
def test_no_update_is_lost_among_racing_replacers(store: ObjectStore):
    store.write("counter", b"0")

    def add_three(_: int) -> None:
        for _ in range(3):
            while True:
                found = store.get("counter")
                assert found is not None
                try:
                    store.replace("counter", str(int(found.data) + 1).encode(), expected=found.version)
                except ObjectChangedError:
                    continue
                break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_three, range(4)))
    assert store.read("counter") == b"12"


def test_upload_and_download_carry_every_byte(store: ObjectStore, tmp_path: Path):
    content = bytes(range(256)) * 4096
    (tmp_path / "source").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    version = store.upload("big", tmp_path / "source", sha256=digest)
    store.download("big", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == content
    assert sha256_of(store, "big") == (digest, len(content))
    info = store.head("big")
    assert info is not None
    assert info.version == version


def test_upload_of_other_content_than_promised_writes_nothing(store: ObjectStore, tmp_path: Path):
    (tmp_path / "source").write_bytes(b"changed meanwhile")
    with pytest.raises(ObjectChangedError):
        store.upload("a", tmp_path / "source", sha256=hashlib.sha256(b"as it was").hexdigest())
    assert store.head("a") is None


def test_upload_by_content_stores_under_the_name_that_the_content_is_given(
    store: ObjectStore, tmp_path: Path
):
    content = bytes(range(256)) * 8192
    (tmp_path / "source").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    asked: list[tuple[str, int]] = []

    def name(sha256: str, size_bytes: int) -> str | None:
        asked.append((sha256, size_bytes))
        return f"x/{sha256}" if len(asked) > 1 else None

    assert store.upload_by_content(tmp_path / "source", "blobs", name) == digest
    assert keys(store) == []
    assert store.upload_by_content(tmp_path / "source", "blobs", name) == digest
    assert keys(store) == [f"blobs/x/{digest}"]
    assert sha256_of(store, f"blobs/x/{digest}") == (digest, len(content))
    assert asked == [(digest, len(content))] * 2
    with pytest.raises(FileNotFoundError):
        store.upload_by_content(tmp_path / "none", "blobs", name)


@pytest.mark.parametrize("store", ["s3_server", "versitygw"], indirect=True)
def test_copy_stays_when_its_source_is_deleted(store: ObjectStore):
    store.write("a", b"1")
    copy, found = store.copier_from(store), store.head("a")
    assert copy is not None
    assert found is not None
    copy(found, "b/c")
    store.delete("a")
    assert keys(store) == ["b/c"]
    assert store.read("b/c") == b"1"


@pytest.mark.parametrize("store", ["local", "memory", "versitygw"], indirect=True)
def test_store_that_keeps_every_guarantee_has_no_finding_and_is_left_clean(store: ObjectStore):
    store.write("kept", b"1")
    tried: list[str] = []
    assert check_store(store, checking=lambda guarantee: tried.append(guarantee.name)) == ()
    assert tried == [guarantee.name for guarantee in GUARANTEES]
    assert keys(store) == ["kept"]


@pytest.mark.matrix
@pytest.mark.parametrize("store", ["s3_server"], indirect=True)
def test_s3proxy_is_found_to_replace_what_another_has_replaced(store: ObjectStore):
    """If this fails because there is no finding, s3proxy's If-Match became atomic: say so in the docs."""
    assert [finding.guarantee for finding in check_store(store)] == ["one winner of racing replaces"]
    assert keys(store) == []


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../a", "a/../../b", "a//b", "a/", "./a", "a\\b", "a\nb"])
def test_keys_that_leave_the_root_are_refused(store: ObjectStore, key: str):
    for call in (store.read, store.head, store.get, store.delete, store.local_path):
        with pytest.raises(BadKeyError, match="relative key"):
            call(key)
    for write in (store.write, store.create):
        with pytest.raises(BadKeyError):
            write(key, b"")


def test_large_file_goes_in_parts_and_is_compared_before(s3_server: S3Server, tmp_path: Path):
    s3_server.create_bucket("parts")
    store = open_store("s3://parts", settings_of(s3_server))
    block = hashlib.sha512(b"block").digest() * 16384
    with (tmp_path / "source").open("wb") as file:
        for _ in range(97):
            file.write(block)
    with (tmp_path / "source").open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with pytest.raises(ObjectChangedError):
        store.upload("big", tmp_path / "source", sha256="0" * 64)
    assert store.head("big") is None
    store.upload("big", tmp_path / "source", sha256=digest)
    assert sha256_of(store, "big") == (digest, 97 * len(block))


def test_wrong_s3_keys_are_named_as_such_and_never_shown(s3_server: S3Server):
    s3_server.create_bucket("denied")
    for wrong in ({"secret_key": "wrong-secret"}, {"access_key": "wrong-access"}):
        store = open_store("s3://denied/root", settings_of(s3_server, **wrong))
        for call in (lambda s: list(s.list()), lambda s: s.read("a"), lambda s: s.create("a", b"")):
            with pytest.raises(StoreDeniedError, match=f"s3://denied/root at {s3_server.endpoint}") as caught:
                call(store)
            assert not caught.value.retryable
            assert "wrong-" not in str(caught.value)
        assert "wrong-" not in repr(store)


def test_missing_bucket_is_an_error_and_no_empty_store(s3_server: S3Server):
    store = open_store("s3://no-such-bucket/root", settings_of(s3_server))
    with pytest.raises(StoreDeniedError, match="bucket does not exist"):
        list(store.list())
    with pytest.raises(StoreDeniedError, match="bucket does not exist"):
        store.create("a", b"")


def test_unreachable_s3_is_retryable(unused_endpoint: str):
    settings = S3Settings(
        endpoint=unused_endpoint,
        access_key="a",
        secret_key="b",  # noqa: S106 - nobody is there to take it
        max_attempts=1,
    )
    with pytest.raises(StoreUnavailableError, match=unused_endpoint) as caught:
        S3Store(bucket="bucket", settings=settings).read("a")
    assert caught.value.retryable


@pytest.fixture
def unused_endpoint() -> str:
    from testbed.ports import free_port

    return f"http://127.0.0.1:{free_port()}"


def test_s3_keys_come_from_the_environment_when_none_are_given(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
):
    s3_server.create_bucket("environment")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    store = open_store("s3a://environment/root")
    store.write("a", b"1")
    assert keys(store) == ["a"]


def test_repeated_conditional_write_knows_its_own_first_attempt(s3_server: S3Server):
    """The first answer is lost after the write took effect; boto3 sends the request again by itself."""
    s3_server.create_bucket("lost")
    store = S3Store(bucket="lost", settings=settings_of(s3_server))
    lost: list[int] = []

    def lose_first(response_dict: dict[str, object], **_: object) -> None:
        if not lost:
            lost.append(1)
            response_dict.update(status_code=503, body=b"<Error><Code>SlowDown</Code></Error>")

    store._client.meta.events.register("before-parse.s3.PutObject", lose_first)
    version = store.create("claim", b"mine")
    assert lost
    found = store.get("claim")
    assert found is not None
    assert (found.data, found.version) == (b"mine", version)
    lost.clear()
    assert store.replace("claim", b"next", expected=version) != version
    assert lost
    with pytest.raises(ObjectExistsError):
        store.create("claim", b"other")
