"""How boto3 is set up to reach an S3 service."""

from __future__ import annotations

import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.storage.s3_login import Renewal, log_in
from airflow_flinkstyle.storage.s3_parts import PART_BYTES
from airflow_flinkstyle.storage.streams import LARGE_BYTES

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.s3_settings import S3Settings

_ENCRYPTIONS = ("AES256", "aws:kms", "aws:kms:dsse")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_MAKING = threading.Lock()
"""A client is work for a processor: several made at once keep an API server's other threads from theirs."""


def encryption_of(settings: S3Settings) -> dict[str, str]:
    """Return how every kind of write asks for encryption; empty to leave it to the bucket.

    Raises:
        BadInputError: If the service could not understand it.
    """
    kind = settings.encryption or os.environ.get("FLINKSTYLE_S3_ENCRYPTION")
    key = settings.kms_key_id or os.environ.get("FLINKSTYLE_S3_KMS_KEY_ID")
    if kind not in {None, *_ENCRYPTIONS} or (key and kind in {None, "AES256"}):
        raise BadInputError(
            f"Expected server-side encryption {', '.join(_ENCRYPTIONS)} or none, and a KMS key only with "
            f"aws:kms, found {kind!r} and {'a key' if key else 'no key'}.",
            state_after="Nothing was read or written.",
            remedy="Correct FLINKSTYLE_S3_ENCRYPTION and FLINKSTYLE_S3_KMS_KEY_ID, or the connection's "
            "service_config.s3 (server_side_encryption, sse_kms_key_id).",
        )
    if kind is None:
        return {}
    return {"ServerSideEncryption": kind, **({"SSEKMSKeyId": key} if key else {})}


def make_client(settings: S3Settings, endpoint: str | None) -> Any:  # noqa: ANN401
    """Make a client that sends large payloads unsigned only where nobody can change them on the way."""
    import botocore.session
    from botocore.config import Config
    from botocore.exceptions import ProfileNotFound

    address = urlsplit(endpoint or "https:")
    path_style = settings.path_style if settings.path_style is not None else endpoint is not None
    config = Config(
        connect_timeout=settings.connect_timeout_s,
        read_timeout=settings.read_timeout_s,
        retries={"mode": "standard", "total_max_attempts": settings.max_attempts},
        max_pool_connections=settings.threads,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={
            "addressing_style": "path" if path_style else "auto",
            "payload_signing_enabled": not (address.scheme == "https" or address.hostname in _LOOPBACK),
        },
    )
    region = settings.region or os.environ.get("AWS_REGION")  # a driver is given it, and boto3 does not look
    if region is None and endpoint is not None:
        region = os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    core = botocore.session.get_session()
    # Nothing here looks at times, and parsing them is two thirds of what a listing costs.
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
    log_in(core, settings)
    try:
        core.get_credentials()  # which may ask a service: nobody else waits for that
        with _MAKING:
            client = _made(core, region_name=region, endpoint_url=endpoint, config=config)
    except ProfileNotFound as error:
        raise BadInputError(
            f"A profile of AWS's shared files on this machine was expected, found none: {error}.",
            state_after="Nothing was read or written.",
            remedy="Add it to the file of credentials or of configuration here, or name another one in the "
            "amazon connection's profile_name or in AWS_PROFILE.",
        ) from error
    Renewal(client, settings)
    return client


def _made(core: Any, *, region_name: str | None, **asked: Any) -> Any:  # noqa: ANN401
    import boto3

    models = _models(core.get_config_variable("data_path"))
    core.register_component("data_loader", models)
    client = boto3.session.Session(botocore_session=core, region_name=region_name).client("s3", **asked)
    models.search_paths[:] = dict.fromkeys(models.search_paths)  # each session adds boto3's once more
    return client


@cache
def _models(data_path: str | None) -> Any:  # noqa: ANN401
    """Return what reads AWS's descriptions of its services, each once: they are megabytes of JSON."""
    from botocore.loaders import create_loader

    return create_loader(data_path)


def fetch_config() -> Any:  # noqa: ANN401
    """Two parts of 32 MiB at a time per file that is fetched."""
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(multipart_threshold=LARGE_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=2)
