"""A trigger about a job's batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.status import Running, Starting, describe_status
from airflow_flinkstyle.triggers.base import PollTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping


class ProgressWatch:
    """Compares a run's batches with those it had when the watch began.

    Args:
        batches: How many more batches every query must commit.
        baseline: ``{"generation": ..., "batches": ...}`` where the watch began; None begins it now. Another
            generation begins another baseline, because a restored run counts from its savepoint's batch.
    """

    def __init__(self, batches: int, baseline: Mapping[str, Any] | None = None) -> None:
        self.batches = batches
        self.baseline = None if baseline is None else dict(baseline)

    def reached(self, status: Running | Starting) -> dict[str, int] | None:
        """Return the newest batches once every started query has committed enough, else None."""
        now = status.run.heartbeat.batches() if status.run.heartbeat else {}
        if self.baseline is None or self.baseline["generation"] != status.run.generation:
            if isinstance(status, Starting) and not now:
                return None  # a new generation: where it begins is known once it runs
            self.baseline = {"generation": int(status.run.generation), "batches": now}
        if not isinstance(status, Running):
            return None
        before = self.baseline["batches"]
        started = [name for name, query in status.heartbeat.queries.items() if not query.waiting]
        done = [now.get(name, -1) - before.get(name, -1) >= self.batches for name in started]
        return now if done and all(done) else None


class ProgressTrigger(PollTrigger):
    """Fires when every query has committed enough batches, or when the driver has to be started again.

    The triggerer relaunches nothing: a detached driver would run on the triggerer's machine. It wakes
    the task, which relaunches from a worker.

    Args:
        batches: How many more batches every query must commit.
        baseline: See ``ProgressWatch``.
        deadline_s: Epoch seconds until which the task waits; handed back to a task that is woken up,
            because ``dag.test()`` drops what ``defer`` keeps for it.
        stop_on_kill: Stop the job, at a batch boundary, when a person kills or clears the task.
        request_key: Key of the request for that stop.
    """

    def __init__(
        self,
        *,
        batches: int,
        baseline: Mapping[str, Any] | None = None,
        deadline_s: float = 0.0,
        stop_on_kill: bool = False,
        request_key: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.watch = ProgressWatch(batches, baseline)
        self.deadline_s = deadline_s
        self.stop_on_kill = stop_on_kill
        self.request_key = request_key

    def arguments(self) -> dict[str, Any]:
        """Return what to wait for."""
        return {
            "batches": self.watch.batches,
            "baseline": self.watch.baseline,
            "deadline_s": self.deadline_s,
            "stop_on_kill": self.stop_on_kill,
            "request_key": self.request_key,
        }

    def check(self) -> dict[str, Any] | None:
        """Return ``{"batches": ...}`` once reached, or ``{"look": ...}`` for a driver that does not run."""
        status = self.hook.client(self.job).view.status()
        if not isinstance(status, (Running, Starting)):
            return self._wake_up(describe_status(status))
        if (reached := self.watch.reached(status)) is not None:
            return {"batches": reached}
        return None

    def _wake_up(self, reason: str) -> dict[str, Any]:
        return {"look": reason, "baseline": self.watch.baseline, "deadline_s": self.deadline_s}

    async def on_kill(self) -> None:
        """Stop the job if that was asked for; else a stream outlives the tasks that watch it."""
        if self.stop_on_kill:
            await self.root.call(self._ask_to_stop)

    def _ask_to_stop(self) -> None:
        self.hook.ask_to_stop(self.job, self.request_key)
