"""What is believed of the answers of an S3 service."""

from __future__ import annotations

import base64
import hashlib

import botocore.exceptions as boto
import pytest
from botocore.stub import Stubber

from airflow_flinkstyle.storage.errors import (
    CredentialsMissingError,
    StoreDeniedError,
    StoreError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.s3 import S3Store
from airflow_flinkstyle.storage.s3_errors import digest_of_copy, translated
from airflow_flinkstyle.storage.s3_settings import S3Settings

SHA256 = hashlib.sha256(b"x")
MD5 = hashlib.md5(b"x", usedforsecurity=False).hexdigest()
CHECKSUM = base64.b64encode(SHA256.digest()).decode()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (boto.NoCredentialsError(), CredentialsMissingError),
        (boto.TokenRetrievalError(provider="sso", error_msg="away"), CredentialsMissingError),
        (boto.CredentialRetrievalError(provider="container-role", error_msg="away"), StoreUnavailableError),
        (boto.PartialCredentialsError(provider="env", cred_var="aws_secret_access_key"), StoreDeniedError),
    ],
)
def test_credentials_that_are_nowhere_to_be_had_may_come(error: Exception, kind: type[StoreError]):
    with pytest.raises(kind) as told, translated("read", "key", uri="s3://bucket", where="s3://bucket"):
        raise error
    assert told.value.retryable == (kind is not StoreDeniedError)


@pytest.mark.parametrize(
    ("result", "encryption", "digest"),
    [
        ({"ETag": f'"{MD5}"', "ChecksumSHA256": CHECKSUM}, "", f"sha256:{SHA256.hexdigest()}"),
        ({"ETag": f'"{MD5}"'}, "AES256", f"etag:{MD5}"),
        ({"ETag": f'"{MD5}"'}, "aws:kms", None),
        ({"ETag": f'"{MD5}-2"'}, "", None),
        ({"ETag": f'"{MD5}-2"', "ChecksumSHA256": f"{CHECKSUM}-2"}, "", None),
    ],
    ids=["of the content", "MD5", "encrypted", "of parts", "checksum of parts"],
)
def test_only_what_the_whole_content_gives_becomes_a_digest(
    result: dict[str, str], encryption: str, digest: str | None
):
    answer = {"CopyObjectResult": result, "ServerSideEncryption": encryption}
    assert digest_of_copy(answer) == digest


def test_object_that_is_listed_while_it_is_replaced_is_looked_at_by_itself():
    settings = S3Settings(endpoint="http://127.0.0.1:1", access_key="key", secret_key="any")  # noqa: S106
    store = S3Store(bucket="bucket", prefix="root", settings=settings)
    entries = [
        {"Key": "root/a", "Size": 1, "ETag": '"1"'},
        {"Key": "root/b", "Size": 2},
        {"Key": "root/c", "Size": 3},
    ]
    with Stubber(store._client) as answers:
        answers.add_response("list_objects_v2", {"IsTruncated": False, "Contents": entries})
        answers.add_response("head_object", {"ContentLength": 5, "ETag": '"2"'})
        answers.add_client_error("head_object", "404", http_status_code=404)
        found = [(info.key, info.size_bytes, info.version) for info in store.list()]
    assert found == [("a", 1, '"1"'), ("b", 5, '"2"')]
