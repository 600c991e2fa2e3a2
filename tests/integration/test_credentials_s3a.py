"""S3A, Hadoop's own client of S3, gets its own tokens and outlives them."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.s3a import PROVIDER, s3a_conf
from testbed.drivers import SPARK_PYTHON, spark_conf, spark_env
from testbed.s3 import S3Server
from testbed.sts import ROLE, TokenService

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration
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


def test_s3a_outlives_the_tokens_of_a_web_identity(tmp_path: Path):
    (tmp_path / "token").write_text("who-i-am")
    with (
        S3Server(tmp_path / "s3", authorization="none") as upstream,
        TokenService(upstream, life_s=5.0) as service,
    ):
        upstream.create_bucket("checkpoints")
        identity = {
            "AWS_ROLE_ARN": ROLE,
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
            "AWS_ROLE_SESSION_NAME": "s3a",
            "AWS_ENDPOINT_URL_STS": service.endpoint,
            "AWS_REGION": "us-east-1",
        }
        conf = {
            **spark_conf(),
            **s3a_conf(identity, first_sdk=False),
            "spark.hadoop.fs.s3a.endpoint": service.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
        assert PROVIDER in conf
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS")}
        done = subprocess.run(
            [str(SPARK_PYTHON), "-c", WRITES, "s3a://checkpoints/job", json.dumps(conf)],
            check=False, env={**inherited, **spark_env(), **identity}, capture_output=True, text=True,
            timeout=400,
        )  # fmt: skip
        assert "WRITTEN" in done.stdout, done.stderr[-4000:]
        assert "s3a" in service.seen.assumed
        assert len(service.seen.assumed) > 4
