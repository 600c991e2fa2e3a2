"""A trigger that polls the store until there is an event."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.errors import ConnectionMissingError
from airflow_flinkstyle.hooks.failures import failure_of
from airflow_flinkstyle.hooks.shared_roots import shared_root
from airflow_flinkstyle.jobs.status import RETRY_FOR_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.hooks.shared_roots import SharedRoot


_AWAY = "Its store does not answer: one of the waiting triggers asks it again from time to time."


class PollTrigger(BaseTrigger):
    """Calls ``check`` in a thread of its root, because stores block, until it returns an event.

    After an error that may pass, such as a store that cannot be reached, it polls again: the task's deferral
    time-out bounds that. So it does if a connection is not found, for half an hour: the task had it before
    it deferred, and Airflow calls it missing, too, while its API server does not answer. Any other error
    becomes the event ``{"failure": ...}``, which the task raises.
    """

    missing_for_s: ClassVar[float] = RETRY_FOR_S
    """How long a connection may be missing."""

    def __init__(self, *, job: str, flinkstyle_conn_id: str, poll_interval_s: float = 2.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.poll_interval_s = poll_interval_s
        self._missing_since_s: float | None = None

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
        """Check once; blocking. Returns the event's payload, or None to check again."""
        raise NotImplementedError

    @property
    def root(self) -> SharedRoot:
        """What this process shares of the savepoint root."""
        return shared_root(self.flinkstyle_conn_id)

    @property
    def hook(self) -> StreamingJobHook:
        """The hook, for a thread: reading connections blocks too."""
        return self.root.hook

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is an event, and fire it."""
        has_warned = False
        while (payload := await self.root.ask(self.poll)) is None:
            if self.root.is_paused and not has_warned:
                has_warned = True
                # In a thread: a triggerer whose loop waits to write a log hangs with its supervisor, which
                # waits for it to read. A thousand triggers log this at once.
                await self.root.call(partial(self.log.warning, "Job %s: %s", self.job, _AWAY))
            await asyncio.sleep(self.poll_interval_s)
        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    def poll(self) -> dict[str, Any] | None:
        """Check once; blocking. Returns the event's payload, a failure included, or None to poll again."""
        try:
            payload, self._missing_since_s = self.check(), None
        except FlinkstyleError as error:
            if not (error.retryable or self._may_come_back(error)):
                return {"failure": failure_of(error)}
            self.log.warning(
                "Job %s: %s Asking again in %g s.", self.job, error.problem, self.poll_interval_s
            )
            return None
        return payload

    def _may_come_back(self, error: FlinkstyleError) -> bool:
        """Return whether a connection is missing, and has not been for long."""
        if not isinstance(error, ConnectionMissingError):
            return False
        self._missing_since_s = self._missing_since_s or time.monotonic()
        return time.monotonic() - self._missing_since_s < self.missing_for_s
