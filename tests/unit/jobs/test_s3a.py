from __future__ import annotations

import pytest

from airflow_flinkstyle.hooks.aws import s3_environment
from airflow_flinkstyle.jobs.spec import PROVIDER, REGION, has_first_sdk, s3a_conf, submission_of
from airflow_flinkstyle.storage.s3_settings import AssumedRole, S3Settings
from tests.unit.jobs.specs import a_spec, a_target

ARN = "arn:aws:iam::1:role/streams"
S3A = "spark.hadoop.fs.s3a."


def conf_of(settings: S3Settings, *, first_sdk: bool = False) -> dict[str, str]:
    env = {name: value for name, value in s3_environment(settings).items() if value}
    return s3a_conf(env, first_sdk=first_sdk)


def test_keys_and_machines_are_left_to_s3as_own_chain():
    assert conf_of(S3Settings(access_key="a", secret_key="b")) == {}  # noqa: S106
    assert conf_of(S3Settings(region="eu-west-1")) == {}


def test_role_is_assumed_by_s3a_itself():
    role = AssumedRole(
        arn=ARN, external_id="x", duration_s=3600, session_name="s", sts_endpoint="https://sts.example:8443"
    )
    conf = conf_of(S3Settings(access_key="a", secret_key="b", role=role, region="eu-west-1"))  # noqa: S106
    assert conf[PROVIDER] == "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
    assert {name.removeprefix(f"{S3A}assumed.role."): value for name, value in conf.items()} | {} == {
        PROVIDER: conf[PROVIDER],
        "arn": ARN,
        "external.id": "x",
        "session.name": "s",
        "session.duration": "3600s",
        "sts.endpoint": "sts.example:8443",
        "sts.endpoint.region": "eu-west-1",
        "credentials.provider": conf[f"{S3A}assumed.role.credentials.provider"],
    }
    assert "IAMInstance" in conf[f"{S3A}assumed.role.credentials.provider"]


@pytest.mark.parametrize(
    ("settings", "second", "first"),
    [
        (
            S3Settings(role=AssumedRole(arn=ARN, token_file="/token")),  # noqa: S106
            "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
            "com.amazonaws.auth.WebIdentityTokenCredentialsProvider",
        ),
        (
            S3Settings(profile="streams"),
            "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
            "com.amazonaws.auth.profile.ProfileCredentialsProvider",
        ),
    ],
)
def test_web_identity_and_profile_go_by_the_class_of_the_hadoop_in_use(
    settings: S3Settings, second: str, first: str
):
    assert conf_of(settings) == {PROVIDER: second}
    assert conf_of(settings, first_sdk=True) == {PROVIDER: first}
    role = AssumedRole(arn=ARN)
    if settings.profile:
        base = conf_of(S3Settings(profile="streams", role=role))
        assert base[f"{S3A}assumed.role.credentials.provider"] == second


@pytest.mark.parametrize(
    ("name", "is_first"),
    [
        ("org.apache.hadoop:hadoop-aws:3.3.4", True), ("/jars/hadoop-aws-3.2.0.jar", True),
        ("hadoop-client-api-3.3.4.jar", True), ("hadoop-client-api-3.4.1.jar", False),
        ("/jars/hadoop-aws-3.5.0.jar", False), ("hadoop-aws-3.30.0.jar", False), ("x.jar", False),
    ],
)  # fmt: skip
def test_first_sdk_is_told_by_the_version_of_hadoop(name: str, is_first: bool):
    assert has_first_sdk(["other.jar", name]) is is_first


def test_driver_gets_what_to_assume_and_none_of_the_workers_own_identity():
    identity = s3_environment(S3Settings(profile="streams"))
    base = {"AWS_ACCESS_KEY_ID": "workers", "AWS_SECRET_ACCESS_KEY": "workers", "HOME": "/root"}
    where = {"root": "/r", "root_id": "r", "generation": 1, "claim_id": "c", "base_env": base}
    submission = submission_of(a_spec(), a_target(secret_env=identity), **where)
    assert submission.env["AWS_PROFILE"] == "streams"
    assert not {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} & submission.env.keys()
    assert any(part.startswith(f"{PROVIDER}=software.amazon") for part in submission.argv)
    own = a_spec(conf={PROVIDER: "mine"})
    argv = submission_of(own, a_target(secret_env=identity), **where).argv
    assert [part for part in argv if PROVIDER in part] == [f"{PROVIDER}=mine"]


def test_region_that_the_connection_names_is_told_to_s3a_unless_a_setting_says_another():
    where = {
        "root": "/r",
        "root_id": "r",
        "generation": 1,
        "claim_id": "c",
        "base_env": {"AWS_REGION": "the-workers-own"},
    }
    named = a_target(secret_env=s3_environment(S3Settings(region="eu-west-1")))
    assert f"{REGION}=eu-west-1" in submission_of(a_spec(), named, **where).argv
    argv = submission_of(a_spec(conf={REGION: "eu-west-3"}), named, **where).argv
    assert [part for part in argv if REGION in part] == [f"{REGION}=eu-west-3"]
    unnamed = a_target(secret_env=s3_environment(S3Settings(profile="streams")))
    assert not [part for part in submission_of(a_spec(), unnamed, **where).argv if REGION in part]


def test_worker_with_a_web_identity_of_its_own_gives_it_to_s3a_too():
    base = {"AWS_ROLE_ARN": ARN, "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token"}
    target = a_target(secret_env={"AWS_REGION": "eu-west-1"})
    submission = submission_of(
        a_spec(), target, root="/r", root_id="r", generation=1, claim_id="c", base_env=base
    )
    assert any("WebIdentityTokenFile" in part for part in submission.argv)
    assert submission.env["AWS_ROLE_ARN"] == ARN
