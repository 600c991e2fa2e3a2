"""``_pulses/<job>.json``: a sign of life of each job's driver, all in one folder of the root.

A heartbeat stands in its job's folder, so a thousand of them take a thousand requests. One listing of this
folder tells of a thousand drivers which of them have written since the listing before.

Nothing is decided by a pulse: a job whose pulse stands still is looked at, as one without a pulse is.
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
"""No job's name begins like it, and lists of jobs leave it out."""
PULSES_VARIABLE: Final = "FLINKSTYLE_PULSES"
"""``true`` in a driver's environment: it writes pulses. Each is one more PUT in 5 s, which S3 charges for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse(Record):
    """The driver's that holds the job, written over after each heartbeat that was written."""

    what: ClassVar[str] = "pulse"

    generation: Generation
    incarnation: Incarnation
    beat: int
    """Of that heartbeat: so each pulse differs from the one before."""


def pulse_key(job: str) -> str:
    """Return where a job's pulse stands."""
    return f"{PULSES}/{job}.json"


def write_pulse(store: ObjectStore, job: str, pulse: Pulse) -> None:
    """Write over the job's pulse, whoever has written it before."""
    store.write(pulse_key(job), pulse.to_bytes())


def pulses(store: ObjectStore) -> dict[str, str]:
    """Return the version of each job's pulse, by one request for each thousand of them."""
    prefix = f"{PULSES}/"
    found = ((info.key[len(prefix) :].removesuffix(".json"), info.version) for info in store.list(prefix))
    return {job: version for job, version in found if is_name(job)}
