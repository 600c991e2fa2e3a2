"""Drivers that their cluster has taken and cannot begin: ended and recorded, so that they hold no job."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.storage.errors import ObjectChangedError

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.status import Run
    from airflow_flinkstyle.jobs.view import JobView

log = logging.getLogger(__name__)


def end_stuck(view: JobView, run: Run) -> Run:
    """End the newest driver of a run if it cannot begin, and return the run as it is then.

    Should it begin at that moment all the same, it is killed, or leaves once a later one was asked for.
    """
    if run.why_stuck is None:
        return run
    log.warning("Ending the driver of generation %d: %s", run.generation, run.why_stuck)
    deployment = view.deployment_of(run.generation, run.claim)
    for native_id in view.native_ids(run):
        deployment.end(native_id)
    slot = view.board.submit(run.generation)
    if slot is not None and slot.value.number == run.submit_number:
        given_up = replace(slot.value, state="failed", detail=run.why_stuck)
        try:
            view.board.put_submit(run.generation, given_up, seen=slot.version)
        except ObjectChangedError:
            log.info("Another caller ended it, or starts the next one")
    return view.run(run.generation)
