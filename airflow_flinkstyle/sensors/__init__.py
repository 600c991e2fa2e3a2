"""Sensors: the job makes progress; it has ended by itself; a savepoint is fresh enough."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_flinkstyle.sensors.end import StreamingJobEndSensor as StreamingJobEndSensor
    from airflow_flinkstyle.sensors.freshness import SavepointFreshnessSensor as SavepointFreshnessSensor
    from airflow_flinkstyle.sensors.progress import StreamingJobProgressSensor as StreamingJobProgressSensor

MODULES = {
    "SavepointFreshnessSensor": "freshness",
    "StreamingJobEndSensor": "end",
    "StreamingJobProgressSensor": "progress",
}


def __getattr__(name: str) -> object:
    """Import a sensor's module when the sensor is first asked for."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    return found
