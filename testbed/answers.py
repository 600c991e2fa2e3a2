"""A program that answers questions: JSON lines in, JSON lines out, one child process for many questions."""

from __future__ import annotations

import json
import os
import subprocess
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType


def own_output() -> IO[str]:
    """Return the program's standard output, and leave everybody else, its JVM too, the log instead."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


class AnswerError(RuntimeError):
    """The program answered with an error, or ended."""


class Answering:
    """The program as a child process: starts when first asked, ends with the context."""

    def __init__(self, *, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._command, self._env, self._log = command, env, log
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Return it; the child starts with ``start`` or the first question."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the child."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def start(self) -> subprocess.Popen[str]:
        """Start the child ahead of the first question, so that its JVM is up by then."""
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603  (our own program)
                    self._command,
                    env=self._env,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        return self._process

    def ask(self, question: Mapping[str, object]) -> dict[str, Any]:
        """Return the answer.

        Raises:
            AnswerError: If it answers ``{"error": TEXT}``, or has ended.
        """
        process = self.start()
        if process.stdin is None or process.stdout is None:
            raise AnswerError("the program has no pipes")
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": f"it ended; see {self._log}"}
        if "error" in answer:
            raise AnswerError(answer["error"])
        return answer
