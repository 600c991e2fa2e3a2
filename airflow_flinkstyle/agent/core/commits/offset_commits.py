"""Which offsets are committed back to Kafka, and when, once batches are complete. Pure.

One commit is in flight. Of the batches that complete meanwhile only the newest waits: it holds all that the
others would have committed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.offsets import Offsets
    from airflow_flinkstyle.types import BatchId


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffsets:
    """Where one source is after a batch."""

    batch_id: BatchId
    offsets: Offsets
    """From the batch's offset log."""


@dataclass(frozen=True, slots=True)
class Send:
    """Nothing is in flight: commit these now."""

    batch: BatchOffsets


@dataclass(frozen=True, slots=True)
class CommitInFlight:
    """They wait for the commit that is in flight."""


@dataclass(frozen=True, slots=True)
class Replace:
    """They wait in the place of an older batch, which is not committed by itself any more."""

    older: BatchOffsets


@dataclass(frozen=True, slots=True)
class Ignore:
    """This batch, or a newer one, was complete before."""

    newest: BatchId


Step = Send | CommitInFlight | Replace | Ignore


class OffsetCommits:
    """The commits of one source's group: told what completes and what the cluster answers."""

    def __init__(self) -> None:
        self.newest: BatchId | None = None
        """The newest batch that has completed."""
        self.in_flight: BatchOffsets | None = None
        self.waiting: BatchOffsets | None = None
        self.committed: BatchOffsets | None = None
        """The newest that the cluster has confirmed."""
        self.succeeded = 0
        self.failed = 0
        self.superseded = 0

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to be sent or answered."""
        return self.in_flight is None

    def complete(self, batch: BatchOffsets) -> Step:
        """Take note of a completed batch; returns what follows from it."""
        if self.newest is not None and batch.batch_id <= self.newest:
            return Ignore(self.newest)
        self.newest = batch.batch_id
        if self.in_flight is None:
            self.in_flight = batch
            return Send(batch)
        older, self.waiting = self.waiting, batch
        if older is None:
            return CommitInFlight()
        self.superseded += 1
        return Replace(older)

    def answer(self, *, succeeded: bool) -> BatchOffsets | None:
        """Take note of how the commit in flight ended; returns the next one to send."""
        if succeeded:
            self.succeeded += 1
            self.committed = self.in_flight
        else:
            self.failed += 1
        self.in_flight, self.waiting = self.waiting, None
        return self.in_flight
