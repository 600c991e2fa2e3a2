"""Savepoints as asset events, also those taken by a command line, or by a driver that was asked to stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.hooks.shared_roots import shared_root

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class NewSavepointTrigger(BaseEventTrigger):
    """Fires for each newest savepoint of a job; never ends.

    When it begins, it fires for the savepoint that is the newest then: it may have been taken while no
    triggerer ran. So after a restart of the triggerer it fires for the newest one again.

    Args:
        job: The job's name.
        flinkstyle_conn_id: Connection with the savepoint root.
        every_s: From poll to poll.
    """

    def __init__(
        self, *, job: str, flinkstyle_conn_id: str = "flinkstyle_default", every_s: float = 30.0
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.job = job
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.every_s = every_s

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and every argument."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "job": self.job,
            "flinkstyle_conn_id": self.flinkstyle_conn_id,
            "every_s": self.every_s,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Fire with ``job`` and ``savepoint_id``."""
        fired_for = None
        while True:
            newest = await shared_root(self.flinkstyle_conn_id).ask(self._newest)
            if newest is not None and newest != fired_for:
                fired_for = newest
                event = {"job": self.job, "savepoint_id": newest}
                yield TriggerEvent(event)  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.every_s)

    def _newest(self) -> str | None:
        """Return the newest savepoint's id; None if there is none, or the store does not answer."""
        try:
            newest = shared_root(self.flinkstyle_conn_id).hook.newest_savepoint(self.job)
        except FlinkstyleError as error:
            self.log.warning("Job %s: %s Asking again in %g s.", self.job, error.problem, self.every_s)
            return None
        return newest.savepoint_id if newest is not None else None


def watched_savepoint_asset(
    job: str, flinkstyle_conn_id: str = "flinkstyle_default", *, every_s: float = 30.0
) -> Asset:
    """Return an asset with an event for each new savepoint of a job, also one not taken by a DAG.

    Its events come from the store, those of ``hooks.assets.savepoint_asset`` from this package's operators.
    An event's ``extra["payload"]`` has ``job`` and ``savepoint_id``.
    """
    trigger = NewSavepointTrigger(job=job, flinkstyle_conn_id=flinkstyle_conn_id, every_s=every_s)
    return Asset(
        name=f"{flinkstyle_conn_id}/{job}/watched",
        uri=f"flinkstyle://{flinkstyle_conn_id}/{job}/watched",
        watchers=[AssetWatcher(name=f"savepoints of {job}", trigger=trigger)],
    )
