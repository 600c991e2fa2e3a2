"""Run ``spark-submit`` here, so that it hands a driver over to a cluster."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.kafka.login import scrub

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.jobs.deployments.base import Submission

_TIMEOUT_S: Final = 600.0
_SHOWN_LINES: Final = 15


def run(
    command: Sequence[str], submission: Submission, env: Mapping[str, str] | None = None
) -> tuple[str, int]:
    """Run it, and return its output and its exit code.

    Args:
        command: The whole command line.
        submission: Of the driver.
        env: Added to that of the submission.

    Raises:
        OSError: If there is no such program.
    """
    try:
        done = subprocess.run(  # noqa: S603 - argv is built by submit_argv, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**submission.submitter_env, **(env or {})},
            cwd=submission.cwd,
            timeout=_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return f"spark-submit did not end within {_TIMEOUT_S:g} s", 1
    return done.stdout, done.returncode


def end_of(output: str, submission: Submission) -> str:
    """Return the last lines of its output, without the logins of the driver."""
    return "\n".join(scrub(output, submission.env).splitlines()[-_SHOWN_LINES:])
