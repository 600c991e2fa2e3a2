"""From an amazon connection to S3 settings, for this process and for a driver.

A role, a web identity or a profile that a connection assumes is handed on by its name. The credentials that
it gives are temporary, so each process assumes it for itself, for as long as it runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.connections import require_type
from airflow_flinkstyle.storage.s3_login import ROLE_VARIABLE, role_to_text
from airflow_flinkstyle.storage.s3_settings import AssumedRole, S3Settings

if TYPE_CHECKING:
    from airflow.sdk import Connection

_ROLE_ARGUMENTS = {
    "RoleSessionName": "session_name",
    "ExternalId": "external_id",
    "DurationSeconds": "duration_s",
}
"""Arguments of ``assume_role`` that S3A knows too."""
_IDENTITY = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
    *("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_SESSION_NAME", ROLE_VARIABLE),
)


def s3_settings(connection: Connection) -> S3Settings:
    """Turn an amazon connection into S3 settings; nothing is assumed or asked for here."""
    from airflow.providers.amazon.aws.utils.connection_wrapper import AwsConnectionWrapper
    from airflow.sdk.log import mask_secret

    require_type(connection, "aws")
    wrapper = AwsConnectionWrapper(conn=connection)
    for secret in (wrapper.aws_secret_access_key, wrapper.aws_session_token):
        if secret:
            mask_secret(secret)
    service = wrapper.get_service_config("s3")
    return S3Settings(
        endpoint=wrapper.get_service_endpoint_url("s3"),
        region=wrapper.region_name,
        access_key=wrapper.aws_access_key_id,
        secret_key=wrapper.aws_secret_access_key,
        session_token=wrapper.aws_session_token,
        profile=wrapper.profile_name,
        role=_role(wrapper, connection.conn_id),
        encryption=service.get("server_side_encryption"),
        kms_key_id=service.get("sse_kms_key_id"),
    )


def _role(wrapper: Any, conn_id: str) -> AssumedRole | None:  # noqa: ANN401
    """Return the role that the connection assumes.

    Raises:
        BadInputError: If a driver could not assume it by itself.
    """
    if wrapper.role_arn is None:
        return None
    given = dict(wrapper.assume_role_kwargs)
    arguments = {_ROLE_ARGUMENTS[name]: given.pop(name) for name in tuple(given) if name in _ROLE_ARGUMENTS}
    token_file = None
    if wrapper.assume_role_method == "assume_role_with_web_identity":
        extra = wrapper.extra_config
        federation = extra.get("assume_role_with_web_identity_federation")
        token_file = extra.get("assume_role_with_web_identity_token_file")
        token_file = token_file or os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE")
        if federation != "file" or not token_file:
            raise _not_by_itself(conn_id, f"a web identity by {federation!r} and token file {token_file!r}")
    elif wrapper.assume_role_method != "assume_role":
        raise _not_by_itself(conn_id, wrapper.assume_role_method)
    if given:
        raise _not_by_itself(conn_id, f"assume_role_kwargs {', '.join(sorted(given))}")
    endpoint = wrapper.get_service_endpoint_url("sts", sts_connection_assume=True)
    return AssumedRole(arn=wrapper.role_arn, token_file=token_file, sts_endpoint=endpoint, **arguments)


def _not_by_itself(conn_id: str, found: str) -> BadInputError:
    return BadInputError(
        f"Connection {conn_id} should name what a driver can assume by itself (assume_role with "
        f"{', '.join(_ROLE_ARGUMENTS)}; a web identity by a token file), but names {found}.",
        state_after="Nothing was started or changed.",
        remedy="Let the machines have the role, and name neither keys nor a role in the connection; or name "
        "one that is assumed in one of these ways.",
    )


def s3_environment(settings: S3Settings) -> dict[str, str]:
    """Return the settings as the environment variables that the driver's agent, and S3A, read.

    An empty variable is to be removed from what the driver inherits: it belongs to another login.
    """
    values = {
        "AWS_ENDPOINT_URL_S3": settings.endpoint,
        "AWS_REGION": settings.region,
        "FLINKSTYLE_S3_ENCRYPTION": settings.encryption,
        "FLINKSTYLE_S3_KMS_KEY_ID": settings.kms_key_id,
    }
    identity: dict[str, str | None] = {
        "AWS_ACCESS_KEY_ID": settings.access_key,
        "AWS_SECRET_ACCESS_KEY": settings.secret_key,
        "AWS_SESSION_TOKEN": settings.session_token,
        "AWS_PROFILE": None if settings.access_key else settings.profile,
    }
    role = settings.role
    if role is not None and role.token_file is not None:
        values["AWS_ENDPOINT_URL_STS"] = role.sts_endpoint
        identity = {
            "AWS_ROLE_ARN": role.arn,
            "AWS_WEB_IDENTITY_TOKEN_FILE": role.token_file,
            "AWS_ROLE_SESSION_NAME": role.session_name,
        }
    elif role is not None:
        values[ROLE_VARIABLE] = role_to_text(role)
    given = {name: value for name, value in {**values, **identity}.items() if value}
    return {**dict.fromkeys(_IDENTITY, ""), **given} if any(identity.values()) else given
