"""What all sensors share: the job, the connection, and waiting in the triggerer if that is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator

from airflow_flinkstyle.hooks.airflow_versions import AirflowSensorTimeout
from airflow_flinkstyle.hooks.deferral import is_deferrable, wait_in_triggerer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from airflow.sdk import Context

    from airflow_flinkstyle.hooks.job import StreamingJobHook
    from airflow_flinkstyle.triggers.base import PollTrigger


class StreamingJobSensor(BaseSensorOperator):
    """Base of the sensors.

    :param job: Name of the job, unique under the savepoint root. (templated)
    :param flinkstyle_conn_id: Connection with the savepoint root. (templated)
    :param deferrable: Wait in the triggerer, so that no worker slot is held.
    """

    template_fields: Sequence[str] = ("job", "flinkstyle_conn_id")
    ui_color = "#e6ddf4"

    def __init__(
        self,
        *,
        job: str,
        flinkstyle_conn_id: str = "flinkstyle_default",
        deferrable: bool | None = None,
        poke_interval: timedelta | float = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.job = job
        self.flinkstyle_conn_id = flinkstyle_conn_id
        self.deferrable = is_deferrable(deferrable)

    def execute_complete(self, context: Context, event: Any) -> Any:  # noqa: ANN401 - each has its own
        """Return what the sensor waited for, or wait on."""
        raise NotImplementedError

    @property
    def hook(self) -> StreamingJobHook:
        """A hook on the rendered connections."""
        from airflow_flinkstyle.hooks.job import StreamingJobHook

        return StreamingJobHook(self.flinkstyle_conn_id)

    def trigger_arguments(self) -> dict[str, Any]:
        """Return what every trigger needs to know."""
        return {
            "job": self.job,
            "flinkstyle_conn_id": self.flinkstyle_conn_id,
            "poll_interval_s": float(self.poke_interval),
        }

    def wait_deferred(self, trigger: PollTrigger, context: Context, *, timeout_s: float) -> Any:  # noqa: ANN401
        """Wait for ``trigger``; its event goes to ``execute_complete``."""
        if timeout_s <= 0:
            raise AirflowSensorTimeout(f"Nothing came within {self.timeout:g} s.")
        return wait_in_triggerer(self, trigger, context, timeout_s=timeout_s)
