"""Whether a bucket keeps versions, and which answers of a service say "not now"."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.stub import Stubber

from airflow_flinkstyle.storage.errors import StoreRefusedError, StoreUnavailableError
from airflow_flinkstyle.storage.s3 import S3Store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from airflow_flinkstyle.storage.versions import Versioning, expire_days


def a_store() -> S3Store:
    settings = S3Settings(  # of nobody: every answer is given by the test
        endpoint="http://127.0.0.1:1",
        access_key="key",
        secret_key="any",  # noqa: S106
        max_attempts=1,
    )
    return S3Store(bucket="bucket", prefix="root", settings=settings)


def a_rule(days: int = 3, **changes: Any) -> dict[str, Any]:
    rule = {"Status": "Enabled", "Filter": {"Prefix": ""}}
    return {**rule, "NoncurrentVersionExpiration": {"NoncurrentDays": days}, **changes}


def test_bucket_without_versioning_or_that_does_not_tell_keeps_nothing():
    store = a_store()
    with Stubber(store._client) as answers:
        answers.add_response("get_bucket_versioning", {})
        answers.add_response("get_bucket_versioning", {"Status": "Suspended"})
        answers.add_client_error("get_bucket_versioning", "AccessDenied", http_status_code=403)
        assert [store.versioning() for _ in range(3)] == [None, None, None]


def test_bucket_with_versioning_says_when_it_deletes_versions():
    store = a_store()
    with Stubber(store._client) as answers:
        answers.add_response("get_bucket_versioning", {"Status": "Enabled"})
        answers.add_response("get_bucket_lifecycle_configuration", {"Rules": [a_rule(3)]})
        answers.add_response("get_bucket_versioning", {"Status": "Enabled"})
        answers.add_client_error(
            "get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration", http_status_code=404
        )
        assert store.versioning() == Versioning(expire_days=3)
        assert store.versioning() == Versioning(expire_days=None)


@pytest.mark.parametrize(
    ("rules", "days"),
    [
        ([a_rule(7), a_rule(2)], 2),
        ([a_rule(Filter={"Prefix": "root/"})], 3),
        ([a_rule(Filter={"Prefix": "root/orders/"})], None),
        ([a_rule(Filter={"And": {"Prefix": "", "Tags": []}})], None),
        ([a_rule(Status="Disabled")], None),
        ([{"Status": "Enabled", "Prefix": "", "Expiration": {"Days": 1}}], None),
    ],
    ids=["the soonest", "of the root", "of one job", "of some", "off", "of what is current"],
)
def test_only_rules_for_noncurrent_versions_of_the_whole_root_count(rules: list[Any], days: int | None):
    assert expire_days(rules, "root/") == days


@pytest.mark.parametrize(
    ("code", "status", "passes"),
    [
        ("SlowDown", 503, True),
        ("InternalError", 500, True),
        ("KMS.ThrottlingException", 400, True),
        ("TooManyRequests", 429, True),
        ("KMS.DisabledException", 400, False),
        ("InvalidArgument", 400, False),
        ("NotImplemented", 501, False),
    ],
)
def test_answer_says_whether_it_may_be_another_one_soon(code: str, status: int, passes: bool):
    store = a_store()
    with Stubber(store._client) as answers:
        answers.add_client_error("put_object", code, http_status_code=status)
        with pytest.raises(StoreUnavailableError, match=code) as caught:
            store.write("a", b"1")
    assert caught.value.passes_soon is passes
    assert isinstance(caught.value, StoreRefusedError) is not passes
