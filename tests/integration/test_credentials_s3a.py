"""S3A, Hadoop's own client of S3, gets its own tokens and outlives them."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.spec import PROVIDER, s3a_conf
from airflow_flinkstyle.storage.s3_login import ROLE_VARIABLE, role_to_text
from airflow_flinkstyle.storage.s3_settings import AssumedRole
from testbed.certificates import CertificateAuthority
from testbed.drivers import SPARK_PYTHON, spark_conf, spark_env
from testbed.jvm import spark_options
from testbed.s3 import S3Server
from testbed.sts import ROLE, TokenService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.nightly]
WRITES = textwrap.dedent("""\
    import json, sys, time
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.master("local[1]")
    for name, value in json.loads(sys.argv[2]).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    conf, Path = spark._jsc.hadoopConfiguration(), spark._jvm.org.apache.hadoop.fs.Path
    files = Path(sys.argv[1]).getFileSystem(conf)
    for number in range(24):
        place = Path(f"{sys.argv[1]}/{number}")
        stream = files.create(place, True)
        stream.write(b"x")
        stream.close()
        assert files.getFileStatus(place).getLen() == 1
        time.sleep(0.5)
    print("WRITTEN")
    """)


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(tmp_path / "s3", authorization="none") as upstream:
        upstream.create_bucket("checkpoints")
        yield upstream


def test_s3a_outlives_the_tokens_of_a_web_identity(tmp_path: Path, upstream: S3Server):
    (tmp_path / "token").write_text("who-i-am")
    with TokenService(upstream, life_s=5.0) as service:
        identity = {
            "AWS_ROLE_ARN": ROLE,
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_SESSION_NAME": "s3a",
            "AWS_ENDPOINT_URL_STS": service.endpoint,
            "AWS_REGION": "us-east-1",
        }
        _writes_for_many_lives(service, identity, {})
        assert set(service.seen.by_key) == {""}


@pytest.mark.matrix
def test_s3a_outlives_the_tokens_of_a_role_that_it_assumes_by_keys(tmp_path: Path, upstream: S3Server):
    """S3A asks the token service by https at port 443, so it comes through a proxy here."""
    authority = CertificateAuthority()
    with TokenService(upstream, life_s=5.0, tls=authority.server_context(tmp_path)) as service:
        role = AssumedRole(arn=ROLE, session_name="s3a", sts_endpoint="https://127.0.0.1")
        identity = {
            ROLE_VARIABLE: role_to_text(role),
            "AWS_ACCESS_KEY_ID": "AKIAOWN",
            "AWS_SECRET_ACCESS_KEY": "own-secret",
            "AWS_REGION": "us-east-1",
        }
        by_proxy = {
            "spark.hadoop.fs.s3a.proxy.host": "127.0.0.1",
            "spark.hadoop.fs.s3a.proxy.port": str(service.port),
            "spark.driver.extraJavaOptions": f"{spark_options()} {authority.java_options(tmp_path)}",
        }
        _writes_for_many_lives(service, identity, by_proxy)
        assert set(service.seen.by_key) == {"AKIAOWN"}


def _writes_for_many_lives(service: TokenService, identity: dict[str, str], more: dict[str, str]) -> None:
    """Let a Spark write by S3A for several lives of its tokens."""
    conf = {
        **spark_conf(),
        **s3a_conf(identity, first_sdk=False),
        "spark.hadoop.fs.s3a.endpoint": service.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        **more,
    }
    assert PROVIDER in conf
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS")}
    done = subprocess.run(
        [str(SPARK_PYTHON), "-c", WRITES, "s3a://checkpoints/job", json.dumps(conf)],
        check=False, env={**inherited, **spark_env(), **identity}, capture_output=True, text=True,
        timeout=400,
    )  # fmt: skip
    assert "WRITTEN" in done.stdout, done.stderr[-4000:]
    assert set(service.seen.assumed) == {"s3a"}
    assert len(service.seen.assumed) > 4
