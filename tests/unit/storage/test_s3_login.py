from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.storage.errors import StoreDeniedError
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3 import make_client
from airflow_flinkstyle.storage.s3_login import ROLE_VARIABLE, role_of, role_to_text
from airflow_flinkstyle.storage.s3_settings import AssumedRole, S3Settings

if TYPE_CHECKING:
    from pathlib import Path

ARN = "arn:aws:iam::000000000000:role/streams"


def test_role_round_trips_through_the_drivers_environment():
    role = AssumedRole(arn=ARN, external_id="x", duration_s=900, sts_endpoint="http://127.0.0.1:9")
    assert role_of({ROLE_VARIABLE: role_to_text(role)}) == role
    assert role_of({ROLE_VARIABLE: ""}) is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"arn": "a", "policy": "b"}', "1"])
def test_variable_that_holds_no_role_is_refused(text: str):
    with pytest.raises(BadInputError, match=ROLE_VARIABLE):
        role_of({ROLE_VARIABLE: text})


def test_profile_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    with pytest.raises(BadInputError, match="streams"):
        make_client(S3Settings(profile="streams"), "http://127.0.0.1:9")


def test_token_file_that_is_not_there_is_named(tmp_path: Path):
    role = AssumedRole(arn=ARN, token_file=str(tmp_path / "token"), sts_endpoint="http://127.0.0.1:9")
    store = open_store("s3://bucket/root", S3Settings(endpoint="http://127.0.0.1:9", role=role))
    with pytest.raises(StoreDeniedError, match="token") as refused:
        store.head("x")
    assert str(tmp_path / "token") in str(refused.value)


def test_region_that_a_driver_is_given_is_its_region_on_aws_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    client = make_client(S3Settings(access_key="a", secret_key="b"), None)  # noqa: S106
    assert client.meta.region_name == "eu-west-1"


def test_clients_share_the_descriptions_of_s3_and_read_them_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    first, second = (
        make_client(S3Settings(access_key=key, secret_key="b"), None)  # noqa: S106
        for key in ("a", "c")
    )
    assert first.meta.service_model.metadata is second.meta.service_model.metadata
    assert [one._request_signer._credentials.access_key for one in (first, second)] == ["a", "c"]
