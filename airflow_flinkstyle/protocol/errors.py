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
