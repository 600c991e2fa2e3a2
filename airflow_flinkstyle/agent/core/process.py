"""The process of a driver, as the agent's core needs it; ``agent.spark.process`` has the real one.

Exit codes: 0 the run closed, or was never this process's to run; 1 it failed, the heartbeat has the error;
2 bad arguments; 75 the lease could not be confirmed; 76 the JVM died before its Python; 77 Spark's jobs had
no executor for too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.records import IncarnationRecord

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_LEASE_LOST = 75
EXIT_JVM_GONE = 76
EXIT_NO_EXECUTORS = 77

HALT_PATIENCE_S = 1.0
"""How long a JVM may take to end itself before it is killed."""


class Process(Protocol):
    """This process, with the JVM that it belongs to."""

    def record(self) -> IncarnationRecord:
        """Return the process's own record for the store."""

    def jvm_is_gone(self) -> bool:
        """Return whether its JVM has died."""

    def halt(self, code: int) -> None:
        """End it now, without hooks: no further batch may run."""

    def end_later(self, code: int, after_s: float) -> None:
        """End it after a while, should the script not end by itself."""
