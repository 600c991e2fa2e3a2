"""What starts a process is signed: who can write the savepoint root, and no more, cannot make such a record.

A signature is an HMAC-SHA256 over the record's place (root, job and number included) and its JSON, in one
canonical form. So a record is obeyed only where its caller put it. Drivers never get the key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self, TypeVar

from airflow_flinkstyle.jobs.errors import SignatureError, SigningKeyError
from airflow_flinkstyle.protocol.record import SignedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY_VARIABLE: Final = "FLINKSTYLE_SIGNING_KEY"
PREVIOUS_VARIABLE: Final = "FLINKSTYLE_PREVIOUS_SIGNING_KEYS"
"""With commas."""
LEAST_CHARACTERS: Final = 32
_MAKE_ONE = 'python -c "import secrets; print(secrets.token_urlsafe(32))"'
_GIVE_ONE = (
    f"Make a key ({_MAKE_ONE}) and put it into the password of the flinkstyle connection; commands read it "
    f"from {KEY_VARIABLE}."
)
R = TypeVar("R", bound=SignedRecord)


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs what callers write, and verifies it before it is obeyed."""

    keys: tuple[str, ...] = field(default=(), repr=False)
    """The first one signs, each of them is accepted; empty for who starts nothing."""

    def __post_init__(self) -> None:
        """Refuse keys that could be guessed."""
        for key in self.keys:
            if len(key) < LEAST_CHARACTERS:
                raise SigningKeyError(
                    f"A signing key of at least {LEAST_CHARACTERS} characters was expected, found one of "
                    f"{len(key)}.",
                    state_after="Nothing was started.",
                    remedy=_GIVE_ONE,
                )

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the signer of a command line; without a key it starts nothing."""
        previous = environment.get(PREVIOUS_VARIABLE, "").split(",")
        return cls.of(environment.get(KEY_VARIABLE), previous)

    @classmethod
    def of(cls, key: str | None, previous: Iterable[str] = ()) -> Self:
        """Return the signer with this key, if there is one, that accepts ``previous`` ones too."""
        return cls((key, *(one.strip() for one in previous if one.strip())) if key else ())

    def sign(self, record: R, place: str) -> R:
        """Return the record with the signature that it has at its place.

        Args:
            record: What is written.
            place: Root and key of the object.

        Raises:
            SigningKeyError: If there is no key.
        """
        text = _canonical(record.to_bytes(), place)
        return replace(record, signature=_digest(self.require_keys()[0], text))

    def require(self, data: bytes, place: str) -> None:
        """Check that a caller with a key wrote this object.

        Raises:
            SignatureError: If it bears no signature, or one of another key, place or content.
            SigningKeyError: If there is no key to verify with.
        """
        keys = self.require_keys()
        try:
            found, text = str(json.loads(data).get("signature") or ""), _canonical(data, place)
        except (ValueError, AttributeError, RecursionError):  # no record at all
            found, text = "", b""
        given = found.encode(errors="replace")
        if not any(hmac.compare_digest(_digest(key, text).encode(), given) for key in keys):
            raise SignatureError(
                f"{place} was expected to be signed by a caller of this Airflow, found "
                f"{'another signature' if found else 'none'}.",
                state_after="It was not obeyed: nothing was started or ended.",
                remedy="If the key was changed, add the one before it to previous_passwords of the "
                f"flinkstyle connection ({PREVIOUS_VARIABLE}). If an earlier version of this package wrote "
                "it, start the job, or the migration, in a new DAG run. Else find out who wrote there.",
            )

    def require_keys(self) -> tuple[str, ...]:
        """Return the keys; raises ``SigningKeyError`` without one."""
        if not self.keys:
            raise SigningKeyError(
                "A signing key was expected, because this starts a process or leads to one, found none.",
                state_after="Nothing was started.",
                remedy=_GIVE_ONE,
            )
        return self.keys


def _canonical(data: bytes, place: str) -> bytes:
    """Return what is signed of an object, whichever version of this package wrote it."""
    values = {name: value for name, value in json.loads(data).items() if name != "signature"}
    return json.dumps([place, values], sort_keys=True, separators=(",", ":")).encode()


def _digest(key: str, text: bytes) -> str:
    return hmac.new(key.encode(), text, hashlib.sha256).hexdigest()
