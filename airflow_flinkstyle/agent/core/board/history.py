"""Keeps the job's history while it runs, in a thread of its own: the lease never waits for it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError, MessageFormatError, ProtocolVersionError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.history import History, Sample, sample_of
from airflow_flinkstyle.storage.errors import (
    ObjectChangedError,
    ObjectExistsError,
    StoreDeniedError,
    StoreError,
)
from airflow_flinkstyle.storage.open import impatient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_flinkstyle.protocol.query_records import Pace

SAMPLE_S = 15.0
WRITE_S = 300.0
"""Between two writes: 12 requests an hour; a driver that dies takes so much of the plots with it."""
FIRST_WRITE_S = 30.0
FINISH_S = 2.0
"""How long the driver's exit waits for the last write."""
ANSWER_S = 10.0
_MOST_WAITING = 960
"""Samples kept while the store is away: four hours."""
log = logging.getLogger(__name__)


class HistoryKeeper(threading.Thread):
    """Samples what the heartbeat says of the queries, and adds it to the history now and then."""

    def __init__(self, board: JobBoard, paces: Callable[[], Iterable[Pace | None]]) -> None:
        super().__init__(name="flinkstyle-history", daemon=True)
        self._board = JobBoard(impatient(board.store, answer_s=ANSWER_S), board.job)
        self._paces = paces
        self._ending = threading.Event()
        self._waiting: list[Sample] = []
        self._history, self._version = History(), ""
        """As this thread wrote or read it last; without a version it was neither."""

    def run(self) -> None:
        """Sample and write until the run ends, and once more then."""
        waited_s, write_at_s = 0.0, FIRST_WRITE_S
        while not self._ending.wait(SAMPLE_S):
            waited_s += SAMPLE_S
            self.sample()
            if waited_s >= write_at_s:
                if not self.write():
                    return
                write_at_s = waited_s + WRITE_S
        self.sample()
        self.write()

    def finish(self) -> None:
        """Write what is left, if the store answers soon: the run has ended, and nobody waits for this."""
        self._ending.set()
        if self.is_alive():
            self.join(FINISH_S)

    def sample(self) -> None:
        """Note how fast the job is now."""
        found = sample_of(self._paces(), now_ms=now_ms())
        if found is not None:
            self._waiting = [*self._waiting, found][-_MOST_WAITING:]

    def write(self) -> bool:
        """Add what waits to the history in the store; return whether there is a point in going on.

        Two requests the first time, one each time after it: the thread knows what it wrote last.
        """
        if not self._waiting:
            return True
        try:
            self._add()
        except StoreDeniedError as error:
            log.warning("The job's history is not kept: %s Plots will be empty.", error)
            return False
        except (StoreError, FlinkstyleError) as error:  # tried again with the next samples
            self._version = ""
            log.info("The job's history could not be written for now: %s", error)
        return True

    def _add(self) -> None:
        if not self._version:
            self._read()
        history = self._history.with_samples(self._waiting)
        try:
            version = self._board.write_history(history, seen=self._version)
        except (ObjectChangedError, ObjectExistsError):  # another driver's, or an answer that was lost
            self._read()
            history = self._history.with_samples(self._waiting)
            version = self._board.write_history(history, seen=self._version)
        self._history, self._version, self._waiting = history, version, []

    def _read(self) -> None:
        try:
            found = self._board.history()
        except (MessageFormatError, ProtocolVersionError) as error:
            log.warning("The job's history begins anew: %s", error)
            self._history, self._version = History(), self._board.history_version()
            return
        self._history = found.value if found is not None else History()
        self._version = found.version if found is not None else ""
