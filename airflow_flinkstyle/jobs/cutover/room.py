"""Whether a cluster has room for the next driver beside the one that runs, before anything is started."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import NoRoomError
from airflow_flinkstyle.jobs.placement import beyond, footprint, lack

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.running.client import JobClient
    from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget

log = logging.getLogger(__name__)


def require_room(client: JobClient, spec: JobSpec, target: SubmitTarget) -> tuple[str, bool]:
    """Return what the next driver takes while it waits, in words, and whether all of that is free.

    What is merely not free is no error: a cluster may grow, and a driver begins with fewer executors.

    Raises:
        BadInputError: If it takes more than the Spark connection allows.
        NoRoomError: If a quota or a queue's limit does not let it begin with one executor.
    """
    needed = footprint(spec, target)
    if (over := beyond(needed, target)) is not None:
        raise BadInputError(
            f"The next driver of job {spec.name} was expected to take no more than the Spark connection "
            f"allows, found {over}.",
            state_after="Nothing was started or stopped.",
            remedy="Raise standby-cores or standby-memory in the connection's extra, give the job less "
            "(spark.executor.instances), or upgrade with standby='none'.",
        )
    ask = getattr(client.deployment_for(target), "room", None)
    room = ask() if ask is not None else None
    if room is not None and (short := lack(needed.least, room.limit)) is not None:
        raise NoRoomError(
            f"Room for {needed} was expected beside the driver of job {spec.name}, found that {short}.",
            state_after="Nothing was started or stopped; the job keeps running.",
            remedy="Free what others hold, or raise the quota or the queue's limit; an upgrade can do "
            "without a second driver (standby='none').",
        )
    told = f"Beside the driver that runs, the next one waits until it takes over: {needed}."
    if (short := lack(needed, room)) is None:
        log.info("%s", told)
        return told, True
    told += f" Now {short}: it may wait, or begin with fewer executors."
    log.warning("%s", told)
    return told, False
