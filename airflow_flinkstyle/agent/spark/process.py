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
_GATEWAY_TIMEOUT_S = 10.0
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

    def had_jvm(self) -> bool:
        """Return whether a JVM still listened after this object was made: else ``jvm_pid`` is the adopter's.

        One that was killed while Python loaded its modules would never count as gone, and the script would
        take its own failure to connect for a reason that lasts.
        """
        port = os.environ.get("PYSPARK_GATEWAY_PORT")  # as spark-submit names it to its Python
        if port is None:
            return True
        try:
            socket.create_connection(("127.0.0.1", int(port)), timeout=_GATEWAY_TIMEOUT_S).close()
        except ConnectionRefusedError:
            return False
        except (OSError, ValueError) as error:
            log.warning("Whether the JVM still lives is not known: %s", error)
        return True

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
