"""Wait for a job whose script ends by itself, and keep it running until then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

from airflow.sdk import PokeReturnValue

from airflow_flinkstyle.hooks.failures import airflow_errors, raise_failure
from airflow_flinkstyle.sensors.base import StreamingJobSensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context


class StreamingJobEndSensor(StreamingJobSensor):
    """Succeeds once the job's script has ended by itself (trigger ``availableNow``).

    Returns ``generation``, and ``batches``: query name -> newest batch. A driver that died without an error,
    or was told to end by its cluster or a person (SIGTERM), is started again meanwhile, from its own
    checkpoint. A script that failed fails the task with its error; so does a stop before the end.

    :param generation: Which run, as ``StartStreamingJobOperator`` returns it; a run that has replaced it
        counts too. None for the newest. (templated)
    """

    template_fields: Sequence[str] = (*StreamingJobSensor.template_fields, "generation")

    def __init__(self, *, generation: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.generation = generation

    def poke(self, context: Context) -> PokeReturnValue:
        """Start the driver again if it died, then check whether the script has ended."""
        from airflow_flinkstyle.jobs.answers.values import number_or_none

        with airflow_errors():
            end = self.hook.look_for_end(self.job, number_or_none("generation", self.generation))
        return PokeReturnValue(end is not None, end)

    def execute(self, context: Context) -> dict[str, Any]:
        """Check once, and if need be wait, here or in the triggerer."""
        if not self.deferrable:
            return cast("dict[str, Any]", super().execute(context))
        return self._wait_deferred(context, time.time() + self.timeout)

    def _wait_deferred(self, context: Context, deadline_s: float) -> dict[str, Any]:
        from airflow_flinkstyle.triggers.run_end import RunEndTrigger

        poked = self.poke(context)
        if poked:
            return cast("dict[str, Any]", poked.xcom_value)
        trigger = RunEndTrigger(generation=self.generation, deadline_s=deadline_s, **self.trigger_arguments())
        ended = self.wait_deferred(trigger, context, timeout_s=deadline_s - time.time())
        return cast("dict[str, Any]", ended)

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return how it ended; else start the driver again if it died, and wait on."""
        if "failure" in event:
            raise_failure(event["failure"])
        if "end" in event:
            return dict(event["end"])
        self.log.warning("Job %s: %s", self.job, event["look"])
        return self._wait_deferred(context, event["deadline_s"])
