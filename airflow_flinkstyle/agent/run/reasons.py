"""Why a run ends."""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.errors import ScriptFailedError
from airflow_flinkstyle.agent.jvm.causes import passes
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.login.driver import scrub

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.records import Request

_PLAN = "\n=== Streaming Query ==="
"""Behind this, Spark's message holds the plan of the query that failed."""
_SHOWN_LINES = 6
_SHOWN_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A caller asked for it; the savepoint that it asked for is taken."""

    request: Request
    failed: Failure | None = None
    """Why there is no savepoint, where the request chose to stop without one then."""

    @property
    def savepoint_id(self) -> str | None:
        """Return the savepoint that the run ends with; None if there is none."""
        return self.request.savepoint_id if self.failed is None else None


@dataclass(frozen=True, slots=True)
class ScriptEnded:
    """The script came to its end, or stopped its session."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """The process or its JVM was told to terminate."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The script, a query or the agent failed."""

    code: str
    text: str
    transient: bool = False
    """Whether it may pass by itself: the run may be started again as it is."""

    @staticmethod
    def of(error: BaseException) -> Failure:
        """Name the error; the script's own by the last lines of its traceback."""
        if isinstance(error, FlinkstyleError):
            return Failure(error.code, scrub(str(error), os.environ), transient=error.retryable)
        # Scrubbed whole: half a key is a secret too, and would not be found.
        text = scrub("".join(traceback.format_exception(error)), os.environ).partition(_PLAN)[0]
        lines = [line for line in text.splitlines() if line.strip()]
        shown = "\n".join(lines[-_SHOWN_LINES:])[-_SHOWN_CHARACTERS:]
        return Failure(ScriptFailedError.code, shown, transient=passes(error))


Ending = StopAsked | ScriptEnded | Signalled | Failure
