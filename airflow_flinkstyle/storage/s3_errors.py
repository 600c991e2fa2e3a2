"""What an S3 service answers, as errors of this package."""

from __future__ import annotations

import base64
import contextlib
import re
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.storage.errors import (
    CredentialsExpiredError,
    CredentialsMissingError,
    ObjectChangedError,
    ObjectMissingError,
    StoreDeniedError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from airflow_flinkstyle.storage.s3_login import EXPIRED

if TYPE_CHECKING:
    from collections.abc import Iterator

_MD5 = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile("[A-Za-z0-9+/]{43}=")
"""In base64."""
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})
_DENIED = frozenset(
    {
        "401",
        "403",
        "AccessDenied",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
        "Forbidden",
    }
)

_FULL = frozenset({"QuotaExceeded", "XMinioStorageFull", "StorageFull"})
"""Ceph answers with 403 then."""
_OTHER_CONTENT = frozenset({"BadDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"})
_OF_THE_OBJECT = frozenset({"InvalidObjectState"})
"""Codes of status 403 that do not concern the access key: the object is archived."""
_PASSING = re.compile("Throttl|SlowDown|LimitExceeded|TooMany|RequestTimeout|IncompleteBody|TimeTooSkewed")
"""In codes of answers below 500 that mean "not now"; KMS throttles with 400, and a clock is set right."""


class ConditionSignal(Exception):
    """How the condition of a conditional call came out."""


class NotModifiedError(ConditionSignal):
    """The object still has the version that the caller knows."""


class PreconditionError(ConditionSignal):
    """A conditional write was refused."""


class ConflictError(ConditionSignal):
    """A conditional write met another one and is to be sent again."""


@contextlib.contextmanager
def translated(
    action: str,
    key: str,
    *,
    uri: str,
    where: str,
    expected: str | None = None,
    conditional: bool = False,
) -> Iterator[None]:
    """Turn boto3's errors into the store's.

    Args:
        action: What is tried, as a verb.
        key: On which object; may be empty.
        uri: Of the store.
        where: The store and its service, for messages.
        expected: The SHA-256 that the content should have.
        conditional: The caller has set a condition, and gets its outcome as a ``ConditionSignal``. For any
            other call such an answer is of no use.
    """
    import botocore.exceptions as boto
    from boto3.exceptions import Boto3Error
    from s3transfer.exceptions import RetriesExceededError

    what = f"{action} {key}".strip()
    try:
        yield
    except boto.ClientError as error:
        found = _answered(error, what, key, uri=uri, where=where, expected=expected)
        if isinstance(found, ConditionSignal) and not conditional:
            found = StoreUnavailableError.during(what, where, error)
        raise found from error
    except (boto.NoCredentialsError, boto.TokenRetrievalError) as error:
        raise CredentialsMissingError.during(what, where, error) from error
    except boto.PartialCredentialsError as error:
        raise StoreDeniedError.during(what, where, error) from error
    except (boto.BotoCoreError, boto.HTTPClientError, Boto3Error, RetriesExceededError) as error:
        raise StoreUnavailableError.during(what, where, error) from error
    except (KeyError, ValueError, TypeError) as error:  # boto3 takes headers cut short for whole ones
        raise StoreUnavailableError.during(what, where, f"its answer was cut short ({error})") from error


def code_of(error: Any) -> str:  # noqa: ANN401 - boto3 makes its error classes at run time
    """Return the code that the service answered with."""
    return str(error.response.get("Error", {}).get("Code", ""))


def _answered(error: Any, what: str, key: str, *, uri: str, where: str, expected: str | None) -> Exception:  # noqa: ANN401
    """Return the store's error for one the service answered with."""
    code = code_of(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _MISSING:
        return ObjectMissingError.at(uri, key)
    if code in {"304", "NotModified"}:
        return NotModifiedError()
    if code in {"412", "PreconditionFailed"}:
        return PreconditionError()
    if code in {"ConditionalRequestConflict", "OperationAborted"}:
        return ConflictError(f"it met another write ({code})")
    if code in _OTHER_CONTENT and expected is not None:  # else it was damaged on its way
        return ObjectChangedError.at(uri, key, expected=f"content {expected}", found="other content")
    if code in EXPIRED:
        return CredentialsExpiredError.during(what, where, code)
    if code in _FULL:
        return StoreFullError.during(what, where, code)
    is_passing = _PASSING.search(code) is not None or code in _OTHER_CONTENT
    passes = is_passing or status is None or status >= 500 or status in {408, 429}
    is_of_key = status in {401, 403} and not passes and code not in _OF_THE_OBJECT
    if code in _DENIED or is_of_key:
        return StoreDeniedError.during(what, where, code)
    if code == "NoSuchBucket":
        return StoreDeniedError.during(what, where, f"the bucket does not exist ({code})")
    kind = StoreUnavailableError if passes and code != "NotImplemented" else StoreRefusedError
    return kind.during(what, where, f"{code} (HTTP {status})")


def is_away(error: BaseException) -> bool:
    """Return whether an error means that the service does not answer, or cannot serve at present."""
    return type(error) is StoreUnavailableError


def is_unsent(error: BaseException | None) -> bool:
    """Return whether boto3 had no connection to send a request on."""
    from botocore import exceptions as boto

    return isinstance(
        error, (boto.EndpointConnectionError, boto.ConnectTimeoutError, boto.ProxyConnectionError)
    )


def digest_of_copy(answer: Any) -> str | None:  # noqa: ANN401
    """Return what the service vouches for: a SHA-256 if it computes one, else an ETag that is an MD5."""
    result = answer["CopyObjectResult"]
    sha256 = result.get("ChecksumSHA256", "")
    if _SHA256.fullmatch(sha256):  # else none, or one of its parts' checksums, which ends in their number
        return f"sha256:{base64.b64decode(sha256).hex()}"
    tag = tag_of(result).strip('"')
    is_md5 = _MD5.fullmatch(tag) and not answer.get("ServerSideEncryption", "").startswith("aws:kms")
    return f"etag:{tag}" if is_md5 else None


def body_of(answer: Any) -> bytes:  # noqa: ANN401
    """Return the content; without a length it would go unnoticed that it was cut short."""
    _ = answer["ContentLength"]
    content: bytes = answer["Body"].read()
    return content


def tag_of(answer: Any) -> str:  # noqa: ANN401
    """Return the ETag, quotes included."""
    tag = str(answer["ETag"])
    if tag.startswith('"') and (len(tag) == 1 or not tag.endswith('"')):
        raise ValueError(f"ETag {tag}")
    return tag
