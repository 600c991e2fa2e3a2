"""Waiting for a drill to end."""

from __future__ import annotations

from typing import Any

from airflow_flinkstyle.triggers.base import PollTrigger
from airflow_flinkstyle.types import Generation


class DrillTrigger(PollTrigger):
    """Fires when a drill has ended, with success or not.

    Args:
        generation: Under which its driver runs.
    """

    def __init__(self, *, generation: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generation = Generation(generation)

    def arguments(self) -> dict[str, Any]:
        """Return the generation."""
        return {"generation": int(self.generation)}

    def check(self) -> dict[str, Any] | None:
        """Return ``{"generation": ...}``; the task reads the outcome itself."""
        from airflow_flinkstyle.jobs.drills import is_drilled

        return self.arguments() if is_drilled(self.hook.client(self.job).view, self.generation) else None

    async def on_kill(self) -> None:
        """End the drill's driver when a person kills or clears the task."""
        await self.root.call(self._end)

    def _end(self) -> None:
        self.hook.client(self.job).drivers.dismiss(self.generation)
