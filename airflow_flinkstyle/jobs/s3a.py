"""How S3A, Hadoop's own client of S3, becomes who the driver's environment says. Pure.

Its default chain knows keys, containers and instances, and Spark hands it the keys of the driver's
environment. A role, a web identity and a profile it must be told; then it gets its own credentials, and
refreshes them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from airflow_flinkstyle.storage.s3_login import role_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_S3A: Final = "spark.hadoop.fs.s3a."
PROVIDER: Final = f"{_S3A}aws.credentials.provider"
REGION: Final = f"{_S3A}endpoint.region"
_HADOOP: Final = "org.apache.hadoop.fs.s3a."
_KEYS_OR_MACHINE: Final = (
    f"{_HADOOP}TemporaryAWSCredentialsProvider",
    f"{_HADOOP}SimpleAWSCredentialsProvider",
    f"{_HADOOP}auth.IAMInstanceCredentialsProvider",
)
_SDK_1: Final = re.compile(r"hadoop-(?:aws|client-api)[-:](?:2\.|3\.[0-3](?:\D|$))")
"""Hadoop before 3.4 has the first AWS SDK for Java, whose classes have other names."""


def has_first_sdk(names: Iterable[str]) -> bool:
    """Tell from names of jars and packages whether S3A has the first AWS SDK for Java; else the second."""
    return any(_SDK_1.search(name) for name in names)


def s3a_conf(env: Mapping[str, str], *, first_sdk: bool) -> dict[str, str]:
    """Return the settings by which S3A assumes what the driver's environment names; none for keys.

    Args:
        env: The driver's.
        first_sdk: Whether S3A has the first AWS SDK for Java.
    """
    role = role_of(env)
    own = _own_provider(env, first_sdk=first_sdk)
    if role is None:
        return {} if own is None else {PROVIDER: own}
    conf = {
        "aws.credentials.provider": f"{_HADOOP}auth.AssumedRoleCredentialProvider",
        "assumed.role.arn": role.arn,
        "assumed.role.session.name": role.session_name,
        "assumed.role.external.id": role.external_id,
        "assumed.role.session.duration": f"{role.duration_s}s" if role.duration_s else None,
        "assumed.role.sts.endpoint": _host(role.sts_endpoint),
        "assumed.role.sts.endpoint.region": env.get("AWS_REGION") if role.sts_endpoint else None,
        "assumed.role.credentials.provider": own or ",".join(_KEYS_OR_MACHINE),
    }
    return {f"{_S3A}{name}": value for name, value in conf.items() if value}


def _host(endpoint: str | None) -> str | None:
    """Return what S3A asks for: it puts https before it, whatever is there."""
    return urlsplit(endpoint).netloc or endpoint if endpoint else None


def _own_provider(env: Mapping[str, str], *, first_sdk: bool) -> str | None:
    """Return the class for what S3A's default chain leaves out; None if it finds it."""
    if env.get("AWS_ACCESS_KEY_ID"):
        return None
    if env.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        if first_sdk:
            return "com.amazonaws.auth.WebIdentityTokenCredentialsProvider"
        return "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
    if env.get("AWS_PROFILE"):
        if first_sdk:
            return "com.amazonaws.auth.profile.ProfileCredentialsProvider"
        return "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider"
    return None
