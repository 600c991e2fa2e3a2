"""``_pulses/<job>.json``: a sign of life of each job's driver, all in one folder of the root.

A heartbeat is in its job's folder, so to read a thousand of them takes a thousand requests. One listing of
this folder shows which of a thousand drivers have written since the listing before.

A pulse decides nothing: if a job's pulse did not change, or there is none, its heartbeat is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from airflow_flinkstyle.protocol.record import Record
from airflow_flinkstyle.storage.keys import is_name
from airflow_flinkstyle.types import Generation, Incarnation

if TYPE_CHECKING:
    from airflow_flinkstyle.storage.base import ObjectStore

PULSES: Final = "_pulses"
"""No job's name begins with ``_``, so lists of jobs skip it."""
PULSES_VARIABLE: Final = "FLINKSTYLE_PULSES"
"""``true`` in a driver's environment: it writes pulses. Each is one more PUT in 5 s, which S3 charges for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse(Record):
    """Written by the driver that holds the job, over the last one, after each heartbeat."""

    what: ClassVar[str] = "pulse"

    generation: Generation
    incarnation: Incarnation
    beat: int
    """``beat`` of that heartbeat: so each pulse differs from the one before."""


def pulse_key(job: str) -> str:
    """Return the key of a job's pulse."""
    return f"{PULSES}/{job}.json"


def write_pulse(store: ObjectStore, job: str, pulse: Pulse) -> None:
    """Write the job's pulse over any earlier one."""
    store.write(pulse_key(job), pulse.to_bytes())


def pulses(store: ObjectStore) -> dict[str, str]:
    """Return the version of each job's pulse, by one request for each thousand of them."""
    prefix = f"{PULSES}/"
    found = ((info.key[len(prefix) :].removesuffix(".json"), info.version) for info in store.list(prefix))
    return {job: version for job, version in found if is_name(job)}
