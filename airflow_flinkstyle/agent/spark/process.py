"""The driver's two processes, Python and its JVM: their ids, and how they end at once."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle import __version__
from airflow_flinkstyle.agent.core.process import HALT_PATIENCE_S
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.protocol.process import cluster_id, pid_namespace, recorded_start
from airflow_flinkstyle.protocol.records import IncarnationRecord

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.spark.untyped import Java

_leave = os._exit
"""Taken before a script runs: in its ``os._exit`` the run is ended first."""
log = logging.getLogger(__name__)


class DriverProcess:
    """This Python process and the JVM that started it (``spark-submit``)."""

    def __init__(self) -> None:
        self.jvm_pid = os.getppid()

    def record(self) -> IncarnationRecord:
        """Return the process's own record for the store."""
        return IncarnationRecord(
            host=socket.gethostname(),
            pid=os.getpid(),
            jvm_pid=self.jvm_pid,
            pid_started=recorded_start(self.jvm_pid),
            pid_namespace=pid_namespace(),
            started_at_ms=now_ms(),
            cluster_id=cluster_id(os.environ, Path.cwd()),
            agent_version=__version__,
        )

    def jvm_is_gone(self) -> bool:
        """Return whether another process adopted this one: its JVM died."""
        return os.getppid() != self.jvm_pid

    def halt(self, code: int) -> None:
        """End JVM and Python now, without hooks: no further batch may run."""
        log.error("Ending the driver at once, exit code %d", code)
        if not self.jvm_is_gone():
            self._end_jvm(code)
        _leave(code)

    def _end_jvm(self, code: int) -> None:
        halting = threading.Thread(target=_halt_jvm, args=(code,), daemon=True)
        halting.start()
        halting.join(HALT_PATIENCE_S)  # a JVM in a long pause does not answer
        if _gateway_jvm() is not None and not self.jvm_is_gone():
            os.kill(self.jvm_pid, signal.SIGKILL)

    def end_later(self, code: int, after_s: float) -> None:
        """End Python after a while, should the script not end by itself."""

        def end() -> None:
            time.sleep(after_s)
            log.warning("The script has not ended %.0f s after its queries; ending it", after_s)
            _leave(code)

        threading.Thread(target=end, name="flinkstyle-end", daemon=True).start()


def _gateway_jvm() -> Java:
    from pyspark import SparkContext

    return SparkContext._jvm  # noqa: SLF001


def _halt_jvm(code: int) -> None:
    jvm = _gateway_jvm()
    if jvm is not None:
        jvm.java.lang.Runtime.getRuntime().halt(code)
