"""What can go wrong with a savepoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from typing_extensions import Self

_SHOWN = 20
_STAYS = "No savepoint was made; the files that it uploaded stay until the next prune."


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
            state_after="Nothing was read from the savepoint's files, and nothing was written.",
            remedy="If a newer airflow-flinkstyle wrote it, upgrade; otherwise the manifest was altered: "
            "use another savepoint.",
        )

    def at(self, uri: str) -> Self:
        """Return the same error with the object named."""
        return type(self)(
            f"{uri}: {self.problem}",
            self.state_after,
            f"{self.remedy} Until that object is readable or gone, nothing can be pruned: put it back from a "
            "copy of the store, or, where there is none, delete it; the next prune frees its files.",
        )


class SavepointMissingError(SavepointError):
    """There is no savepoint of that id."""

    code = "SAVEPOINT_MISSING"

    @classmethod
    def of(cls, savepoint_id: str, *, job: str, uri: str, newest: Sequence[str]) -> Self:
        """Name the id, and the ids to choose from."""
        choice = f"the newest are {', '.join(newest)}" if newest else "the job has none"
        return cls(
            f"Job {job} has no savepoint {savepoint_id} in {uri}; {choice}.",
            state_after="Nothing was written.",
            remedy="Correct the savepoint id, the job's name or the savepoint root.",
        )


class SavepointConflictError(SavepointError):
    """Another savepoint of the same id exists."""

    code = "SAVEPOINT_CONFLICT"

    @classmethod
    def of(cls, savepoint_id: str, uri: str) -> Self:
        """Name the id."""
        return cls(
            f"There is another savepoint {savepoint_id} in {uri} already.",
            state_after="The savepoint that was there is unchanged.",
            remedy="Take the savepoint under another request id.",
        )


class IntentBrokenError(SavepointError):
    """A process that frees blobs gave an intent up, because it had not been renewed."""

    code = "INTENT_BROKEN"

    @classmethod
    def of(cls, what: str, uri: str, lease_s: float) -> Self:
        """Name the intent and its lease."""
        return cls(
            f"The {what} in {uri} was not renewed within {lease_s:g} s, and was given up.",
            state_after="Nothing was published or deleted since; blobs it relied on may be gone.",
            remedy="Do it again; if it happens again, this process is frozen or cut off from the store.",
        )


class RepositoryBusyError(SavepointError):
    """Blobs are being freed, or another process relies on them."""

    code = "REPOSITORY_BUSY"
    retryable = True

    @classmethod
    def of(cls, wanted: str, uri: str, *, holders: Sequence[str], wait_s: float) -> Self:
        """Name who holds the repository."""
        shown = "; ".join(holders[:_SHOWN])
        return cls(
            f"Expected to begin {wanted} in {uri} within {wait_s:g} s, found: {shown}.",
            state_after="Nothing was published or deleted.",
            remedy="Try again when that is done; one whose process has died is given up when its lease "
            "has passed.",
        )


class SavepointDamagedError(SavepointError):
    """Files of a savepoint are missing, cut short or altered, or do not fit together."""

    code = "SAVEPOINT_DAMAGED"
    altered: Collection[tuple[str, int | None, int]] = ()
    """Places (``StoredAt``) of contents of the right size that were altered, as far as they were read."""
    first: str = ""
    """The first finding."""

    @classmethod
    def of(
        cls,
        savepoint_id: str,
        findings: Sequence[str],
        *,
        state_after: str = "Nothing was written.",
        altered: Collection[tuple[str, int | None, int]] = (),
    ) -> Self:
        """List each bad file."""
        shown = "; ".join(findings[:_SHOWN])
        more = f"; and {len(findings) - _SHOWN} more" if len(findings) > _SHOWN else ""
        error = cls(
            f"Expected savepoint {savepoint_id} to be whole, found: {shown}{more}.",
            state_after=state_after,
            remedy="Resume from another savepoint, or put the files back from a copy of the store.",
        )
        error.altered, error.first = altered, findings[0] if findings else ""
        return error


class TakeCancelledError(SavepointError):
    """The caller withdrew the request for a savepoint."""

    code = "TAKE_CANCELLED"

    @classmethod
    def of(cls, what: str) -> Self:
        """Name what was being copied."""
        return cls(
            f"The savepoint of {what} was cancelled before it was done.",
            state_after=_STAYS,
            remedy="Take the savepoint again when it is wanted.",
        )


_OWN_MEMORY = (
    "Give the function a memory of its own, another txnAppId or another target, and then say "
    "skip_known_batches=True."
)


class SinkSkipsError(SavepointError):
    """A sink that remembers batch ids would, or may, silently skip batches whose ids are used again."""

    code = "SINK_SKIPS"

    @classmethod
    def of(cls, found: str, *, state_after: str) -> Self:
        """Name the sink and the batches that it would skip."""
        return cls(
            f"Batches would be lost in {found}.",
            state_after=state_after,
            remedy="Continue from the newest savepoint or the checkpoint; or choose rewind='fork', which "
            "continues after the sink's newest batch; or start from scratch into an output of its own. "
            "skip_known_batches=True accepts the loss; there is none if a function takes every batch id.",
        )

    @classmethod
    def kept_by_restore(cls, query: str, *, state_after: str) -> Self:
        """Name a query whose batches would be taken back from its table and then left out there."""
        return cls(
            f"Batches would be lost in the delta table of query {query}: RESTORE takes their rows back, and "
            "the table leaves the batches out when they are run again, since it keeps their ids.",
            state_after=state_after,
            remedy="Choose rewind='fork', which gives them new ids; or leave restore_tables out.",
        )

    @classmethod
    def unknown(cls, found: str, *, state_after: str) -> Self:
        """Name the sink of a fork of which no record tells the batches that it has seen."""
        return cls(
            f"This job's records do not tell which batches {found} has seen.",
            state_after=state_after,
            remedy=_OWN_MEMORY,
        )

    @classmethod
    def used(cls, sink: str, query: str, numbers: range, *, state_after: str) -> Self:
        """Name a query that would begin with numbers which runs of the job may have used."""
        return cls(
            f"Batches may be lost in {sink} of query {query}, which may leave out batch ids that it has "
            f"seen: the query would begin with batch {numbers[0]}, and runs of this job may have had batches "
            f"up to {numbers[-1]}.",
            state_after=state_after,
            remedy="Continue from the newest savepoint or the checkpoint, or choose a savepoint that holds "
            "the query and rewind='fork', which continues behind all of these. If the function takes every "
            f"batch id, say skip_known_batches=True. Else: {_OWN_MEMORY}",
        )


class RenumberError(SavepointError):
    """The batches of a query cannot be renumbered to continue after those that its sink remembers."""

    code = "RENUMBER"

    @classmethod
    def of(cls, query: str, found: str) -> Self:
        """Name the query, and the state that cannot be renumbered."""
        return cls(
            f"The state of query {query} cannot get another batch number: there is {found}.",
            state_after="The query was not started; the savepoint and the sink are as they were.",
            remedy=f"A query into files: start it from scratch into an output path of its own. {_OWN_MEMORY}",
        )


TAKE_TIMED_OUT = ErrorKind(
    code="TAKE_TIMED_OUT",
    means="A savepoint was not done in the time it was given.",
    problem="The savepoint of {what} was not done within {timeout_s:g} s.",
    state_after=_STAYS,
    remedy="Try again: what is uploaded and did not change need not be sent again; or give it more time.",
    transient=True,
    family=SavepointError,
)

SPARK_INCOMPATIBLE = ErrorKind(
    code="SPARK_INCOMPATIBLE",
    means="A Spark cannot continue from the savepoint, or only with settings other than it was given.",
    problem="Expected a Spark that can resume from {what} as it is, found: {findings}",
    state_after="{state_after}",
    remedy="Correct the job's settings or its Spark, then try again.",
    family=SavepointError,
)

SAVEPOINT_TOMBSTONED = ErrorKind(
    code="SAVEPOINT_TOMBSTONED",
    means="The id can name no savepoint any more: its taker was given up, and might still wake.",
    problem="Savepoint {savepoint_id} cannot be published in {uri}: its id was tombstoned, because {why}.",
    state_after="No savepoint was made; files copied so far are freed by the next prune.",
    remedy="Take the savepoint under another request: a new DAG run, or another key. Where only this id "
    "will do, as for an import, delete savepoints/{savepoint_id}.json there once the process that was "
    "given up has certainly ended.",
    family=SavepointError,
)

REFERENCE_MISSING = ErrorKind(
    code="REFERENCE_MISSING",
    means="No holder of that name has a reference to the savepoint.",
    family=SavepointError,
)

SAVEPOINT_PROTECTED = ErrorKind(
    code="SAVEPOINT_PROTECTED",
    means="A savepoint that is pinned, in use or the last good one was to be disposed of.",
    problem="Savepoint {savepoint_id} cannot be disposed of: {why}.",
    state_after="Nothing was deleted.",
    remedy="Keep it; or, if it really shall go, dispose of it with despite=[{protection!r}].",
    family=SavepointError,
)

CAPTURE_FAILED = ErrorKind(
    code="CAPTURE_FAILED",
    means="The checkpoint kept changing while it was copied.",
    transient=True,
    family=SavepointError,
)

BATCH_MISMATCH = ErrorKind(
    code="BATCH_MISMATCH",
    means="The checkpoint does not end with the batch that was demanded.",
    problem="Expected checkpoint {location} to end with batch {expected}, found {found}.",
    state_after="No savepoint was made.",
    remedy="Check that the location is the last run's, and that no other run writes to it.",
    family=SavepointError,
)

EXPORT_FORMAT = ErrorKind(
    code="EXPORT_FORMAT",
    means="A folder or archive is no export of a savepoint: cut short, altered or hostile.",
    problem="Export {uri}: expected {expected}, found {found}.",
    state_after="No savepoint was made from it; nothing outside the repository's blobs was written.",
    remedy="Export the savepoint again, or copy the export again from where it is whole; an archive "
    "packed by hand needs tar's ustar format.",
    family=SavepointError,
)

TABLE_RESTORE = ErrorKind(
    code="TABLE_RESTORE",
    means="A query's table cannot be put back to a savepoint, or not without losing what others wrote.",
    state_after="The table is as it was; the query was not started.",
    remedy="Put the table back by hand, or delete the rows that would be written twice; then start without "
    "restore_tables.",
    family=SavepointError,
)

TARGET_OCCUPIED = ErrorKind(
    code="TARGET_OCCUPIED",
    means="The place to restore to is in use.",
    problem="Expected {uri} to be {expected}, found {found}.",
    state_after="Nothing was written or deleted there.",
    remedy="Restore to an empty location; each generation of a job has its own.",
    family=SavepointError,
)


def reference_missing(savepoint_id: str, holder: str, uri: str, *, known: Sequence[str]) -> FlinkstyleError:
    """Name the holder, and the existing ones."""
    return REFERENCE_MISSING.with_text(
        f"Expected savepoint {savepoint_id} in {uri} to be held by {holder!r}, found: "
        f"{', '.join(known) or 'nobody'}.",
        state_after="Nothing was released.",
        remedy="Name a holder as `flinkstyle store usage` shows it.",
    )


def capture_failed(attempts: int, location: str, cause: FlinkstyleError) -> FlinkstyleError:
    """Name the checkpoint and the last reason."""
    return CAPTURE_FAILED.with_text(
        f"Checkpoint {location} could not be copied within {attempts} attempts, since its files kept "
        f"changing: {cause.problem}",
        state_after="No savepoint was made; the job is not affected.",
        remedy="Try again; if it fails again, raise spark.sql.streaming.minBatchesToRetain of the job.",
    )
