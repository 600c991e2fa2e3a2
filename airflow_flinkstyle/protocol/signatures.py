"""How a record is signed, and verified: by callers with their key, by a driver with keys derived from it.

A signature is an HMAC-SHA256 over the record's place (root, job and number included) and its JSON, in one
canonical form. So a record is valid only at the place where its caller wrote it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from airflow_flinkstyle.errors import SignatureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_flinkstyle.protocol.record import SignedRecord

R = TypeVar("R", bound="SignedRecord")
ORDER_KEYS_VARIABLE: Final = "FLINKSTYLE_ORDER_KEYS"
"""Gives a driver the keys, separated by commas, that verify its own takeover order, and the end of a driver
that it would wait for. They sign nothing else."""


def canonical(data: bytes, place: str) -> bytes:
    """Return the bytes that are signed of an object; the same for every version of this package."""
    values = {name: value for name, value in json.loads(data).items() if name != "signature"}
    return json.dumps([place, values], sort_keys=True, separators=(",", ":")).encode()


def sign(keys: Iterable[str], data: bytes, place: str) -> str:
    """Return the signatures of an object, one of each key, separated by commas."""
    text = canonical(data, place)
    return ",".join(digest(key, text) for key in keys)


def signed(record: R, keys: Iterable[str], place: str) -> R:
    """Return a record with its signatures at this place, one of each key."""
    return replace(record, signature=sign(keys, record.to_bytes(), place))


def require(keys: Sequence[str], data: bytes, place: str, *, state_after: str, remedy: str) -> None:
    """Check that one of the keys has signed this object.

    Raises:
        SignatureError: If it bears no signature, or one of another key, place or content.
    """
    try:
        found, text = str(json.loads(data).get("signature") or ""), canonical(data, place)
    except (ValueError, AttributeError, RecursionError):  # no record at all
        found, text = "", b""
    expected = [digest(key, text).encode() for key in keys]
    given = found.encode(errors="replace").split(b",")
    if not any(hmac.compare_digest(one, another) for one in expected for another in given):
        raise SignatureError(
            f"{place} was expected to be signed by a caller of this Airflow, found "
            f"{'another signature' if found else 'none'}.",
            state_after=state_after,
            remedy=remedy,
        )


def order_keys(keys: Iterable[str], claim_place: str, claim_id: str) -> tuple[str, ...]:
    """Return the keys that sign a generation's takeover order: one of each key, for this claim alone."""
    purpose = f"takeover order of claim {claim_id} at {claim_place}".encode()
    return tuple(digest(key, purpose) for key in keys)


def digest(key: str, text: bytes) -> str:
    """Return the HMAC-SHA256 as hexadecimal text."""
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()
