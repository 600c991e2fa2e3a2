"""How a record of the protocol is stored: one JSON object with a ``version``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.errors import MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.typed_json import MismatchError, decode, encode, stored

if TYPE_CHECKING:
    from typing_extensions import Self

PROTOCOL_VERSION = 1
"""Of the records, not of the package. It only grows together with a reader of the version before."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record of the protocol; subclasses say where it is and who writes it."""

    what: ClassVar[str] = "record"

    def to_bytes(self) -> bytes:
        """Render as JSON with the protocol version.

        Raises:
            MessageFormatError: If it could not be read again: it is refused here, not by its readers.
        """
        data = json.dumps({"version": PROTOCOL_VERSION, **encode(self)}, sort_keys=True).encode()
        try:
            type(self).from_bytes(data)
        except MessageFormatError as error:
            raise MessageFormatError(
                f"A {self.what} was to be written, found that it could not be read back: {error.problem}",
                state_after="It was not written.",
                remedy="Report it: this package was given a value that its records cannot hold.",
            ) from error
        return data

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Parse the record.

        Raises:
            ProtocolVersionError: If another protocol version wrote it; both numbers are named.
            MessageFormatError: If it is not such a record.
        """
        try:
            values = json.loads(data)
            version = values.pop("version", None)
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            raise _malformed(cls.what, repr(data[:80])) from error
        if version != PROTOCOL_VERSION:
            raise ProtocolVersionError.between(agent=version, orchestrator=PROTOCOL_VERSION)
        try:
            return decode(cls, values)
        except MismatchError as error:
            raise _malformed(cls.what, f"one that cannot be read: {error}") from error


def _malformed(what: str, found: str) -> MessageFormatError:
    return MessageFormatError(
        f"A {what} of protocol version {PROTOCOL_VERSION} was expected, found {found}.",
        state_after="It was not acted on.",
        remedy="Look at the object in the store; something other than this package wrote it.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRecord(Record):
    """A record that leads to a process: its caller signs it, and its reader verifies it before it acts."""

    signature: str = ""
    """Over all other fields and the object's place (``protocol.signatures``); empty if nothing starts."""
