"""The pulse: a sign of life where one listing shows those of all jobs (``protocol.pulse``)."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.pulse import Pulse, write_pulse
from airflow_flinkstyle.storage.errors import StoreDeniedError
from airflow_flinkstyle.storage.open import impatient

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.board.heartbeat import HeartbeatWriter
    from airflow_flinkstyle.protocol.board import JobBoard

log = logging.getLogger(__name__)


class PulseThread(threading.Thread):
    """Repeats each heartbeat that was written as a pulse; in a thread of its own: the lease never waits."""

    def __init__(self, board: JobBoard, writer: HeartbeatWriter) -> None:
        super().__init__(name="flinkstyle-pulse", daemon=True)
        self._store, self._job = impatient(board.store, answer_s=writer.interval_s), board.job
        self._writer = writer
        self._tick_s = min(0.5, writer.interval_s / 2)

    def run(self) -> None:
        """Write until the run ends, or the store says that this driver may not."""
        writer, pause, told = self._writer, threading.Event(), 0
        while not writer.ended:
            pause.wait(self._tick_s)
            beat = writer.newest_beat
            if beat == told or writer.state not in ("running", "draining"):
                continue
            pulse = Pulse(generation=writer.generation, incarnation=writer.incarnation, beat=beat)
            try:
                write_pulse(self._store, self._job, pulse)
                told = beat
            except StoreDeniedError as error:
                log.warning("No pulses: who watches all jobs looks at this one by itself. %s", error)
                return
            except FlinkstyleError as error:  # the next tick tries again
                log.info("The pulse could not be written: %s", error.problem)
