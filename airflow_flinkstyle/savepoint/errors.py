"""What can go wrong with a savepoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from airflow_flinkstyle.errors import FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN = 20


class SavepointError(FlinkstyleError):
    """Root of the errors about savepoints."""

    code = "SAVEPOINT"


class ManifestFormatError(SavepointError):
    """A manifest is malformed, hostile, or of a newer format."""

    code = "MANIFEST_FORMAT"

    @classmethod
    def of(cls, where: str, expected: str, found: object) -> Self:
        """Name the field, what was expected and what was found."""
        return cls(
            f"Savepoint manifest, {where}: expected {expected}, found {found!r}.",
            left="Nothing was read from the savepoint's files, and nothing was written.",
            remedy="If a newer airflow-flinkstyle wrote it, upgrade; otherwise the manifest was altered: "
            "use another savepoint.",
        )


class SavepointMissingError(SavepointError):
    """There is no savepoint of that id."""

    code = "SAVEPOINT_MISSING"

    @classmethod
    def of(cls, savepoint_id: str, *, job: str, uri: str, newest: Sequence[str]) -> Self:
        """Name the id, and the ids to choose from."""
        choice = f"the newest are {', '.join(newest)}" if newest else "the job has none"
        return cls(
            f"Expected a savepoint {savepoint_id} of job {job} in {uri}, found none; {choice}.",
            left="Nothing was written.",
            remedy="Correct the savepoint id, the job's name or the savepoint root.",
        )


class SavepointConflictError(SavepointError):
    """Another savepoint of the same id exists."""

    code = "SAVEPOINT_CONFLICT"

    @classmethod
    def of(cls, savepoint_id: str, uri: str) -> Self:
        """Name the id."""
        return cls(
            f"Expected no savepoint {savepoint_id} in {uri}, or the same one, found another.",
            left="The savepoint that was there is unchanged.",
            remedy="Take the savepoint under another request id.",
        )


class SavepointDamagedError(SavepointError):
    """Files of a savepoint are missing, cut short or altered, or do not fit together."""

    code = "SAVEPOINT_DAMAGED"

    @classmethod
    def of(cls, savepoint_id: str, findings: Sequence[str], *, left: str = "Nothing was written.") -> Self:
        """List each bad file."""
        shown = "; ".join(findings[:_SHOWN])
        more = f"; and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
        return cls(
            f"Expected savepoint {savepoint_id} to be whole, found: {shown}{more}.",
            left=left,
            remedy="Resume from another savepoint, or put the files back from a copy of the store.",
        )


class CaptureFailedError(SavepointError):
    """The checkpoint kept changing while it was copied."""

    code = "CAPTURE_FAILED"
    retryable = True

    @classmethod
    def after(cls, attempts: int, location: str, cause: FlinkstyleError) -> Self:
        """Name the checkpoint and the last reason."""
        return cls(
            f"Expected to copy checkpoint {location} within {attempts} attempts, "
            f"but its files kept changing: {cause.problem}",
            left="No savepoint was made; the job is not affected.",
            remedy="Try again; if it fails again, raise spark.sql.streaming.minBatchesToRetain of the job.",
        )


class BatchMismatchError(SavepointError):
    """The checkpoint does not stand at the batch that was demanded."""

    code = "BATCH_MISMATCH"

    @classmethod
    def between(cls, location: str, *, expected: int, found: int) -> Self:
        """Name both batches."""
        return cls(
            f"Expected checkpoint {location} to end with batch {expected}, found {found}.",
            left="No savepoint was made.",
            remedy="Check that the location is the last run's, and that no other run writes to it.",
        )


class TakeCancelledError(SavepointError):
    """The caller withdrew the request for a savepoint."""

    code = "TAKE_CANCELLED"

    @classmethod
    def of(cls, what: str) -> Self:
        """Name what was being copied."""
        return cls(
            f"Expected to finish the savepoint of {what}, but it was cancelled.",
            left="No savepoint was made; files copied so far are used by the next one.",
            remedy="Take the savepoint again when it is wanted.",
        )


class TargetOccupiedError(SavepointError):
    """The place to restore to is in use."""

    code = "TARGET_OCCUPIED"

    @classmethod
    def of(cls, uri: str, *, expected: str, found: str) -> Self:
        """Name the place and what is in it."""
        return cls(
            f"Expected {uri} to be {expected}, found {found}.",
            left="Nothing was written or deleted there.",
            remedy="Restore to an empty location; each generation of a job has its own.",
        )
