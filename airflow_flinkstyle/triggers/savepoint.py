"""Triggers about savepoints: one is being taken, or one must be fresh enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.triggers.base import PollTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.hooks.progress import ProgressLog


class RequestTrigger(PollTrigger):
    """Fires when the driver has ended a request, or will never answer it.

    Args:
        request: ``jobs.request_slot.PendingRequest`` as a mapping.
    """

    def __init__(self, *, request: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = dict(request)
        self._progress: ProgressLog | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the request."""
        return {"request": self.request}

    def check(self) -> dict[str, Any] | None:
        """Return ``{"request": ...}``; the task reads the outcome itself, and can ask once more."""
        from airflow_flinkstyle.hooks.progress import ProgressLog
        from airflow_flinkstyle.jobs.request_slot import InProgress, PendingRequest

        state = self.hook.client(self.job).requests.poll(PendingRequest(**self.request))
        if not isinstance(state, InProgress):
            return {"request": self.request}
        self._progress = self._progress or ProgressLog(self.log.info)
        self._progress.reported(state.progress)
        return None


class FreshSavepointTrigger(PollTrigger):
    """Fires when the job has a savepoint not older than ``max_age_s``."""

    def __init__(self, *, max_age_s: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_age_s = max_age_s

    def arguments(self) -> dict[str, Any]:
        """Return the age allowed."""
        return {"max_age_s": self.max_age_s}

    def check(self) -> dict[str, Any] | None:
        """Return ``{"savepoint_id": ...}`` of the fresh one."""
        fresh = self.hook.fresh_savepoint(self.job, self.max_age_s)
        return None if fresh is None else {"savepoint_id": fresh.savepoint_id}
