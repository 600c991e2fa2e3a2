"""What is believed of the answers of an S3 service."""

from __future__ import annotations

import base64
import hashlib
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import botocore.exceptions as boto
import pytest
from botocore.stub import Stubber

from airflow_flinkstyle.storage.errors import (
    CredentialsMissingError,
    StoreDeniedError,
    StoreError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.s3 import S3Store
from airflow_flinkstyle.storage.s3_errors import digest_of_copy, translated
from airflow_flinkstyle.storage.s3_settings import S3Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


def a_store() -> S3Store:
    settings = S3Settings(
        endpoint="http://127.0.0.1:1",
        access_key="key",
        secret_key="any",  # noqa: S106
        max_attempts=1,
    )
    return S3Store(bucket="bucket", prefix="root", settings=settings)


CALLS: dict[str, tuple[str, Callable[[S3Store], object]]] = {
    "list": ("list_objects_v2", lambda store: list(store.list())),
    "folders": ("list_objects_v2", lambda store: list(store.folders())),
    "head": ("head_object", lambda store: store.head("a")),
    "read": ("get_object", lambda store: store.read("a")),
    "get": ("get_object", lambda store: store.get("a")),
    "write": ("put_object", lambda store: store.write("a", b"x")),
    "delete": ("delete_object", lambda store: store.delete("a")),
}
"""Calls without a condition, and what each asks the service for."""
NO_ERRORS = {*((name, "404") for name in ("head", "get", "delete")), ("read", "416")}
"""What is no failure: the object is not there, or ends before."""
CODES = ("OperationAborted", "ConditionalRequestConflict", "PreconditionFailed", "NotModified", "BadDigest")


@pytest.mark.parametrize("name", CALLS)
def test_call_without_a_condition_ends_with_an_error_of_the_store_whatever_is_answered(name: str):
    operation, call = CALLS[name]
    store, wrong = a_store(), []
    for code in (*map(str, range(300, 600)), *CODES):
        status = int(code) if code.isdigit() else 409
        with Stubber(store._client) as answers:
            answers.add_client_error(operation, code, http_status_code=status)
            try:
                call(store)
            except StoreError as error:
                if error.retryable == (status in {401, 403, 404}):
                    wrong.append(f"{code}: {error}")
            else:
                wrong += [code] * ((name, code) not in NO_ERRORS)
    assert not wrong


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("RequestTimeTooSkewed", StoreUnavailableError),
        ("QuotaExceeded", StoreFullError),
        ("InvalidObjectState", StoreRefusedError),
        ("AccessDenied", StoreDeniedError),
        ("AllAccessDisabled", StoreDeniedError),
    ],
)
def test_403_is_a_word_on_the_key_only_where_its_code_says_nothing_else(code: str, kind: type[StoreError]):
    store = a_store()
    with Stubber(store._client) as answers:
        answers.add_client_error("put_object", code, http_status_code=403)
        with pytest.raises(StoreError) as told:
            store.write("a", b"x")
    assert type(told.value) is kind


def test_object_that_is_listed_while_it_is_replaced_is_looked_at_by_itself():
    store = a_store()
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


@contextmanager
def a_service(*answers: int | None) -> Iterator[str]:
    """Answer so, one request after the other; None: close the connection instead."""
    left = iter(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            status = next(left)
            if status is None:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_delete_whose_first_request_got_no_answer_is_no_certain_one():
    """It may be carried out later, when the blob was written again; what prunes know of then decides."""
    for answers, is_certain in (((204,), True), ((503, 204), True), ((None, 204), False)):
        with a_service(*answers) as endpoint:
            settings = replace(a_store()._settings, endpoint=endpoint, max_attempts=3)
            store = S3Store(bucket="bucket", prefix="root", settings=settings)
            if is_certain:
                store.delete("a")
            else:
                with pytest.raises(StoreUnavailableError, match="may still be carried out"):
                    store.delete("a")


def test_delete_that_found_nobody_to_ask_at_first_is_certain():
    store = a_store()
    with pytest.raises(StoreUnavailableError) as told:
        store.delete("a")
    assert "carried out" not in str(told.value)
