"""What a supervisor is told of its driver."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_flinkstyle.jobs.deployments.base import Submission
from airflow_flinkstyle.jobs.signing import KEY_VARIABLE, PREVIOUS_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPERVISOR: Final = "airflow_flinkstyle.jobs.deployments.supervisor"
"""The module that a supervisor runs, as its command line names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a supervisor is told, on its standard input: a driver's environment holds credentials."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None
    log_path: str
    native_id: Mapping[str, str]
    """The driver that runs."""
    class_archives: bool = False
    """Whether the next one may start from an archive of classes, which this one may have begun to make."""

    def to_json(self) -> str:
        """Render it."""
        names = ("argv", "env", "cwd", "log_path", "native_id", "class_archives")
        return json.dumps({name: getattr(self, name) for name in names})

    @property
    def submission(self) -> Submission:
        """How the driver was started."""
        return Submission(
            argv=tuple(self.argv), marker=(), env=self.env, cwd=self.cwd, log_path=self.log_path
        )


def option(argv: tuple[str, ...], name: str) -> str:
    """Return what a driver's command line says of an option of the launcher."""
    return argv[argv.index(f"--{name}") + 1]


def environment(starter: Mapping[str, str], reaches: Mapping[str, str]) -> dict[str, str]:
    """Return a supervisor's environment: that of who starts it, without signing keys and Airflow's secrets.

    Args:
        starter: The environment of the caller.
        reaches: What the store is reached with, on top of it.
    """
    hidden = (KEY_VARIABLE, PREVIOUS_VARIABLE)
    kept = {
        name: value
        for name, value in starter.items()
        if name not in hidden and not name.startswith("AIRFLOW_")
    }
    return {**kept, **reaches}
