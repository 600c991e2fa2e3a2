"""What can go wrong between this package and a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from typing_extensions import Self


class StoreError(FlinkstyleError):
    """Root of the errors a store raises."""

    code = "STORE"
    passes_soon: ClassVar[bool] = False
    """Whether the same call is expected to succeed within minutes, though nobody changes anything."""


class StoreUnavailableError(StoreError):
    """The backend cannot be reached, or failed for a reason that may pass."""

    code = "STORE_UNAVAILABLE"
    retryable = True
    passes_soon = True

    @classmethod
    def during(cls, action: str, uri: str, cause: object) -> Self:
        """Name the store, what was tried, and the backend's message."""
        return cls(
            f"The store {uri} could not {action}: {cause}.",
            state_after="The call may or may not have taken effect; nothing else was changed.",
            remedy="Check that the store is reachable from this machine and has space left, then try again.",
        )


class StoreFullError(StoreUnavailableError):
    """There is no space left, or no more of it for this user."""

    code = "STORE_FULL"
    passes_soon = False


class StoreRefusedError(StoreUnavailableError):
    """The backend answers that it does not take this call: a setting, its key, or its kind does not fit."""

    code = "STORE_REFUSED"
    passes_soon = False


class CredentialsExpiredError(StoreUnavailableError):
    """Temporary credentials have expired, and new ones could not be fetched at once."""

    code = "CREDENTIALS_EXPIRED"

    @classmethod
    def during(cls, action: str, uri: str, cause: object) -> Self:
        """Name the store and what was tried; never the keys."""
        return cls(
            f"The store {uri} refused to {action}: {cause}.",
            state_after="Nothing was changed.",
            remedy="Try again: credentials of a role are fetched again. A session token that is written in "
            "a connection must be replaced there; better, name the role in it (role_arn).",
        )


class CredentialsMissingError(StoreUnavailableError):
    """No credentials were found: none are set up, or the service that gives them does not answer."""

    code = "CREDENTIALS_MISSING"
    passes_soon = False

    @classmethod
    def during(cls, action: str, uri: str, cause: object) -> Self:
        """Name the store and what was tried."""
        return cls(
            f"Credentials were expected to {action} in the store {uri}, found none: {cause}.",
            state_after="Nothing was changed.",
            remedy="Try again: a service that gives a role's credentials may not have answered. If there is "
            "no such role, name keys or role_arn in the store's connection.",
        )


class StoreDeniedError(StoreError):
    """The backend rejects the credentials, or they do not permit the call."""

    code = "STORE_DENIED"

    @classmethod
    def during(cls, action: str, uri: str, cause: object) -> Self:
        """Name the store and what was tried; never the keys."""
        return cls(
            f"The store {uri} refused to {action}: {cause}.",
            state_after="Nothing was changed.",
            remedy="Correct the access key and secret key, or the bucket, in the store's connection.",
        )


class ObjectMissingError(StoreError):
    """The object does not exist."""

    code = "OBJECT_MISSING"

    @classmethod
    def at(cls, uri: str, key: str) -> Self:
        """Name the object."""
        return cls(
            f"Expected an object {key} in {uri}, found none.",
            state_after="Nothing was changed.",
            remedy="Check the location; if it is right, the object was deleted.",
        )


class ObjectExistsError(StoreError):
    """A conditional create found the object there."""

    code = "OBJECT_EXISTS"

    @classmethod
    def at(cls, uri: str, key: str) -> Self:
        """Name the object."""
        return cls(
            f"Expected no object {key} in {uri}, found one.",
            state_after="The object that was there is unchanged.",
            remedy="Another process created it first: read it, or choose another name.",
        )


class ObjectChangedError(StoreError):
    """The object is not what the caller saw before: another version, or other content."""

    code = "OBJECT_CHANGED"

    @classmethod
    def at(cls, uri: str, key: str, *, expected: str, found: str) -> Self:
        """Name the object and both versions."""
        return cls(
            f"Expected {key} in {uri} to be {expected}, found {found}.",
            state_after="The object is unchanged by this call.",
            remedy="Another process changed it meanwhile: read it again, then decide again.",
        )


class BadKeyError(StoreError):
    """A key that would leave the store's root, or that not every backend can hold."""

    code = "BAD_KEY"

    @classmethod
    def of(cls, key: str, reason: str) -> Self:
        """Name the key and what is wrong with it."""
        return cls(
            f"Expected a relative key with forward slashes, found {key!r}: {reason}.",
            state_after="Nothing was read or written.",
            remedy="Correct the name that the key was built from; a stored file with such a key was altered.",
        )
