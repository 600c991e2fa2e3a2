"""What a bucket keeps of objects that were deleted or replaced: with versioning on, each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore

RULE = (
    "Add a lifecycle rule to the bucket that deletes noncurrent versions below the root after some days, and "
    "expired delete markers (docs/rotate.md has one): heartbeats alone leave 17,000 versions a day and job."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Versioning:
    """A bucket keeps what is deleted or replaced as noncurrent versions."""

    expire_days: int | None
    """After how many days a lifecycle rule for all of the root deletes these; None if no rule is seen."""

    def __str__(self) -> str:
        """Say when deleted bytes are freed."""
        if self.expire_days is None:
            return "The bucket keeps versions, and no lifecycle rule is seen that ever deletes them."
        return f"The bucket keeps versions: its lifecycle rule deletes them after {self.expire_days} days."


@runtime_checkable
class KeepsVersions(Protocol):
    """A store that can keep versions."""

    def versioning(self) -> Versioning | None:
        """Return whether it does; None if it does not, or does not tell."""


def versioning_of(store: ObjectStore) -> Versioning | None:
    """Return how long a store keeps what is deleted; None if it does not, or does not tell."""
    return store.versioning() if isinstance(store, KeepsVersions) else None


def expire_days(rules: list[Any], prefix: str) -> int | None:
    """Return after how many days noncurrent versions of every object below a prefix are deleted. Pure.

    Args:
        rules: Of a bucket's lifecycle configuration, as boto3 returns them.
        prefix: In the bucket.
    """
    found = [
        rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
        for rule in rules
        if rule.get("Status") == "Enabled"
        and "NoncurrentDays" in rule.get("NoncurrentVersionExpiration", {})
        and _is_for_all(rule, prefix)
    ]
    return min(found, default=None)


def _is_for_all(rule: Any, prefix: str) -> bool:  # noqa: ANN401
    """Return whether a rule covers everything below a prefix: no tag and no size narrows it."""
    wanted = rule.get("Filter", {"Prefix": rule.get("Prefix", "")})
    return wanted.keys() <= {"Prefix"} and prefix.startswith(wanted.get("Prefix", ""))
