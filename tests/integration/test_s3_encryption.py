"""Server-side encryption: what every kind of write asks the service for, as it goes over the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.storage import s3, s3_parts
from airflow_flinkstyle.storage.errors import ObjectChangedError, StoreUnavailableError
from airflow_flinkstyle.storage.s3 import S3Store
from airflow_flinkstyle.storage.s3_settings import S3Settings

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.s3 import S3Server, VersityGw

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

PART = 5 << 20
"""The smallest part that S3 takes."""
ASKED = {
    "AES256": {"x-amz-server-side-encryption": "AES256"},
    "aws:kms": {
        "x-amz-server-side-encryption": "aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id": "key-1",
    },
    None: {},
}


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "LARGE_BYTES", PART)
    monkeypatch.setattr(s3, "_MOST_COPIED_BYTES", PART)
    monkeypatch.setattr(s3_parts, "PART_BYTES", PART)
    monkeypatch.setattr(s3_parts, "COPY_PART_BYTES", PART)


def a_store(server: S3Server, bucket: str, **changes: str | None) -> S3Store:
    keys = {"endpoint": server.endpoint, "access_key": server.access_key, "secret_key": server.secret_key}
    settings = S3Settings(**keys, **changes, max_attempts=1)  # type: ignore[arg-type]
    return S3Store(bucket=bucket, settings=settings)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("encryption", list(ASKED))
def test_every_kind_of_write_asks_for_encryption(
    versitygw: VersityGw, tmp_path: Path, encryption: str | None
):
    bucket = versitygw.create_bucket("encrypted-" + str(encryption).lower().replace(":", "-"))
    key = "key-1" if encryption == "aws:kms" else None
    store = a_store(versitygw, bucket, encryption=encryption, kms_key_id=key)
    sent: dict[str, dict[str, str]] = {}

    def remember(request: object, operation_name: str, **_: object) -> None:
        names = request.headers.items()  # type: ignore[attr-defined]
        text = {name.lower(): v.decode() if isinstance(v, bytes) else v for name, v in names}
        found = {name: v for name, v in text.items() if name.startswith("x-amz-server-side-encryption")}
        sent.setdefault(operation_name, found)
        assert sent[operation_name] == found

    store._client.meta.events.register("request-created.s3", remember)
    large = tmp_path / "large"
    large.write_bytes(b"0123456789abcdef" * (PART // 16) + b"end")
    version = store.create("a", b"1")
    store.replace("a", b"2", expected=version)
    store.write("a", b"3")
    store.upload("large", large)
    store.upload_by_content(large, "by", lambda sha256, _: sha256)
    copy = store.copier_from(store)
    assert copy is not None
    for source, target in (("a", "b"), ("large", "copy")):
        found = store.head(source)
        assert found is not None
        copy(found, target)
    assert store.read("copy") == large.read_bytes()
    writing = {"PutObject", "CreateMultipartUpload", "CopyObject"}
    assert writing | {"UploadPart", "UploadPartCopy", "CompleteMultipartUpload"} <= set(sent)
    assert {name: sent[name] for name in writing} == dict.fromkeys(writing, ASKED[encryption])


def test_encryption_comes_from_the_environment_when_none_is_given(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FLINKSTYLE_S3_ENCRYPTION", "aws:kms")
    monkeypatch.setenv("FLINKSTYLE_S3_KMS_KEY_ID", "key-2")
    assert S3Store(bucket="bucket")._encryption == {
        "ServerSideEncryption": "aws:kms",
        "SSEKMSKeyId": "key-2",
    }


@pytest.mark.parametrize(
    ("encryption", "key"), [("aes", None), ("AES256", "key-1"), (None, "key-1"), ("KMS", "key-1")]
)
def test_encryption_that_no_service_understands_is_refused(encryption: str | None, key: str | None):
    with pytest.raises(BadInputError, match="Expected server-side encryption"):
        S3Store(bucket="bucket", settings=S3Settings(encryption=encryption, kms_key_id=key))


def test_service_that_cannot_encrypt_is_named_and_nothing_is_written(s3_server: S3Server):
    """s3proxy answers NotImplemented: better no savepoint than one that is not encrypted as asked."""
    bucket = s3_server.create_bucket("cannot-encrypt")
    store = a_store(s3_server, bucket, encryption="AES256")
    with pytest.raises(StoreUnavailableError, match="NotImplemented"):
        store.write("a", b"secret")
    assert list(a_store(s3_server, bucket).list()) == []


@pytest.mark.usefixtures("small_parts")
def test_large_file_that_changes_while_it_is_sent_is_not_stored_and_leaves_no_parts(
    versitygw: VersityGw, tmp_path: Path
):
    bucket = versitygw.create_bucket("changing-file")
    store = a_store(versitygw, bucket)
    large = tmp_path / "large"
    large.write_bytes(b"0" * (2 * PART))

    def name_and_change(sha256: str, _: int) -> str:
        with large.open("r+b") as file:
            file.write(b"1")
        return sha256

    with pytest.raises(ObjectChangedError, match="a changing file"):
        store.upload_by_content(large, "blobs", name_and_change)
    assert list(store.list()) == []
    assert not versitygw.client().list_multipart_uploads(Bucket=bucket).get("Uploads")


@pytest.mark.usefixtures("small_parts")
def test_large_copy_of_an_object_written_meanwhile_is_refused(versitygw: VersityGw, tmp_path: Path):
    bucket = versitygw.create_bucket("changing-object")
    store = a_store(versitygw, bucket)
    large = tmp_path / "large"
    large.write_bytes(b"0" * (2 * PART))
    store.upload("large", large)
    seen = store.head("large")
    assert seen is not None
    large.write_bytes(b"1" * (2 * PART))
    store.upload("large", large)
    copier = store.copier_from(store)
    assert copier is not None
    with pytest.raises(ObjectChangedError, match="a newer one"):
        copier(seen, "copy")
    assert store.head("copy") is None
