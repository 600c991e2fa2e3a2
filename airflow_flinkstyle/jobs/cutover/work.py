"""Shows that an attempt works on a cutover, and renews what it holds, for as long as its process lives.

Others judge by it: whoever sees that it has not changed for its lease may bring the cutover to rest. That is
a courtesy, not a fence: an attempt that was taken for dead finds itself replaced in the journal.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.clock import LEASE_CLOCK, now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.work import WorkRecord
from airflow_flinkstyle.storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.jobs.journal import CutoverJournal
    from airflow_flinkstyle.protocol.board import JobBoard
    from airflow_flinkstyle.protocol.work import CutoverKind

_BEATS_PER_LEASE: Final = 5
DUE_S: Final = 0.5
"""How often it is shown where a driver waits for it."""
log = logging.getLogger(__name__)


class Work:
    """One attempt at work, as a context manager around it."""

    def __init__(
        self,
        board: JobBoard,
        journal: CutoverJournal,
        *,
        cutover: CutoverKind,
        lease_s: float,
        renew: Callable[[], float],
    ) -> None:
        """Describe an attempt that has begun.

        Args:
            board: The job's records.
            journal: The cutover's.
            cutover: What it is.
            lease_s: After how many seconds without a beat others take it for dead.
            renew: Renews what is held; returns for how many seconds producers are certain to be held from now
                on, 0 if no driver may take over for that.
        """
        self._board, self._journal, self._cutover = board, journal, cutover
        self._lease_s, self._renew = lease_s, renew
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._number, self._beaten_s = 0, 0.0

    def __enter__(self) -> None:
        """Beat once, and again until it is left."""
        self.beat()
        threading.Thread(target=self._keep, name="flinkstyle-cutover", daemon=True).start()

    def __exit__(self, *_: object) -> None:
        """Beat no more; what is held ends by itself unless it was released."""
        self._ended.set()

    def beat(self) -> None:
        """Renew what is held, and show that somebody works."""
        with self._lock:
            held_s = self._renew()
            self._number += 1
            work = WorkRecord(
                cutover=self._cutover,
                attempt=self._journal.attempt,
                beat=self._number,
                holder=f"{socket.gethostname()}, process {os.getpid()}",
                lease_s=self._lease_s,
                held_s=held_s,
                written_at_ms=now_ms(),
            )
            self._board.write_work(self._journal.migration_id, work)
            self._beaten_s = LEASE_CLOCK.now_s

    def beat_if_due(self) -> None:
        """Beat, unless that was done a moment ago."""
        if LEASE_CLOCK.now_s - self._beaten_s >= DUE_S:
            self.beat()

    def _keep(self) -> None:
        while not self._ended.wait(self._lease_s / _BEATS_PER_LEASE):
            try:
                self._journal.check()
                self.beat()
            except StoreError as error:
                log.warning("It could not be shown that this attempt works: %s", error)
            except FlinkstyleError as error:  # a later attempt is in charge, or what was held is gone
                if not self._ended.is_set():
                    log.warning("%s", error)
                return
