from __future__ import annotations

import re

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.secrets import (
    REDACTED_BY_SPARK,
    holds_secret,
    require_no_secrets,
    settings_within,
    without_secrets,
)

SECRET = "s3cr3t-value"  # noqa: S105
SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": SECRET,
    "spark.hadoop.fs.s3a.access.key": SECRET,
    "spark.hadoop.fs.s3a.session.token": SECRET,
    "spark.hadoop.fs.s3a.bucket.logs.secret.key": SECRET,
    "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net": SECRET,
    "spark.ssl.keyPassword": SECRET,
    "spark.ssl.trustStorePassword": SECRET,
    "spark.ssl.ui.keyStorePassword": SECRET,
    "spark.authenticate.secret": SECRET,
    "spark.kafka.clusters.a.sasl.jaas.config": SECRET,
    "spark.driver.extraJavaOptions": f"-Xmx1g -Djavax.net.ssl.trustStorePassword={SECRET}",
    "spark.executor.extraJavaOptions": f"-Daws.secretAccessKey={SECRET}",
    "spark.my.jdbc": f"jdbc:postgresql://db/x?user=me&password={SECRET}",
    "spark.jars.repositories": f"https://me:{SECRET}@repo.example/maven",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_ACCESS_KEY_ID": SECRET,
    "AWS_SESSION_TOKEN": SECRET,
    "DB_PASSWORD": SECRET,
    "DB_PASSWD": SECRET,
    "GITHUB_TOKEN": SECRET,
}
HARMLESS = {
    "spark.jars": "/jars/spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "spark.jars.packages": "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "spark.redaction.regex": "(?i)secret|password|mine=.*",
    "spark.sql.redaction.string.regex": "password=.*",
    "spark.authenticate": "true",
    "spark.hadoop.dfs.block.access.token.enable": "true",
    "spark.hadoop.hadoop.security.credential.provider.path": "jceks://file/etc/keys.jceks",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "spark.kubernetes.driver.secrets.keys": "/etc/keys",
    "spark.kubernetes.driver.secretKeyRef.KEY": "keys:key",
    "spark.kubernetes.authenticate.driver.oauthTokenFile": "/var/run/token",
    "spark.kafka.clusters.a.sasl.token.mechanism": "SCRAM-SHA-512",
    "spark.driver.extraJavaOptions": "-Xmx1g -Dfile.encoding=UTF-8",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
    "TZ": "UTC",
}


@pytest.mark.parametrize("name", SECRETS)
def test_setting_with_a_secret_is_refused_by_name_and_not_shown(name: str):
    with pytest.raises(BadInputError, match=re.escape(name)) as refused:
        require_no_secrets("the conf of job orders", {"spark.ui.enabled": "false", name: SECRETS[name]})
    assert SECRET not in str(refused.value)
    assert "credential provider" in refused.value.remedy
    assert "environment" in refused.value.remedy


@pytest.mark.parametrize("name", HARMLESS)
def test_setting_that_only_sounds_like_one_passes(name: str):
    assert not holds_secret(name, HARMLESS[name])


def test_whatever_spark_hides_by_its_name_is_a_secret_unless_it_says_where_one_is():
    for word in ("secret", "password", "token", "access.key", "accesskey", "ACCESS.KEY", "Password"):
        assert re.search(REDACTED_BY_SPARK, word)
        assert holds_secret(f"spark.some.{word}", SECRET)
        assert holds_secret(f"spark.{word}.some", SECRET)
        assert not holds_secret(f"spark.some.{word}.file", "/etc/x")


def test_secrets_within_an_application_are_refused_and_references_to_them_are_not():
    reference = {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "logins", "key": "password"}}}
    container = {"name": "spark-kubernetes-driver", "env": [reference]}
    spec = {"containers": [container], "imagePullSecrets": [{"name": "registry"}]}
    require_no_secrets("it", settings_within({"driver": {"template": {"spec": spec}}}))
    for application in (
        {"driver": {"template": {"spec": {"containers": [{"env": [{"name": "PASSWORD", "value": "x"}]}]}}}},
        {"sparkConf": {"spark.my.password": "x"}},
        {"executor": {"envVars": {"API_TOKEN": "x"}}},
    ):
        with pytest.raises(BadInputError, match=r"PASSWORD|spark\.my\.password|API_TOKEN"):
            require_no_secrets("it", settings_within(application))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["--db-password", SECRET, "--out", "/out"], ["--db-password", "***", "--out", "/out"]),
        (["--api-key=s3cr3t", "--verbose"], ["--api-key=***", "--verbose"]),
        (["apiKey=s3cr3t", "passcode=12", "key=s3cr3t"], ["apiKey=***", "passcode=***", "key=***"]),
        (["-secret", SECRET, "--token", "--dry-run"], ["-secret", "***", "--token", "--dry-run"]),
        (["https://me:s3cr3t@host/a"], ["https://***@host/a"]),
        (
            ["jdbc:postgresql://db/x?user=me&password=s3cr3t&a=b"],
            ["jdbc:postgresql://db/x?user=me&password=***&a=b"],
        ),
        (['{"password": "s3cr3t", "user": "me"}'], ['{"password": "***", "user": "me"}']),
        (["--token-file", "/run/token", "monkey=1"], ["--token-file", "/run/token", "monkey=1"]),
        (["a:9092,b:9092", "orders", "s3a://bucket/ck"], ["a:9092,b:9092", "orders", "s3a://bucket/ck"]),
    ],
)
def test_arguments_of_a_script_are_shown_without_their_secrets(given: list[str], shown: list[str]):
    assert without_secrets(given) == tuple(shown)
