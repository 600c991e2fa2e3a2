"""S3 servers with conditional writes, over a folder: s3proxy and versitygw."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Self

from testbed import paths
from testbed.ports import LOOPBACK, free_port, is_listening
from testbed.process import Service

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ACCESS_KEY = "flinkstyle"
SECRET_KEY = "flinkstyle-secret"  # noqa: S105  # of a server that lives for one test run
REGION = "us-east-1"
_LOGGING = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d %level %logger{0} %msg%n</pattern></encoder>
  </appender>
  <root level="warn"><appender-ref ref="out"/></root>
</configuration>
"""
"""Without it everything is logged down to debug: 250 MB in one demo."""


class S3Server:
    """s3proxy: endpoint, keys, buckets; restarts keep what is stored.

    Its replace-if-unchanged looks first and writes then, so races for one object need ``VersityGw``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        heap_mb: int = 768,
        authorization: str = "aws-v2-or-v4",
        host: str = LOOPBACK,
    ) -> None:
        """Describe it.

        Args:
            folder: Of its files.
            heap_mb: Of its JVM.
            authorization: ``none`` lets in everybody, for a stand-in that checks before it.
            host: The address of this machine where it listens.
        """
        self.host, self.port = host, free_port()
        self.access_key, self.secret_key, self.region = ACCESS_KEY, SECRET_KEY, REGION
        self._folder = folder
        self._heap_mb = heap_mb
        self._authorization = authorization
        self._client: Any = None
        self.service = Service(
            type(self).__name__,
            self._command(),
            log_file=folder / "server.log",
            ready=lambda: is_listening(self.port, self.host),
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def data(self) -> Path:
        """The folder with one folder per bucket."""
        return self._folder / "data"

    @property
    def endpoint(self) -> str:
        """URL of the server."""
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        """Start the server and wait until it listens."""
        self._configure()
        self.service.start()

    def launch(self) -> None:
        """Start without waiting."""
        self._configure()
        self.service.launch()

    def wait_ready(self) -> None:
        """Return once the server listens."""
        self.service.wait_ready()

    def stop(self) -> None:
        """Stop the server; the buckets stay."""
        self.service.stop()

    def kill(self) -> None:
        """End the server with SIGKILL; the buckets stay."""
        self.service.kill()

    def client(self) -> Any:  # noqa: ANN401  # boto3 makes its clients at run time
        """Return a boto3 client with the server's keys."""
        if self._client is None:
            import boto3
            from botocore.config import Config

            self._client = boto3.client(
                "s3",
                endpoint_url=self.endpoint,
                aws_access_key_id=self.access_key,
                aws_secret_access_key=self.secret_key,
                region_name=self.region,
                config=Config(s3={"addressing_style": "path"}),
            )
        return self._client

    def create_bucket(self, name: str) -> str:
        """Create a bucket and return its name."""
        self.client().create_bucket(Bucket=name)
        return name

    def spark_conf(self) -> dict[str, str]:
        """Return the Spark settings with which ``s3a://`` paths reach this server."""
        s3a = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "access.key": self.access_key,
            "secret.key": self.secret_key,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        }
        return {f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}

    def _command(self) -> list[str | Path]:
        return [
            # The full JIT: with the first tier only it is some ten times slower.
            *(paths.java(), f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", "-cp", paths.class_path("s3proxy")),
            f"-Dlogback.configurationFile={self._folder / 'logback.xml'}",
            *("org.gaul.s3proxy.Main", "--properties", self._folder / "s3proxy.properties"),
        ]

    def _configure(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        (self._folder / "logback.xml").write_text(_LOGGING)
        settings = {
            "s3proxy.authorization": self._authorization,
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.identity": self.access_key,
            "s3proxy.credential": self.secret_key,
            "s3proxy.v4-max-non-chunked-request-size": "134217728",
            "s3proxy.v4-max-chunk-size": "134217728",
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(self.data),
        }
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._folder / "s3proxy.properties").write_text(text)


class VersityGw(S3Server):
    """versitygw: quick, and every conditional write of it is atomic."""

    def _command(self) -> list[str | Path]:
        return [
            *(paths.program("versitygw"), "--port", f"{self.host}:{self.port}", "--quiet"),
            *("--access", self.access_key, "--secret", self.secret_key, "--region", self.region),
            *("posix", self.data),
        ]

    def _configure(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)


class VersionsGw(VersityGw):
    """versitygw that can keep versions, as a bucket's setting says."""

    def keep_versions(self, bucket: str) -> None:
        """Let a bucket keep what is deleted or replaced from now on."""
        self.client().put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})

    def _command(self) -> list[str | Path]:
        *command, data = super()._command()
        return [*command, "--versioning-dir", self._folder / "versions", data]

    def _configure(self) -> None:
        super()._configure()
        (self._folder / "versions").mkdir(exist_ok=True)


class PolicyGw(VersityGw):
    """versitygw with users of its own, each of whom may do what a bucket's policy says, and no more."""

    def allow(self, bucket: str, policies: Mapping[str, Mapping[str, Any]]) -> None:
        """Add a user for each policy, by the user's name, and enforce all of them on the bucket."""
        statements = []
        for user, policy in policies.items():
            self._add(user)
            statements += [{**one, "Principal": {"AWS": [user]}} for one in policy["Statement"]]
        whole = {"Version": "2012-10-17", "Statement": statements}
        self.client().put_bucket_policy(Bucket=bucket, Policy=json.dumps(whole))

    @staticmethod
    def secret_of(user: str) -> str:
        """Return a user's secret key; its access key is its name."""
        return f"{user}-secret"

    def _add(self, user: str) -> None:
        subprocess.run(  # noqa: S603  # a program of the testbed
            [
                *(paths.program("versitygw"), "admin", "--endpoint-url", self.endpoint),
                *("--access", self.access_key, "--secret", self.secret_key, "create-user"),
                *("--access", user, "--secret", self.secret_of(user), "--role", "user"),
            ],
            check=True,
            capture_output=True,
        )

    def _command(self) -> list[str | Path]:
        command = super()._command()
        where = command.index("posix")
        return [*command[:where], "--iam-dir", self._folder / "users", *command[where:]]

    def _configure(self) -> None:
        super()._configure()
        (self._folder / "users").mkdir(exist_ok=True)
