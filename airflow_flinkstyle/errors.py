"""Every error raised on purpose: what failed, what was left behind, what to do.

Each package has a table of its errors, ``errors.py``: a row (``ErrorKind``) for each that is only shown to
people, a class below ``FlinkstyleError`` for each that code catches by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Self

_TWO_STOPS: Final = re.compile(r"(?<![.\s/])\.\.(?=\s|$)")
"""The end of a sentence that ends with a quoted message, which has a full stop of its own."""


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

    code: str = "FLINKSTYLE"
    retryable: bool = False

    def __init__(self, problem: str, state_after: str, remedy: str) -> None:
        problem, state_after, remedy = (_TWO_STOPS.sub(".", text) for text in (problem, state_after, remedy))
        super().__init__(problem, state_after, remedy)  # positional, so that it survives pickling
        self.problem, self.state_after, self.remedy = problem, state_after, remedy

    def __str__(self) -> str:
        """Return the three sentences users read in the task log."""
        return f"{self.problem} {self.state_after} {self.remedy}"

    def rephrased(
        self, *, problem: str | None = None, state_after: str | None = None, remedy: str | None = None
    ) -> Self:
        """Return the same error with another sentence, for a caller that knows more of the situation."""
        error = type(self)(
            self.problem if problem is None else problem,
            self.state_after if state_after is None else state_after,
            self.remedy if remedy is None else remedy,
        )
        vars(error).update({name: value for name, value in vars(self).items() if name not in vars(error)})
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """One row of a package's table of errors: what people are shown under a code that is not caught by name.

    The sentences are templates of ``str.format``, whose fields ``error`` is given by name.
    """

    code: str
    means: str
    """What has happened, in general: one sentence."""
    problem: str = ""
    """What was expected, what was found. Empty where it is only known where the error is raised."""
    state_after: str = ""
    remedy: str = ""
    transient: bool = False
    """True if the same call can succeed later with nobody changing anything: the errors are ``retryable``."""
    family: type[FlinkstyleError] = FlinkstyleError
    """The class by which it is caught together with others."""

    def case(self, problem: str, remedy: str | None = None, *, state_after: str | None = None) -> ErrorKind:
        """Return another row of the same code."""
        return replace(
            self,
            problem=problem,
            state_after=self.state_after if state_after is None else state_after,
            remedy=self.remedy if remedy is None else remedy,
        )

    def error(self, **fields: object) -> FlinkstyleError:
        """Return the error that this row describes, with its fields filled in."""
        texts = (self.problem, self.state_after, self.remedy)
        return self._made(*(text.format_map(fields) for text in texts))

    def with_text(
        self, problem: str, state_after: str | None = None, remedy: str | None = None
    ) -> FlinkstyleError:
        """Return an error whose sentences are known where it is raised; those not given are the row's."""
        return self._made(
            problem,
            self.state_after if state_after is None else state_after,
            self.remedy if remedy is None else remedy,
        )

    def _made(self, problem: str, state_after: str, remedy: str) -> FlinkstyleError:
        error = self.family(problem, state_after, remedy)
        error.code, error.retryable = self.code, self.transient
        # What Python prints of it, and Spark hands on, has no other name. ``add_note`` comes with 3.11.
        vars(error)["__notes__"] = [f"({self.code})"]
        return error


class BadInputError(FlinkstyleError):
    """A given value cannot be used: malformed, missing or contradictory."""

    code = "BAD_INPUT"


class MessageFormatError(FlinkstyleError):
    """A stored record cannot be parsed, or is of a version this package does not know."""

    code = "MESSAGE_FORMAT"


class SignatureError(FlinkstyleError):
    """A record in the store would start a process or set where it reads from, and no caller has signed it."""

    code = "SIGNATURE"


class ProtocolVersionError(FlinkstyleError):
    """The agent in the driver and this package have different protocol versions."""

    code = "PROTOCOL_VERSION"

    @classmethod
    def between(cls, *, agent: object, orchestrator: int) -> ProtocolVersionError:
        """Name both versions."""
        return cls(
            f"The agent in the Spark driver speaks protocol {agent}, this package speaks {orchestrator}.",
            state_after="The command was not acted on.",
            remedy="Install the same airflow-flinkstyle version next to the job and restart it.",
        )
