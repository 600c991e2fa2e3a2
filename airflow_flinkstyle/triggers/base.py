"""A trigger that looks at the store again and again until there is something to say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.airflow_versions import in_thread
from airflow_flinkstyle.hooks.failures import failure_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow_flinkstyle.hooks.job import StreamingJobHook


class PollTrigger(BaseTrigger):
    """Calls ``check`` in a thread, because stores block, until it answers with an event.

    A store that cannot be reached is asked again: the task's deferral time-out bounds that. Any other
    error becomes the event ``{"failure": ...}``, which the task raises.
    """

    def __init__(self, *, job: str, flinkstyle_conn_id: str, poll_interval_s: float = 2.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.poll_interval_s = poll_interval_s
        self._hook: StreamingJobHook | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and every argument: triggers move between triggerers."""
        kwargs = {
            "job": self.job,
            "flinkstyle_conn_id": self.flinkstyle_conn_id,
            "poll_interval_s": self.poll_interval_s,
            **self.arguments(),
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", kwargs

    def arguments(self) -> dict[str, Any]:
        """Return the subclass's own arguments, as JSON values."""
        return {}

    def check(self) -> dict[str, Any] | None:
        """Look once; blocking. Returns the event's payload, or None to look again."""
        raise NotImplementedError

    @property
    def hook(self) -> StreamingJobHook:
        """The hook, made in the first check: reading connections blocks too."""
        if self._hook is None:
            from airflow_flinkstyle.hooks.job import StreamingJobHook

            self._hook = StreamingJobHook(self.flinkstyle_conn_id)
        return self._hook

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is an event, and fire it."""
        while (payload := await in_thread(self.look)) is None:
            await asyncio.sleep(self.poll_interval_s)
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    def look(self) -> dict[str, Any] | None:
        """Look once; blocking. Returns the event's payload, a failure included, or None to look again."""
        try:
            return self.check()
        except FlinkstyleError as error:
            if not error.retryable:
                return {"failure": failure_of(error)}
            self.log.warning(
                "Job %s: %s Asking again in %g s.", self.job, error.problem, self.poll_interval_s
            )
            return None

    async def cleanup(self) -> None:
        """Let go of the hook and its pooled connections; runs on every exit, so it ends nothing else."""
        self._hook = None
