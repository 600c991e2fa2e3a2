"""Wait for a job to commit batches, and keep it running meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import PokeReturnValue

from airflow_flinkstyle.hooks.failures import airflow_errors, raise_failure
from airflow_flinkstyle.hooks.keys import request_key
from airflow_flinkstyle.sensors.base import StreamingJobSensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from airflow_flinkstyle.triggers.progress import ProgressWatch


class StreamingJobProgressSensor(StreamingJobSensor):
    """Succeeds once every query has committed ``batches`` more; returns query name -> newest batch.

    A driver that died without an error, or was told to end by its cluster or a person (SIGTERM), is started
    again meanwhile, from its own checkpoint. One that recorded an error fails the task with that error.
    Spark commits nothing while there is nothing to read: then the sensor times out.

    :param batches: How many batches more than when the sensor began.
    :param stop_on_kill: Stop the job, at a batch boundary, when a person kills or clears the task.
    """

    def __init__(self, *, batches: int = 1, stop_on_kill: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self.reschedule:
            raise ValueError("mode='reschedule' forgets where the sensor began: use deferrable=True")
        self.batches = batches
        self.stop_on_kill = stop_on_kill
        self._stop_key = ""
        self._watch: ProgressWatch | None = None

    def poke(self, context: Context) -> PokeReturnValue:
        """Start the driver again if it died, then compare its batches with those at the beginning."""
        from airflow_flinkstyle.triggers.progress import ProgressWatch

        with airflow_errors():
            status = self.hook.look_after(self.job)
        self._watch = self._watch or ProgressWatch(self.batches)
        reached = self._watch.reached(status)
        return PokeReturnValue(reached is not None, reached)

    def execute(self, context: Context) -> dict[str, int]:
        """Check once, and if need be wait, here or in the triggerer."""
        self._stop_key = f"{request_key(context)}-killed"
        deadline_s = time.time() + self.timeout
        result = self._wait_deferred(context, deadline_s) if self.deferrable else super().execute(context)
        return cast("dict[str, int]", result)

    def _wait_deferred(self, context: Context, deadline_s: float) -> dict[str, int]:
        from airflow_flinkstyle.triggers.progress import ProgressTrigger

        poked = self.poke(context)
        if poked or self._watch is None:
            return cast("dict[str, int]", poked.xcom_value)
        trigger = ProgressTrigger(
            batches=self.batches,
            baseline=self._watch.baseline,
            deadline_s=deadline_s,
            stop_on_kill=self.stop_on_kill,
            request_key=self._stop_key,
            **self.trigger_arguments(),
        )
        batches = self.wait_deferred(trigger, context, timeout_s=deadline_s - time.time())
        return cast("dict[str, int]", batches)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, int]:
        """Return the batches; else start the driver again if it died, and wait on."""
        from airflow_flinkstyle.triggers.progress import ProgressWatch

        if "failure" in event:
            raise_failure(event["failure"])
        if "batches" in event:
            return dict(event["batches"])
        self.log.warning("Job %s: %s", self.job, event["look"])
        self._stop_key = f"{request_key(context)}-killed"
        self._watch = ProgressWatch(self.batches, event["baseline"])
        return self._wait_deferred(context, event["deadline_s"])

    def on_kill(self) -> None:
        """Let the job run on, unless ``stop_on_kill`` is set."""
        if self.stop_on_kill and self._stop_key:
            self.hook.ask_to_stop(self.job, self._stop_key)
