"""Who an S3 client is: keys, or a role. Temporary credentials are not kept longer than they are valid."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.storage.errors import StoreDeniedError
from airflow_flinkstyle.storage.s3_settings import AssumedRole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.storage.s3_settings import S3Settings

ROLE_VARIABLE: Final = "FLINKSTYLE_S3_ROLE"
"""Brings a driver the role to assume, as JSON: AWS has variables for web identities only."""
EXPIRED: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
)
_NO_BODY: Final = "400"
"""The only error code that an answer to a HEAD has."""
_SHARED_FOR_S: Final = 0.5


def role_to_text(role: AssumedRole) -> str:
    """Return the role as ``FLINKSTYLE_S3_ROLE`` brings it."""
    return json.dumps({name: value for name, value in asdict(role).items() if value is not None})


def role_of(environment: Mapping[str, str]) -> AssumedRole | None:
    """Return the role that an environment names; None if it names none.

    Raises:
        BadInputError: If it is not what ``role_to_text`` writes.
    """
    text = environment.get(ROLE_VARIABLE)
    if not text:
        return None
    try:
        return AssumedRole(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise BadInputError(
            f"A role as JSON was expected in {ROLE_VARIABLE}, found a fault: {error}.",
            state_after="Nothing was read or written.",
            remedy="Take the variable out, or correct it.",
        ) from error


def log_in(core: Any, settings: S3Settings) -> None:  # noqa: ANN401
    """Give a botocore session the credentials of the settings; a role is assumed when it is needed first."""
    from botocore.credentials import DeferredRefreshableCredentials

    _take_keys(core, settings)
    is_own = settings.access_key is not None or settings.profile is not None
    role = settings.role if settings.role is not None or is_own else role_of(os.environ)
    if role is not None:
        fetch = _Fetch(role, settings)
        core._credentials = DeferredRefreshableCredentials(  # noqa: SLF001 - as boto3 knows no other way
            refresh_using=fetch, method="flinkstyle-role"
        )


def _take_keys(core: Any, settings: S3Settings) -> None:  # noqa: ANN401
    if settings.profile is not None:
        core.set_config_variable("profile", settings.profile)
    if settings.access_key is not None:
        core.set_credentials(settings.access_key, settings.secret_key, settings.session_token)


class _Fetch:
    """Fetches a role's credentials; those that assume it are looked up each time too."""

    def __init__(self, role: AssumedRole, settings: S3Settings) -> None:
        self._role, self._settings = role, settings

    def __call__(self) -> dict[str, str]:
        import botocore.session

        role = self._role
        asked: dict[str, Any] = {"RoleArn": role.arn, "RoleSessionName": role.session_name}
        asked |= {} if role.duration_s is None else {"DurationSeconds": role.duration_s}
        core = botocore.session.Session()
        _take_keys(core, self._settings)
        if role.token_file is None:
            asked |= {} if role.external_id is None else {"ExternalId": role.external_id}
            answer = self._client(core).assume_role(**asked)
        else:
            token = _token_in(role.token_file)  # it is changed in its place, so it is read each time
            answer = self._client(core).assume_role_with_web_identity(WebIdentityToken=token, **asked)
        given = answer["Credentials"]
        return {
            "access_key": given["AccessKeyId"],
            "secret_key": given["SecretAccessKey"],
            "token": given["SessionToken"],
            "expiry_time": given["Expiration"].isoformat(),
        }

    def _client(self, core: Any) -> Any:  # noqa: ANN401
        from botocore.config import Config

        region = self._settings.region or core.get_config_variable("region")
        return core.create_client(
            "sts",
            endpoint_url=self._role.sts_endpoint,
            region_name=region or os.environ.get("AWS_REGION") or "us-east-1",
            config=Config(
                connect_timeout=self._settings.connect_timeout_s,
                read_timeout=self._settings.read_timeout_s,
                retries={"mode": "standard", "total_max_attempts": self._settings.max_attempts},
            ),
        )


def _token_in(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise StoreDeniedError(
            f"The token of a web identity was expected in {path}, but it could not be read: {error}.",
            state_after="Nothing was changed.",
            remedy="Let the file be there and readable, or correct its path in the amazon connection.",
        ) from error


class Renewal:
    """Lets a client whose credentials have expired fetch others, and send the request again.

    The service may end them before the time that it gave, and another clock may be behind. Everything is
    looked up from the beginning: a session keeps a role's credentials until the time that was given.
    """

    def __init__(self, client: Any, settings: S3Settings) -> None:  # noqa: ANN401
        self._signer, self._settings = client._request_signer, settings  # noqa: SLF001
        self._lock, self._renewed_s = threading.Lock(), 0.0
        client.meta.events.register("needs-retry.s3", self._retry_after_s)

    def _retry_after_s(self, *, response: Any, operation: Any, attempts: int, **_: Any) -> int | None:  # noqa: ANN401
        """Return after how many seconds to send a request again; None if it is not for this reason."""
        code = "" if response is None else str(response[1].get("Error", {}).get("Code", ""))
        is_expired = code in EXPIRED or (code == _NO_BODY and operation.name.startswith("Head"))
        most = max(self._settings.max_attempts, 2)  # a client that tries nothing twice, too
        is_again = is_expired and attempts < most and self._has_others()
        return 0 if is_again else None

    def _has_others(self) -> bool:
        """Get other credentials; threads that were refused together share what one of them got."""
        if self._settings.access_key is not None and self._settings.role is None:
            return False  # a connection's own keys: only a person can change them
        with self._lock:
            if time.monotonic() - self._renewed_s > _SHARED_FOR_S:
                self._signer._credentials = credentials_of(self._settings)  # noqa: SLF001
                self._renewed_s = time.monotonic()
        return self._signer._credentials is not None  # noqa: SLF001


def credentials_of(settings: S3Settings) -> Any:  # noqa: ANN401
    """Return the credentials of a session that remembers nothing."""
    import botocore.session

    core = botocore.session.Session()
    log_in(core, settings)
    return core.get_credentials()
