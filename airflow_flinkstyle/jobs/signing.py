"""Records that start a process are signed: write access to the savepoint root is not enough to make one.

``protocol.signatures`` describes how. Drivers never get the key, only a key derived from it for the one
takeover order that they wait for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, TypeVar

from airflow_flinkstyle.jobs.errors import SIGNING_KEY
from airflow_flinkstyle.protocol import signatures
from airflow_flinkstyle.protocol.record import SignedRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import Self

    from airflow_flinkstyle.protocol.records import Claim, Submit

KEY_VARIABLE: Final = "FLINKSTYLE_SIGNING_KEY"
PREVIOUS_VARIABLE: Final = "FLINKSTYLE_PREVIOUS_SIGNING_KEYS"
"""Separated by commas."""
LEAST_CHARACTERS: Final = 32
PROCESS_SIGNATURE: Final = "signature"
"""Key of a native id."""
R = TypeVar("R", bound=SignedRecord)


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs what callers write, and verifies it before it is obeyed."""

    keys: tuple[str, ...] = field(default=(), repr=False)
    """The first one signs, each of them is accepted; empty for callers that start nothing."""

    def __post_init__(self) -> None:
        """Refuse keys that could be guessed."""
        for key in self.keys:
            if len(key) < LEAST_CHARACTERS:
                raise SIGNING_KEY.with_text(
                    f"A signing key of at least {LEAST_CHARACTERS} characters was expected, found one of "
                    f"{len(key)}."
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
        """Return the record with its signature for its place.

        Args:
            record: The record to write.
            place: Root and key of the object.

        Raises:
            JobError: ``SIGNING_KEY`` if there is no key.
        """
        return signatures.signed(record, self.require_keys()[:1], place)

    def require(self, data: bytes, place: str) -> None:
        """Check that a caller with a key wrote this object.

        Raises:
            SignatureError: If it has no signature, or one for another key, place or content.
            JobError: ``SIGNING_KEY`` if there is no key to verify with.
        """
        signatures.require(
            self.require_keys(),
            data,
            place,
            state_after="It was not obeyed: nothing was started or ended.",
            remedy="If the key was changed, add the one before it to previous_passwords of the "
            f"flinkstyle connection ({PREVIOUS_VARIABLE}). If the savepoint root was moved, start the job "
            "once from its definition. Else find out who wrote there.",
        )

    def sign_process(self, native_id: Mapping[str, str], place: str, submit: Submit) -> dict[str, str]:
        """Return the native id of a process with a signature that binds it to its submit.

        The signature is part of the id, so it stays with the submit when the record changes later.

        Args:
            native_id: As its deployment names the process.
            place: Root and key of the submit.
            submit: The one by which the process was started.
        """
        text = _process_text(native_id, place, submit)
        return {**native_id, PROCESS_SIGNATURE: signatures.digest(self.require_keys()[0], text)}

    def names_process(self, submit: Submit, place: str) -> bool:
        """Return whether a caller with a key recorded that this submit started the process that it names."""
        given = submit.native_id.get(PROCESS_SIGNATURE, "").encode(errors="replace")
        text = _process_text(submit.native_id, place, submit)
        return any(compare_digest(signatures.digest(key, text).encode(), given) for key in self.keys)

    def sign_for_driver(self, record: R, place: str, claim_place: str, claim: Claim) -> R:
        """Return an order, or a driver's end, with the signatures that the claim's drivers verify.

        One for each key: the driver may have been started before the key was changed, or after.
        """
        keys = signatures.order_keys(self.require_keys(), claim_place, claim.claim_id)
        return signatures.signed(record, keys, place)

    def order_environment(self, claim_place: str, claim: Claim) -> dict[str, str]:
        """Return what lets a driver verify its takeover order, and nothing else."""
        keys = signatures.order_keys(self.require_keys(), claim_place, claim.claim_id)
        return {signatures.ORDER_KEYS_VARIABLE: ",".join(keys)}

    def require_order(self, data: bytes, place: str, claim_place: str, claim: Claim) -> None:
        """Check that a caller with a key gave this takeover order; raises as ``require`` does."""
        signatures.require(
            signatures.order_keys(self.require_keys(), claim_place, claim.claim_id),
            data,
            place,
            state_after="The job's driver does not obey it, and no other order was given.",
            remedy="Find out who wrote there; then start the job, or the migration, in a new DAG run.",
        )

    def require_keys(self) -> tuple[str, ...]:
        """Return the keys; raises ``SIGNING_KEY`` without one."""
        if not self.keys:
            raise SIGNING_KEY.with_text(
                "A signing key was expected, because this starts a process or leads to one, found none."
            )
        return self.keys


def _process_text(native_id: Mapping[str, str], place: str, submit: Submit) -> bytes:
    """Return the text to sign: its parts are separated, so that no text has two meanings."""
    named = sorted((name, value) for name, value in native_id.items() if name != PROCESS_SIGNATURE)
    return json.dumps(["process", place, submit.number, submit.deployment, named]).encode()
