"""Errors that a driver ends with and callers act on."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError

if TYPE_CHECKING:
    from collections.abc import Collection

    from typing_extensions import Self


class PlaceOccupiedError(FlinkstyleError):
    """A checkpoint location or scratch folder holds something that is not this job's."""

    code = "PLACE_OCCUPIED"

    @classmethod
    def of(cls, uri: str, expected: str, found: str) -> PlaceOccupiedError:
        """Name the place, what was expected there, and what is in it."""
        return cls(
            f"{uri} was expected to be {expected}; found {found}.",
            state_after="No query was started; nothing was written or deleted there.",
            remedy="Start the job from a savepoint, which goes to a new place (if it stopped without one, "
            "take it offline first: `flinkstyle savepoint take`); or give it another checkpoint root. Delete "
            "the place only if its owner does not need it.",
        )


class CheckpointFoundError(FlinkstyleError):
    """A query would start from scratch although its script names a checkpoint in which plain Spark ran it."""

    code = "CHECKPOINT_FOUND"

    def __str__(self) -> str:
        """Return the three sentences, a line each: the driver's caller splits them again."""
        return "\n".join((self.problem, self.state_after, self.remedy))

    @classmethod
    def of(cls, job: str, query: str, location: str, found: str, *, ran: Collection[str]) -> Self:
        """Name the checkpoint, and both remedies: adopt it, or leave it behind.

        Args:
            job: Its name.
            query: The query that would start from scratch.
            location: The checkpoint's, as the remedies name it.
            found: How far that checkpoint came.
            ran: Queries that the script had started before.
        """
        return cls(
            f"Query {query} of job {job} was expected to begin where no query has run, found a checkpoint at "
            f"{location}, which its script names: {found}.",
            state_after=_left(ran),
            remedy=f"{_adopt(job, query, location, ran)} {_leave(location)}",
        )

    @classmethod
    def unseen(cls, job: str, query: str, location: str, why: str, *, ran: Collection[str]) -> Self:
        """Return the error of a location that could not be read: whether a checkpoint is there is unknown."""
        return cls(
            f"Query {query} of job {job} was expected to begin where no query has run, found that this is "
            f"unknown: {location}, which its script names, could not be read: {why}",
            state_after=_left(ran),
            remedy=f"Give the driver the login for that place, or correct the script. {_leave(location)}",
        )

    @classmethod
    def elsewhere(cls, job: str, query: str, location: str, other: str, *, ran: Collection[str]) -> Self:
        """Name the query of another job of the root that has the same sources, output and location."""
        return cls(
            f"Query {query} of job {job} was expected to be no other job's, found {other} with the same "
            f"sources, the same output and the same checkpointLocation in its script: {location}.",
            state_after=_left(ran),
            remedy=f"To continue it, start that job instead. {_leave(location)}",
        )

    @classmethod
    def adopted(
        cls, job: str, query: str, location: str, by: str, root: str, *, ran: Collection[str]
    ) -> Self:
        """Name the job that has adopted the checkpoint: it may be this one under another name."""
        return cls(
            f"Query {query} of job {job} was expected to begin where no query has run, found that its script "
            f"names {location}, from which job {by} of root {root} continues: it was adopted there.",
            state_after=_left(ran),
            remedy=f"To continue it, start job {by} instead. {_leave(location)}",
        )


DRIVER_TOLD_TO_END = ErrorKind(
    code="DRIVER_TOLD_TO_END",
    means="The driver got SIGTERM from outside this package: its cluster, its service, a person.",
    transient=True,
)

DRIVER_TOLD_TO_END_WAITING = DRIVER_TOLD_TO_END.case(
    "The driver was expected to take the job over, found that it was told to end (SIGTERM).",
    "Try again: the same start continues.",
    state_after="It ran no batch.",
)

DRIVER_TOLD_TO_END_DRAINED = DRIVER_TOLD_TO_END.case(
    "The driver was expected to run until a request stops it, found that it was told to end (SIGTERM).",
    "Nothing is to be done: a sensor, WatchStreamingJobOperator or a start continues there. To stop the job "
    "for good, use StopStreamingJobOperator or `flinkstyle job stop`.",
    state_after="Every query has committed the batch that it was in, and none runs.",
)

PREDECESSOR = ErrorKind(
    code="PREDECESSOR",
    means="The predecessor did not end as this driver's takeover order requires.",
)

ROOT_COPIED = ErrorKind(
    code="ROOT_COPIED",
    means="A savepoint root is not where it was created: it was copied by hand, or moved.",
    problem="Savepoint root {uri} was expected to have been created there, found the id of one that was "
    "created at {created_at}: it is a copy of that root, or was moved.",
    state_after="Nothing was claimed, written or started.",
    remedy="If {created_at} is gone, run `flinkstyle store adopt-root {uri}`. If it is still used, add "
    "--copy: the jobs here then start from their savepoints, in places of their own.",
)

CHECKPOINT_LOST = ErrorKind(
    code="CHECKPOINT_LOST",
    means="A query would start from scratch, because the checkpoint that it continues in is gone.",
    state_after="No query was started by this; checkpoints are as they were.",
)

LINE = ErrorKind(
    code="LINE",
    means="The records of a job contradict each other about its line.",
    problem="The takeover order of generation {generation} was expected to say what it continues, an earlier "
    "generation or nothing, found {found}.",
    state_after="Nothing was started or deleted.",
    remedy="Find out who writes to the savepoint root, or which copy of it this is. To continue without "
    "these records, export the savepoint that counts and start from it below another root.",
)


def _left(ran: Collection[str]) -> str:
    if not ran:
        return "No record was read and nothing was written; that checkpoint is as it was."
    return (
        f"No record was read for it; that checkpoint is as it was. Before it the script had started "
        f"{', '.join(sorted(ran))}, which may have committed batches."
    )


def _adopt(job: str, query: str, location: str, ran: Collection[str]) -> str:
    named = f"--checkpoint {shlex.quote(f'{query}={location}')}"
    if ran:  # this job has a history by now
        return (
            "To continue it, adopt the checkpoints of all queries of the script under another job's name: "
            f"`flinkstyle job adopt --job {job}-moved {named} ...`."
        )
    return (
        f"To continue it, end what runs it, then `flinkstyle job adopt --job {job} {named}`, with one "
        "--checkpoint for each query of the script (AdoptStreamingJobOperator), and start it again."
    )


def _leave(location: str) -> str:
    quoted = shlex.quote(location)
    return (
        "To start from scratch instead, at the script's startingOffsets and without state, name the "
        f"checkpoint to leave behind: `--leave-checkpoint {quoted}`, leave_checkpoints=[{location!r}]."
    )
