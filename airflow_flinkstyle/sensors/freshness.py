"""Wait for a savepoint that is fresh enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue

from airflow_flinkstyle.hooks.failures import airflow_errors, raise_failure
from airflow_flinkstyle.sensors.base import StreamingJobSensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context


class SavepointFreshnessSensor(StreamingJobSensor):
    """Succeeds once the job has a savepoint not older than ``max_age_s``; returns its id.

    :param max_age_s: Age allowed, by the clocks of the machine that took it and of this one.
    """

    def __init__(self, *, max_age_s: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_age_s = max_age_s

    def poke(self, context: Context) -> PokeReturnValue:
        """Check once."""
        with airflow_errors():
            fresh = self.hook.fresh_savepoint(self.job, self.max_age_s)
        return PokeReturnValue(fresh is not None, None if fresh is None else fresh.savepoint_id)

    def execute(self, context: Context) -> str:
        """Check once, and if need be wait, here or in the triggerer."""
        if not self.deferrable:
            return str(super().execute(context))
        poked = self.poke(context)
        if poked:
            return str(poked.xcom_value)
        from airflow_flinkstyle.triggers.savepoint import FreshSavepointTrigger

        trigger = FreshSavepointTrigger(max_age_s=self.max_age_s, **self.trigger_arguments())
        return str(self.wait_deferred(trigger, context, timeout_s=self.timeout))

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> str:
        """Return what the trigger found."""
        if "failure" in event:
            raise_failure(event["failure"])
        return str(event["savepoint_id"])
