"""What the page changes itself: pins, and a reading at once. All else is a DAG that Airflow triggers."""

# FastAPI reads the annotations at run time, so they are not postponed.

import logging
from collections.abc import Sequence
from typing import Any

from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.utils.session import create_session
from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.plugin import access, acting_answers
from airflow_flinkstyle.plugin.access import FoundJob, Readable, Triggerable, may, require_same_origin
from airflow_flinkstyle.plugin.button_dags import fitting_dags
from airflow_flinkstyle.plugin.reading import ERRORS, SAVEPOINT
from airflow_flinkstyle.plugin.roots import OpenRoot
from airflow_flinkstyle.protocol.board import check_job_name, check_name
from airflow_flinkstyle.savepoint.blobs.references import pin, unpin

ACTIONS = (
    "start_job",
    "stop_job",
    "take_savepoint",
    "upgrade_job",
    "roll_back",
    "migrate_kafka_cluster",
    "fail_back",
    "settle_job",
    "verify_savepoint",
    "drill_restore",
    "compare_versions",
    "replay_job",
    "export_savepoint",
    "dispose_savepoints",
    "adopt_job",
    "adopt_running_job",
    "leave_job",
)
"""What the page's buttons do, by the DAG that each opens if it is there and the user may trigger it."""
PIN_WAIT_S = 5.0
"""How long a pin waits for a prune that is at work: a person waits for the answer."""
log = logging.getLogger(__name__)
router = APIRouter(prefix="/api")
ANSWER: dict[str, Any] = {"response_model": None, "response_class": JSONResponse}
CHANGES: dict[str, Any] = {**ANSWER, "dependencies": [Depends(require_same_origin)]}


@router.get(
    "/roots/{conn_id}/actions", **ANSWER, responses={200: {"model": acting_answers.Actions}, 403: ERRORS[403]}
)
def actions(root: Readable, user: GetUserDep, job: str | None = None) -> JSONResponse:
    """Return what this user may do, and the DAGs that the page's buttons may open for them.

    With ``job`` a DAG made for that job alone, ``<action>_<job>``, is preferred to the one for any job.
    None of them acts on the jobs of another root.
    """
    own = f"_{check_job_name(job)}" if job is not None else ""
    wanted = {action: (f"{action}{own}", action) for action in ACTIONS}
    with create_session() as session:
        named = [dag_id for pair in wanted.values() for dag_id in pair]
        known = fitting_dags(session, named, root.page.conn_id, listed_dags(root))
    found = {
        action: next((one for one in pair if one in known and may_trigger(user, root, one)), None)
        for action, pair in wanted.items()
    }
    may_act = may_trigger(user, root)
    return JSONResponse(
        {
            "dags": {action: dag_id for action, dag_id in found.items() if dag_id is not None},
            "refresh": may_act,
            "pin": may_act,
            "kafka": may_act,
            "logs": access.may_read_logs(user, root.page),
        }
    )


def listed_dags(root: OpenRoot) -> Sequence[str] | None:
    """Return the DAGs that the root's connection lists; None if it lists none, or cannot be read."""
    try:
        return root.hook().defaults.dags
    except FlinkstyleError as error:
        log.info("The Savepoints page cannot read a connection: %s", error)
        return None


def may_trigger(user: BaseUser, root: OpenRoot, dag_id: str | None = None) -> bool:
    """Return whether a user may trigger a DAG, the root's by default."""
    return may(user, root.page, trigger=True, dag_id=dag_id)


@router.post(
    "/roots/{conn_id}/refresh", **CHANGES, responses={200: {"model": acting_answers.Begun}, 403: ERRORS[403]}
)
def refresh(root: Triggerable) -> JSONResponse:
    """Read the jobs again at once, if the store has not been asked too often."""
    return JSONResponse({"begun": root.watch.request_reading()})


@router.put(SAVEPOINT + "/pin", **CHANGES, responses={200: {"model": acting_answers.Pinned}, **ERRORS})
async def put_pin(
    job: str,
    savepoint_id: str,
    why: acting_answers.PinReason,
    root: Triggerable,
    reader: FoundJob,
    user: GetUserDep,
) -> JSONResponse:
    """Keep a savepoint from every prune, and say why."""
    check_name("savepoint id", savepoint_id)
    by, reason = user.get_name(), why["reason"]

    def write() -> None:
        pin(reader.repository, savepoint_id, reason=reason, by=by, at_ms=now_ms(), wait_s=PIN_WAIT_S)

    await root.watch.pieces.act(write, ("savepoints", job), ("job", job))
    log.info("User %s pinned savepoint %s of job %s: %s", by, savepoint_id, job, reason)
    return JSONResponse({"pinned": reason})


@router.delete(SAVEPOINT + "/pin", **CHANGES, responses={200: {"model": acting_answers.Pinned}, **ERRORS})
async def delete_pin(
    job: str, savepoint_id: str, root: Triggerable, reader: FoundJob, user: GetUserDep
) -> JSONResponse:
    """Let retention decide on a savepoint again."""
    check_name("savepoint id", savepoint_id)
    await root.watch.pieces.act(
        lambda: unpin(reader.repository, savepoint_id), ("savepoints", job), ("job", job)
    )
    log.info("User %s unpinned savepoint %s of job %s", user.get_name(), savepoint_id, job)
    return JSONResponse({"pinned": None})
