"""Commits for the consumer group of one source, in a thread of its own. Nothing here can fail the job.

One commit is in flight. Of the batches that complete meanwhile only the newest waits: it holds all that the
others would have committed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.login import scrub
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import CommittedGroup
from airflow_flinkstyle.python_versions import assert_never

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.spark import ConsumerGroup
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
    """They take the place of an older batch that waited, whose offsets are not committed by themselves."""

    older: BatchOffsets


@dataclass(frozen=True, slots=True)
class Ignore:
    """This batch, or a newer one, had completed before."""

    newest: BatchId


Step = Send | CommitInFlight | Replace | Ignore


class OffsetCommits:
    """The commits of one source's group: gets completed batches and the cluster's answers."""

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
        """Whether no commit waits to be sent or answered."""
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


LAG_EVERY_S = 5.0
log = logging.getLogger(__name__)


class GroupCommitter(threading.Thread):
    """Sends one commit at a time, and reads from time to time how far the group lags behind."""

    def __init__(self, group: ConsumerGroup, source: str) -> None:
        super().__init__(name="flinkstyle-group", daemon=True)
        self.group = group
        self._source = source
        self._commits = OffsetCommits()
        self._failure: str | None = None
        self._lag: dict[str, int] = {}
        self._lag_read_s = float("-inf")
        self._ended = False
        self._changed = threading.Condition()

    def complete(self, batch: BatchOffsets) -> None:
        """Commit the offsets of a batch that has completed; returns at once."""
        with self._changed:
            step = self._commits.complete(batch)
            self._changed.notify_all()
        match step:
            case Replace(older):
                log.warning(
                    "%s: committing offsets to %s takes longer than a batch. Those of batch %d are left out, "
                    "since those of batch %d are there. The job's own progress is not affected.",
                    self._source, self.group, older.batch_id, batch.batch_id,
                )  # fmt: skip
            case Ignore(newest):
                log.warning(
                    "%s: batch %d has completed, but batch %d had before. Its offsets are not committed.",
                    self._source, batch.batch_id, newest,
                )  # fmt: skip
            case Send() | CommitInFlight():
                pass
            case _:
                assert_never(step)

    def run(self) -> None:
        """Commit offsets until the end, and read the lag from time to time."""
        while not self._ended:
            with self._changed:
                self._changed.wait_for(lambda: self._ended or not self._commits.is_idle, LAG_EVERY_S)
                batch = self._commits.in_flight
            if batch is not None:
                self._note(self._commit(batch))
            if time.monotonic() - self._lag_read_s >= LAG_EVERY_S:
                self._read_lag()
        self.group.close()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; returns False if the time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: self._commits.is_idle, timeout_s)

    def end(self) -> None:
        """Send nothing more; returns at once."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def status(self) -> CommittedGroup:
        """Return the group's status for the heartbeat."""
        with self._changed:
            commits = self._commits
            committed = commits.committed
            return CommittedGroup(
                group=self.group.name,
                batch_id=committed.batch_id if committed else None,
                offsets=committed.offsets if committed else Offsets(),
                lag=self._lag,
                commits_succeeded=commits.succeeded,
                commits_failed=commits.failed,
                commits_superseded=commits.superseded,
                failure=self._failure,
            )

    def _commit(self, batch: BatchOffsets) -> str | None:
        """Return why the commit failed; None if it did not."""
        try:
            self.group.commit(batch.offsets)
        except FlinkstyleError as error:
            return scrub(f"{error.code}: {error}", os.environ)
        except Exception as error:  # noqa: BLE001  # whatever it is, the job does not need it
            return scrub(f"{type(error).__name__}: {error}", os.environ)
        return None

    def _note(self, failure: str | None) -> None:
        """Log a change, then wake the threads that wait for the commit."""
        if failure is not None and failure != self._failure:
            log.warning("%s: %s", self._source, failure)
        if failure is None and self._failure is not None:
            log.info("%s: offsets are committed to %s again", self._source, self.group)
        with self._changed:
            self._failure = failure
            self._commits.answer(succeeded=failure is None)
            self._changed.notify_all()

    def _read_lag(self) -> None:
        self._lag_read_s = time.monotonic()
        committed = self._commits.committed
        if committed is None:
            return
        try:
            self._lag = self.group.lag(committed.offsets)
        except Exception as error:  # noqa: BLE001  # the next read may succeed
            self._lag = {}
            log.debug("%s: how far %s lags behind is not known: %s", self._source, self.group, error)
