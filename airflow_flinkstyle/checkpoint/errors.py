"""What can be wrong with a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError

if TYPE_CHECKING:
    from typing_extensions import Self

_UNTOUCHED = "The checkpoint was only read."


class CheckpointError(FlinkstyleError):
    """Root of the errors about a checkpoint's files."""

    code = "CHECKPOINT"


class LogFormatError(CheckpointError):
    """A log file is incomplete or malformed."""

    code = "CHECKPOINT_LOG_FORMAT"

    @classmethod
    def of(cls, what: str, expected: str, found: str) -> Self:
        """Name the file, what was expected and what was found."""
        shown = found if len(found) <= 80 else f"{found[:80]}..."
        return cls(
            f"{what}: expected {expected}, found {shown!r}.",
            state_after=_UNTOUCHED,
            remedy="The file was cut short or edited: go back to an older savepoint of this job.",
        )


class StateIncompleteError(CheckpointError):
    """Files that a state version needs are not there."""

    code = "STATE_INCOMPLETE"
    retryable = True

    @classmethod
    def of(cls, store: str, version: int, missing: str) -> Self:
        """Name the state store, the version and the files."""
        return cls(
            f"State store {store}: expected the files of version {version}, found no {missing}.",
            state_after=_UNTOUCHED,
            remedy="If the job runs, try again: Spark replaces files in the background. "
            "If it is stopped, resume from an older savepoint.",
        )


CHECKPOINT_UNSUPPORTED = ErrorKind(
    code="CHECKPOINT_UNSUPPORTED",
    means="The checkpoint uses a format or mode of Spark that this package does not handle.",
    problem="Expected a checkpoint that can be cut between two batches, found {found}.",
    state_after=_UNTOUCHED,
    remedy="{remedy}",
    family=CheckpointError,
)
CHECKPOINT_UNSUPPORTED_VERSION = CHECKPOINT_UNSUPPORTED.case(
    "{what} v{found} is newer than this package knows ({known}).",
    "Upgrade airflow-flinkstyle, or run the job with the Spark version that wrote it.",
)

CHECKPOINT_INVARIANT = ErrorKind(
    code="CHECKPOINT_INVARIANT",
    means="The logs contradict each other in a way that Spark never leaves behind.",
    problem="Checkpoint {location}: expected {expected}, found {found}.",
    state_after=_UNTOUCHED,
    remedy="Two writers may have used this checkpoint, or files were deleted by hand: resume from an "
    "older savepoint.",
    family=CheckpointError,
)

NO_COMMIT_YET = ErrorKind(
    code="NO_COMMIT_YET",
    means="The query has not committed its first batch.",
    problem="Checkpoint {location}: expected at least one committed batch, found none.",
    state_after=_UNTOUCHED,
    remedy="Wait until the query has committed its first batch, then take the savepoint again.",
    transient=True,
    family=CheckpointError,
)
