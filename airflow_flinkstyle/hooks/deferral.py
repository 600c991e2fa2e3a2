"""Whether a task waits in the triggerer, and how it gets there."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from airflow_flinkstyle.hooks.airflow_versions import conf

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

AT_ONCE_S = 5.0
"""How long a task polls itself. A deferral that ends within seconds meets a race of Airflow's: its event may
come before the scheduler knows of the deferral, and the task fails although all is done."""
_POLL_S = 0.25


class _Waiting(Protocol):
    """An operator that waits in the triggerer."""

    @property
    def defer(self) -> Callable[..., Any]: ...

    def execute_complete(self, context: Context, event: Any) -> Any: ...  # noqa: ANN401 - each has its own


class _Polling(Protocol):
    """A trigger that can poll in this process, too."""

    def poll(self) -> Mapping[str, Any] | None: ...


def is_deferrable(asked: bool | None) -> bool:
    """Return the author's choice; without one, the default of Airflow's configuration."""
    return conf.getboolean("operators", "default_deferrable", fallback=False) if asked is None else asked


def wait_in_triggerer(
    task: _Waiting, trigger: _Polling | BaseTrigger, context: Context, *, timeout_s: float
) -> Any:  # noqa: ANN401
    """Wait some seconds here, then in the triggerer; the event goes to ``execute_complete`` either way.

    Args:
        task: The operator or sensor.
        trigger: What it waits for, a ``PollTrigger``.
        context: Of the task.
        timeout_s: How long it may wait in all.

    Returns:
        What ``execute_complete`` returns, if the event came at once; else this raises ``TaskDeferred``.
    """
    end_s = time.monotonic() + min(AT_ONCE_S, timeout_s)
    while time.monotonic() < end_s:
        event = trigger.poll()  # type: ignore[union-attr]
        if event is not None:
            return task.execute_complete(context, event)
        time.sleep(_POLL_S)
    return task.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=timeout_s))
