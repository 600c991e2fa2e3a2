"""A store in an S3 bucket (AWS, MinIO, Ceph, ...), through boto3, and how that is set up.

Conditional writes carry a token of their own in the object's metadata: where the answer to a write was
lost and boto3 repeated it, the refusal of the repetition is not mistaken for another writer's write.
"""

from __future__ import annotations

import base64
import contextlib
import os
import threading
import time
import uuid
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.python_versions import sha256_of
from airflow_flinkstyle.storage.base import CopiedObject, ObjectInfo, Versioned
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    ObjectMissingError,
    StoreError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.keys import checked_key, checked_prefix
from airflow_flinkstyle.storage.s3_errors import (
    ConflictError,
    NotModifiedError,
    PreconditionError,
    body_of,
    code_of,
    digest_of_copy,
    is_away,
    is_unsent,
    tag_of,
    translated,
)
from airflow_flinkstyle.storage.s3_login import Renewal, log_in
from airflow_flinkstyle.storage.s3_parts import PART_BYTES, copy_parts, send_parts
from airflow_flinkstyle.storage.s3_settings import S3Settings
from airflow_flinkstyle.storage.streams import LARGE_BYTES
from airflow_flinkstyle.storage.versions import Versioning, expire_days

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from io import BufferedReader
    from pathlib import Path

    from airflow_flinkstyle.storage.base import ObjectStore, ServerCopy

_TOKEN: Final = "flinkstyle-writer"  # noqa: S105 - a metadata field's name
_MOST_COPIED_BYTES = 5 << 30
"""The largest object that S3 copies by one request."""
_CONFLICT_RETRIES = 5


class S3Store:
    """``ObjectStore`` in a bucket, below a prefix."""

    def __init__(self, *, bucket: str, prefix: str = "", settings: S3Settings | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{checked_key(prefix)}/" if prefix else ""
        self._settings = settings or S3Settings()
        self._endpoint = (
            self._settings.endpoint
            or os.environ.get("AWS_ENDPOINT_URL_S3")
            or os.environ.get("AWS_ENDPOINT_URL")
        )
        self._encryption = encryption_of(self._settings)
        self._lock = threading.Lock()
        self._made: Any = None
        self._calls = threading.local()
        """Of each thread: whether a request of its present delete has got no answer."""

    def impatient(self, answer_s: float) -> S3Store:
        """Return a client of its own that gives up soon; see ``storage.open.impatient``."""
        settings = replace(self._settings.impatient(answer_s), threads=4)
        return S3Store(bucket=self._bucket, prefix=self._prefix.rstrip("/"), settings=settings)

    @property
    def uri(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def __repr__(self) -> str:
        """Name bucket and endpoint, never the keys."""
        return f"S3Store({self._where})"

    def local_path(self, key: str) -> Path | None:
        """Return None: the content is in no file of this machine."""
        checked_key(key)
        return None

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with ``prefix``, in key order, from behind ``after``."""
        checked_prefix(prefix)
        behind = {"StartAfter": self._prefix + after} if after else {}
        with self._translated("list", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=self._prefix + prefix, **behind
            )
            for page in pages:
                _ = page["IsTruncated"]  # an empty answer must not pass for an empty listing
                for entry in page.get("Contents", ()):
                    key = entry["Key"].removeprefix(self._prefix)
                    if key and not key.endswith("/"):  # folder markers of other tools
                        yield from self._listed(key, entry)

    def _listed(self, key: str, entry: Mapping[str, Any]) -> Iterator[ObjectInfo]:
        """Yield an entry of a listing, unless it has gone meanwhile.

        Some services list an object that is replaced at this moment without a version.
        """
        if "ETag" in entry:
            yield ObjectInfo(key=key, size_bytes=entry["Size"], version=tag_of(entry))
        elif (found := self.head(key)) is not None:
            yield found

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Yield, in order, the names of the folders directly below ``prefix``."""
        whole = self._prefix + checked_prefix(prefix)
        with self._translated("list", prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=whole, Delimiter="/"
            )
            for page in pages:
                _ = page["IsTruncated"]
                for entry in page.get("CommonPrefixes", ()):
                    yield entry["Prefix"].removeprefix(whole).rstrip("/")

    def head(self, key: str) -> ObjectInfo | None:
        """Return the object's size and version, or None if it does not exist."""
        try:
            with self._translated("read", key):
                answer = self._client.head_object(**self._at(key))
                return ObjectInfo(key=key, size_bytes=answer["ContentLength"], version=tag_of(answer))
        except ObjectMissingError:
            return None

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the content or a range of it."""
        if length == 0:
            return b""
        wanted: dict[str, str] = {}
        if start or length is not None:
            wanted["Range"] = f"bytes={start}-" + ("" if length is None else str(start + length - 1))
        with self._translated("read", key):
            try:
                content = body_of(self._client.get_object(**self._at(key), **wanted))
            except self._client.exceptions.ClientError as error:
                if code_of(error) in {"InvalidRange", "416"}:  # a range that starts at the end, as in files
                    return b""
                raise
        return content

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        """Return content and version; None if the key is missing or its version is still ``unless``."""
        condition = {} if unless is None else {"IfNoneMatch": unless}
        try:
            with self._translated("read", key, conditional=unless is not None):
                answer = self._client.get_object(**self._at(key), **condition)
                return Versioned(data=body_of(answer), version=tag_of(answer))
        except (ObjectMissingError, NotModifiedError):
            return None

    def write(self, key: str, data: bytes) -> str:
        """Create or overwrite; returns the new version."""
        with self._translated("write", key):
            return tag_of(self._client.put_object(**self._at(key), Body=data, **self._encryption))

    def write_many(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Create or overwrite several, one after the other."""
        for key, data in contents:
            self.write(key, data)

    def create(self, key: str, data: bytes) -> str:
        """Create; raises ``ObjectExistsError`` if the key exists. Exactly one of racing callers wins."""
        return self._put_if(key, data, {"IfNoneMatch": "*"}, lambda: ObjectExistsError.at(self.uri, key))

    def replace(self, key: str, data: bytes, *, expected: str) -> str:
        """Overwrite if the version is still ``expected``; raises ``ObjectChangedError`` otherwise."""

        def changed() -> ObjectChangedError:
            found = self.head(key)
            now = f"version {found.version}" if found else "nothing"
            return ObjectChangedError.at(self.uri, key, expected=f"version {expected}", found=now)

        try:
            return self._put_if(key, data, {"IfMatch": expected}, changed)
        except ObjectMissingError:
            raise changed() from None

    def upload(self, key: str, source: Path, *, sha256: str | None = None) -> str:
        """Create or overwrite from a local file, streamed; returns the new version.

        A file that goes in one request is compared by the service itself, a larger one before it is sent.
        """
        with source.open("rb") as file:
            before = os.fstat(file.fileno())
            if sha256 is not None and before.st_size >= LARGE_BYTES:
                found = _sha256_of(file)
                if found != sha256:
                    raise ObjectChangedError.at(self.uri, key, expected=sha256, found=found)
            return self._send(key, file, sha256, before)

    def upload_by_content(self, source: Path, folder: str, name: Callable[[str, int], str | None]) -> str:
        """Store a local file under a name that depends on its content; the second read is from memory."""
        with source.open("rb") as file:
            before = os.fstat(file.fileno())
            sha256 = _sha256_of(file)
            chosen = name(sha256, before.st_size)
            if chosen is not None:
                self._send(f"{folder}/{chosen}", file, sha256, before)
            return sha256

    def download(self, key: str, target: Path) -> None:
        """Write the content to a local file, streamed."""
        with self._translated("read", key), target.open("wb") as file:
            self._client.download_fileobj(self._bucket, self._full(key), file, Config=fetch_config())

    def copier_from(self, origin: ObjectStore) -> ServerCopy | None:
        """Return how to copy from a bucket of the same service, reached with the same keys."""
        if not isinstance(origin, S3Store) or self.service != origin.service:
            return None
        return partial(self._copy, origin)

    def delete(self, key: str) -> None:
        """Delete; a missing key is not an error.

        Raises:
            StoreUnavailableError: If a request for it got no answer, though boto3's next one did: the service
                may still carry that one out, on an object that was written again since.
        """
        client, self._calls.unanswered = self._client, False
        with contextlib.suppress(ObjectMissingError), self._translated("delete", key):
            client.delete_object(**self._at(key))
        if self._calls.unanswered:
            why = "a request for it got no answer and may still be carried out; a later one has deleted it"
            raise StoreUnavailableError.during(f"delete {key}", self._where, why)

    def _note_delete(self, *, response: object, caught_exception: Exception | None, **_: object) -> None:
        """Note that a request has got no answer, before boto3 repeats it; the same thread made the call."""
        if response is None and not is_unsent(caught_exception):
            self._calls.unanswered = True

    def versioning(self) -> Versioning | None:
        """Return whether the bucket keeps versions; None if it does not, or the key may not ask."""
        at = {"Bucket": self._bucket}
        try:
            with self._translated("read", "the bucket's versioning"):
                if self._client.get_bucket_versioning(**at).get("Status") != "Enabled":
                    return None
        except StoreError:
            return None
        try:
            with self._translated("read", "the bucket's lifecycle rules"):
                rules = self._client.get_bucket_lifecycle_configuration(**at).get("Rules", [])
        except StoreError:  # there are none, or they are not shown
            rules = []
        return Versioning(expire_days=expire_days(rules, self._prefix))

    @property
    def service(self) -> tuple[object, ...]:
        """What two stores must share for one to copy from the other."""
        own = self._settings
        keys = (own.access_key, own.secret_key, own.session_token)
        return (self._endpoint, own.region, *keys, own.profile, own.role)

    @property
    def _where(self) -> str:
        return f"{self.uri} at {self._endpoint or 'AWS'}"

    def _full(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _at(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._full(key)}

    @property
    def _client(self) -> Any:  # noqa: ANN401 - boto3 makes its client classes at run time
        with self._lock:
            if self._made is None:
                self._made = make_client(self._settings, self._endpoint)
                self._made.meta.events.register("needs-retry.s3.DeleteObject", self._note_delete)
            return self._made

    def _put_if(
        self, key: str, data: bytes, condition: dict[str, str], refusal: Callable[[], Exception]
    ) -> str:
        """Put under a condition; a refusal caused by our own first attempt counts as success."""
        token = uuid.uuid4().hex
        for attempt in range(_CONFLICT_RETRIES):
            try:
                with self._translated("write", key, conditional=True):
                    answer = self._client.put_object(
                        **self._at(key), Body=data, Metadata={_TOKEN: token}, **condition, **self._encryption
                    )
                    return tag_of(answer)
            except PreconditionError:
                return self._mine(key, token, refusal)
            except ConflictError:  # two conditional writes at once: S3 wants it sent again
                time.sleep(0.05 * 2**attempt)
        raise StoreUnavailableError.during(f"write {key}", self._where, "other writes kept colliding with it")

    def _mine(self, key: str, token: str, refusal: Callable[[], Exception]) -> str:
        with self._translated("read", key):
            answer = self._client.head_object(**self._at(key))
            version = tag_of(answer)  # an answer that was cut short does not show the token
        if answer.get("Metadata", {}).get(_TOKEN) == token:
            return version
        raise refusal()

    def _send(self, key: str, file: BufferedReader, sha256: str | None, before: os.stat_result) -> str:
        """Put an open file's content, in parts if it is large; ``before`` is from before it was hashed."""

        def check() -> None:
            now = os.fstat(file.fileno())
            if (now.st_mtime_ns, now.st_size) != (before.st_mtime_ns, before.st_size):
                expected = f"content {sha256}"
                raise ObjectChangedError.at(self.uri, key, expected=expected, found="a changing file")

        with self._translated("write", key, expected=sha256):
            if before.st_size >= LARGE_BYTES:
                return send_parts(self._client, file, self._at(key), self._encryption, check=check)
            checksum = {}
            if sha256 is not None:
                checksum["ChecksumSHA256"] = base64.b64encode(bytes.fromhex(sha256)).decode()
            return tag_of(self._client.put_object(**self._at(key), Body=file, **checksum, **self._encryption))

    def _copy(self, origin: S3Store, source: ObjectInfo, target: str) -> CopiedObject:
        """Copy an object as it was listed; the service computes the copy's SHA-256 if it can."""
        wanted = {  # boto3 quotes the key itself
            "CopySource": {"Bucket": origin._bucket, "Key": origin._full(source.key)},
            "CopySourceIfMatch": source.version,
        }
        try:
            with self._translated("copy", source.key, conditional=True):
                if source.size_bytes > _MOST_COPIED_BYTES:
                    at, extra = self._at(target), self._encryption
                    tag = copy_parts(self._client, wanted, source.size_bytes, at, extra)
                    return CopiedObject(version=tag, digest=None)
                answer = self._client.copy_object(
                    **wanted, **self._at(target), **self._encryption, ChecksumAlgorithm="SHA256"
                )
                return CopiedObject(version=tag_of(answer["CopyObjectResult"]), digest=digest_of_copy(answer))
        except ConflictError as error:
            raise StoreUnavailableError.during(f"copy {source.key}", self._where, error) from error
        except PreconditionError:
            expected = f"version {source.version}"
            raise ObjectChangedError.at(
                origin.uri, source.key, expected=expected, found="a newer one"
            ) from None

    @contextlib.contextmanager
    def _translated(
        self, action: str, key: str, *, expected: str | None = None, conditional: bool = False
    ) -> Iterator[None]:
        """Turn errors of a call into the store's; a conditional one gets its condition's outcome."""
        breaker = self._settings.breaker
        if breaker is not None:
            breaker.admit(f"{action} {key}".strip(), self._where)
        try:
            with translated(
                action, key, uri=self.uri, where=self._where, expected=expected, conditional=conditional
            ):
                yield
        except BaseException as error:
            if breaker is not None:
                (breaker.failed if is_away(error) else breaker.answered)()
            raise
        if breaker is not None:
            breaker.answered()


def _sha256_of(file: BufferedReader) -> str:
    """Return an open file's SHA-256 in hex, and go back to its start."""
    found = sha256_of(file)
    file.seek(0)
    return found


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
    # Nothing here reads times, and parsing them is two thirds of what a listing costs.
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
    log_in(core, settings)
    try:
        core.get_credentials()  # may ask a service, so outside the lock
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
