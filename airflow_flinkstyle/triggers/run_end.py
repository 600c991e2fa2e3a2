"""A trigger about the end of a job's script."""

from __future__ import annotations

from typing import Any

from airflow_flinkstyle.jobs.status import Running, Starting, describe_status
from airflow_flinkstyle.triggers.base import PollTrigger


class RunEndTrigger(PollTrigger):
    """Fires when the script of a run has ended by itself, or when the driver has to be started again.

    As ``ProgressTrigger`` it relaunches nothing.

    Args:
        generation: Which run, as ``StreamingJobEndSensor`` takes it.
        deadline_s: Epoch seconds until which the task waits; handed back to a task that is woken up.
    """

    def __init__(
        self, *, generation: int | str | None = None, deadline_s: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.generation = generation
        self.deadline_s = deadline_s

    def arguments(self) -> dict[str, Any]:
        """Return what to wait for."""
        return {"generation": self.generation, "deadline_s": self.deadline_s}

    def check(self) -> dict[str, Any] | None:
        """Return ``{"end": ...}`` once it has ended, or ``{"look": ...}`` for a driver that does not run."""
        from airflow_flinkstyle.jobs.answers.values import number_or_none
        from airflow_flinkstyle.jobs.run_end import end_as_json, end_status

        status = end_status(self.hook.client(self.job).view, number_or_none("generation", self.generation))
        if isinstance(status, (Running, Starting)):
            return None
        end = end_as_json(status)
        if end is not None:
            return {"end": end}
        return {"look": describe_status(status), "deadline_s": self.deadline_s}
