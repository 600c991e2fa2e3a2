"""Why a run ends."""

from __future__ import annotations

import os
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.causes import passes
from airflow_flinkstyle.agent.core.errors import SCRIPT_FAILED
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.login import scrub

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_flinkstyle.protocol.records import Request

_PLAN = "\n=== Streaming Query ==="
"""Behind this, Spark's message holds the plan of the query that failed."""
_SHOWN_LINES = 6
_SHOWN_CHARACTERS = 1000
_OWN_LINES = 10
_OWN_LINE_CHARACTERS = 240
_FRAME = re.compile(r'\s+File "([^"]+)", line (\d+)')
_NOT_OWN = re.compile(r"^<|/(site-packages|dist-packages|pyspark|airflow_flinkstyle)/|/py4j")
_STANDARD_LIBRARY = str(Path(os.__file__).parent)
_JVM = re.compile(r"\s+at |\s*\.\.\. \d+ more|Driver stacktrace:|JVM stacktrace:")


@dataclass(frozen=True, slots=True)
class StopAsked:
    """A caller asked for a stop; its savepoint, if it asked for one, is taken."""

    request: Request
    failed: Failure | None = None
    """Why there is no savepoint, if the request chose to stop without one in that case."""

    @property
    def savepoint_id(self) -> str | None:
        """Return the savepoint that the run ends with; None if there is none."""
        return self.request.savepoint_id if self.failed is None else None


@dataclass(frozen=True, slots=True)
class ScriptEnded:
    """The script came to its end, or stopped its session."""


@dataclass(frozen=True, slots=True)
class Drilled:
    """The claim asked for a rehearsal only, and it has passed."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Every query has run its range once more."""


@dataclass(frozen=True, slots=True)
class Signalled:
    """The process or its JVM got a signal to terminate."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The script, a query or the agent failed."""

    code: str
    text: str
    transient: bool = False
    """Whether it may pass by itself: the run may be started again as it is."""

    @staticmethod
    def of(error: BaseException) -> Failure:
        """Name the error and where it was raised; the script's own lines and the error's end follow."""
        if isinstance(error, FlinkstyleError):
            return Failure(error.code, scrub(str(error), os.environ), transient=error.retryable)
        # Scrubbed before it is cut: half a key is a secret too, and would not be found.
        whole = scrub("".join(traceback.format_exception(error)), os.environ)
        own = own_lines(whole)[-_OWN_LINES:]
        end = [
            line for line in whole.partition(_PLAN)[0].splitlines() if line.strip() and not _JVM.match(line)
        ]
        end = [line for line in end[-_SHOWN_LINES:] if not own or not (line[0].isspace() or line in own)]
        first = headline(own) or scrub("".join(traceback.format_exception_only(error)), os.environ)
        first = _shortened(first.strip().partition("\n")[0])
        shown, message = "\n".join(map(_shortened, own)), "\n".join(end)[-_SHOWN_CHARACTERS:]
        return Failure(
            SCRIPT_FAILED.code, "\n".join(filter(None, (first, shown, message))), transient=passes(error)
        )


def _shortened(line: str) -> str:
    """Return a line of readable length: a path matters most at its end, a message at its beginning."""
    half = _OWN_LINE_CHARACTERS // 2
    return line if len(line) <= 2 * half else f"{line[:half]} ... {line[-half:]}"


def headline(own: Sequence[str]) -> str:
    """Return what ended the last of a script's tracebacks, with its file and line; empty without one.

    Args:
        own: As ``own_lines`` returns it.
    """
    places = [frame for line in own if (frame := _FRAME.match(line))]
    ends = [line for line in own if not line[0].isspace()]
    if not places or not ends:
        return ""
    place = f" ({Path(places[-1][1]).name}:{places[-1][2]})"
    return _shortened(ends[-1].strip()) + place


def own_lines(text: str) -> list[str]:
    """Return the script's frames of all tracebacks in a text, and what ended them.

    Spark's message of a failed query holds the tracebacks of its functions, between lines of the JVM's.
    """
    found: list[str] = []
    in_traceback = has_own = is_own = False
    for line in text.splitlines():
        if frame := _FRAME.match(line):
            is_own = not _NOT_OWN.search(frame[1]) and not frame[1].startswith(_STANDARD_LIBRARY)
            has_own = is_own or (in_traceback and has_own)
            in_traceback = True
        is_end = in_traceback and bool(line.strip()) and not line[0].isspace()
        if in_traceback and ((has_own if is_end else is_own) and line.strip(" ^~")):
            found.append(line)
        in_traceback = in_traceback and not is_end
    return list(dict.fromkeys(found))


Ending = StopAsked | ScriptEnded | Drilled | Replayed | Signalled | Failure
