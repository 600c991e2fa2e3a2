"""How to reach an S3 service."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.breaker import Breaker


@dataclass(frozen=True, slots=True, kw_only=True)
class AssumedRole:
    """A role to assume, again whenever its credentials are about to expire."""

    arn: str
    session_name: str = "flinkstyle"
    external_id: str | None = None
    duration_s: int | None = None
    """How long its credentials are valid, in seconds; None for the service's default."""
    token_file: str | None = None
    """File with the token of a web identity; None: by the credentials at hand."""
    sts_endpoint: str | None = None
    """URL of the service that gives its credentials; None for AWS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How to reach an S3 service. What is None comes from boto3's standard environment and files.

    Without keys, profile and role that is also the role in ``FLINKSTYLE_S3_ROLE``.
    """

    endpoint: str | None = None
    """URL of the service; None for AWS, or ``AWS_ENDPOINT_URL``."""
    region: str | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    """Of the shared configuration files of this machine."""
    role: AssumedRole | None = None
    """Assumed with the keys or the profile above, or with what boto3 finds."""
    path_style: bool | None = None
    """Bucket in the path, not in the host name; None means: whenever an endpoint is given."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 60.0
    max_attempts: int = 4
    """Attempts per call, by boto3, before the store counts as unavailable."""
    encryption: str | None = None
    """Server-side encryption of what is written: ``AES256`` (SSE-S3), ``aws:kms`` or ``aws:kms:dsse``.

    None for ``FLINKSTYLE_S3_ENCRYPTION``, or else the bucket's own default.
    """
    kms_key_id: str | None = None
    """Key for SSE-KMS; None for ``FLINKSTYLE_S3_KMS_KEY_ID``, or else the account's default key."""
    threads: int = 16
    """Size of the connection pool: at least as many as threads that use the store at once."""
    breaker: Breaker | None = field(default=None, repr=False, compare=False)
    """Stops calls to the service once it does not answer; None lets every call through."""

    def impatient(self, answer_s: float, *, breaker: Breaker | None = None) -> S3Settings:
        """Return settings by which no call takes longer than twice ``answer_s``, and none is tried again.

        Args:
            answer_s: How long to connect, and to wait for the next bytes, in seconds.
            breaker: Shared by the callers that wait for the service.
        """
        return replace(
            self, connect_timeout_s=answer_s, read_timeout_s=answer_s, max_attempts=1, breaker=breaker
        )
