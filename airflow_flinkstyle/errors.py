"""Every error raised on purpose: what failed, what was left behind, what to do.

Packages keep the errors only they raise in their own ``errors.py``, all below this root.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

_TWO_STOPS: Final = re.compile(r"(?<![.\s/])\.\.(?=\s|$)")
"""Where a sentence ends with what somebody else has ended with a full stop of their own."""


class FlinkstyleError(Exception):
    """Root of the package's errors.

    Attributes:
        code: Stable name for logs, the CLI and tests.
        retryable: True if the same call can succeed later with nobody changing anything. The
            hooks turn False into ``AirflowFailException``, so Airflow does not retry in vain.
        problem: What was attempted, what was expected, what was found.
        state_after: What the failed call left behind, and what runs now.
        remedy: The operator, command or parameter to use next.
    """

    code: ClassVar[str] = "FLINKSTYLE"
    retryable: ClassVar[bool] = False

    def __init__(self, problem: str, state_after: str, remedy: str) -> None:
        problem, state_after, remedy = (_TWO_STOPS.sub(".", text) for text in (problem, state_after, remedy))
        super().__init__(problem, state_after, remedy)  # positional, so that it survives pickling
        self.problem, self.state_after, self.remedy = problem, state_after, remedy

    def __str__(self) -> str:
        """Return the three sentences users read in the task log."""
        return f"{self.problem} {self.state_after} {self.remedy}"


class BadInputError(FlinkstyleError):
    """A value somebody gave cannot be used: malformed, missing or contradictory."""

    code = "BAD_INPUT"


class MessageFormatError(FlinkstyleError):
    """A stored record cannot be parsed, or is of a version this package does not know."""

    code = "MESSAGE_FORMAT"


class SignatureError(FlinkstyleError):
    """A record in the store would start a process or say from where it reads, and no caller has signed it."""

    code = "SIGNATURE"


class ProtocolVersionError(FlinkstyleError):
    """The agent in the driver and this package speak different protocol versions."""

    code = "PROTOCOL_VERSION"

    @classmethod
    def between(cls, *, agent: object, orchestrator: int) -> ProtocolVersionError:
        """Name both versions."""
        return cls(
            f"The agent in the Spark driver speaks protocol {agent}, this package speaks {orchestrator}.",
            state_after="The command was not acted on.",
            remedy="Install the same airflow-flinkstyle version next to the job and restart it.",
        )
