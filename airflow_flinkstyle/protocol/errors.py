"""Errors that a driver ends with and callers act on."""

from __future__ import annotations

from airflow_flinkstyle.errors import FlinkstyleError


class ToldToEndError(FlinkstyleError):
    """The driver was told to end by somebody who is not a caller: its cluster, its service, a person."""

    code = "DRIVER_TOLD_TO_END"
    retryable = True

    @classmethod
    def waiting(cls) -> ToldToEndError:
        """Say what SIGTERM made of a driver that did not hold the job yet."""
        return cls(
            "The driver was expected to take the job over, found that it was told to end (SIGTERM).",
            state_after="It ran no batch.",
            remedy="Try again: the same start continues.",
        )

    @classmethod
    def drained(cls) -> ToldToEndError:
        """Say what SIGTERM made of a run."""
        return cls(
            "The driver was expected to run until a request stops it, found that it was told to end "
            "(SIGTERM).",
            state_after="Every query has committed the batch that it was in, and none runs.",
            remedy="Nothing is to be done: a sensor, WatchStreamingJobOperator or a start continues "
            "there. To stop the job for good, use StopStreamingJobOperator or `flinkstyle job stop`.",
        )


class RootCopiedError(FlinkstyleError):
    """A savepoint root is not where it was created: it was copied by hand, or moved."""

    code = "ROOT_COPIED"

    @classmethod
    def of(cls, uri: str, *, created_at: str) -> RootCopiedError:
        """Name both places."""
        return cls(
            f"Savepoint root {uri} was expected to have been created there, found the id of one that was "
            f"created at {created_at}: it is a copy of that root, or was moved.",
            state_after="Nothing was claimed, written or started.",
            remedy=f"If {created_at} is gone, run `flinkstyle store adopt-root {uri}`. If it is still used, "
            "add --copy: the jobs here then start from their savepoints, in places of their own.",
        )


class PlaceOccupiedError(FlinkstyleError):
    """A place was to be used that holds something which is not this job's."""

    code = "PLACE_OCCUPIED"

    @classmethod
    def of(cls, uri: str, expected: str, found: str) -> PlaceOccupiedError:
        """Name the place, whose it is, and what is in it."""
        return cls(
            f"{uri} was expected to be {expected}; found {found}.",
            state_after="No query was started; nothing was written or deleted there.",
            remedy="Start the job from a savepoint, which goes to a new place (if it stopped without one, "
            "take it offline first: `flinkstyle savepoint take`); or give it another checkpoint root. Delete "
            "the place only if its owner does not need it.",
        )


class LineError(FlinkstyleError):
    """The records of a job do not say where its history leads."""

    code = "LINE"

    @classmethod
    def of(cls, generation: int, found: str) -> LineError:
        """Say what was found of a generation's line."""
        return cls(
            f"The takeover order of generation {generation} was expected to say what it continues, an "
            f"earlier generation or nothing, found {found}.",
            state_after="Nothing was started or deleted.",
            remedy="Find out who writes to the savepoint root, or which copy of it this is. To continue "
            "without these records, export the savepoint that counts and start from it below another root.",
        )
