"""What the page reads, below ``/flinkstyle/api``; each answer is described in ``answers``."""

# FastAPI reads the annotations at run time, so they are not postponed.

from collections.abc import Callable
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import JSONResponse

from airflow_flinkstyle.plugin import access, acting_answers, answers, kept
from airflow_flinkstyle.plugin.access import Looked, Readable, may, roots_of
from airflow_flinkstyle.plugin.driver_log import driver_log
from airflow_flinkstyle.plugin.looks.savepoint_documents import manifest_document
from airflow_flinkstyle.plugin.starting import dry_run
from airflow_flinkstyle.protocol.board import check_name
from airflow_flinkstyle.savepoint.diff import diff_savepoints
from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from airflow_flinkstyle.typed_json import encode
from airflow_flinkstyle.types import Generation

IMMUTABLE_S = 3600.0
"""How long a manifest counts: it never changes, but it may be disposed of."""
MOST_LINES = 2000
JOB = "/roots/{conn_id}/jobs/{job}"
SAVEPOINT = JOB + "/savepoints/{savepoint_id}"
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": answers.Failed, "description": "What was asked cannot be."},
    403: {"description": "No right to read, or to trigger, the root's DAG."},
    404: {"model": answers.Failed, "description": "No such job or savepoint."},
    503: {"model": answers.Failed, "description": "The store cannot be read now."},
}
router = APIRouter(prefix="/api")


def answered(path: str, model: object) -> Callable[..., Any]:
    """Declare a route and its answer, sent as it is: to check each would cost more than to make it."""
    return router.get(
        path,
        response_model=None,
        response_class=JSONResponse,
        responses={200: {"model": model}, **ERRORS},
    )


@answered("/jobs", answers.Jobs)
def jobs(request: Request, user: GetUserDep) -> JSONResponse:
    """Return all jobs that the user may see, as read last, by savepoint root."""
    roots = roots_of(request)
    if roots.fault is not None:
        raise roots.fault
    found = [root for root in roots.by_connection.values() if may(user, root.page, trigger=False)]
    if not found:
        raise access.denied(user, "No right to read the DAG of any savepoint root.")
    return JSONResponse({"roots": [{"conn_id": root.page.conn_id, **root.watch.jobs()} for root in found]})


@answered(JOB, answers.Job)
def job_view(job: str, root: Readable, look: Looked) -> JSONResponse:
    """Return one job: runs, savepoints, migrations and upgrades, failures, lineage, and how fast it was."""
    return JSONResponse(root.watch.pieces.get(("job", job), look.detail))


@answered(JOB + "/savepoints", answers.Savepoints)
def savepoints(job: str, root: Readable, look: Looked, offset: int = 0, limit: int = 100) -> JSONResponse:
    """Return some of the job's savepoints, the newest first; ``limit`` is 1000 at most."""
    found = _listed(job, root, look)
    first, most = max(0, offset), min(max(1, limit), 1000)
    return JSONResponse({"total": len(found), "savepoints": found[first : first + most]})


@answered(JOB + "/usage", answers.Kept)
def usage(job: str, root: Readable, look: Looked) -> JSONResponse:
    """Return what the job keeps, how much that is, and why, as counted in the last ten minutes."""

    def count() -> dict[str, Any]:
        return kept.kept(root, look, look.savepoints.listed(more=0))

    return JSONResponse(root.watch.pieces.get(("usage", job), count, fresh_s=kept.FRESH_S))


@answered(SAVEPOINT, answers.SavepointContent)
def savepoint(job: str, savepoint_id: str, root: Readable, look: Looked) -> JSONResponse:
    """Return what is in one savepoint, without the names of its files."""
    summary = _summary(job, savepoint_id, root, look)

    def read() -> dict[str, Any]:
        return manifest_document(look.repository.read(savepoint_id))

    manifest = root.watch.pieces.get(("savepoint", job, savepoint_id), read, fresh_s=IMMUTABLE_S)
    return JSONResponse({**summary, **manifest})


@answered(SAVEPOINT + "/start", acting_answers.DryStart)
def start(
    job: str,
    savepoint_id: str,
    root: Readable,
    look: Looked,
    user: GetUserDep,
    kafka_conn_id: Annotated[list[str], Query(max_length=8)] = [],  # noqa: B006 - FastAPI copies it
) -> JSONResponse:
    """Return what a start from the savepoint would meet; nothing is started.

    With ``kafka_conn_id`` the clusters of these connections are asked whether its positions can still be
    read, which takes the right to trigger.
    """
    if kafka_conn_id and not may(user, root.page, trigger=True):
        raise access.denied(user, f"No right to trigger DAG {root.page.dag_id}, so no cluster is asked.")
    summary = _summary(job, savepoint_id, root, look)
    asked = tuple(sorted(set(kafka_conn_id)))
    return JSONResponse(
        root.watch.pieces.get(
            ("start", job, savepoint_id, asked), lambda: dry_run(root, job, savepoint_id, summary, asked)
        )
    )


@answered(JOB + "/diff", answers.Diff)
def diff(job: str, before: str, after: str, root: Readable, look: Looked) -> JSONResponse:
    """Return what changed from one savepoint of the job to another."""
    for savepoint_id in (before, after):
        check_name("savepoint id", savepoint_id)

    def read() -> object:
        return encode(diff_savepoints(look.repository.read(before), look.repository.read(after)))

    return JSONResponse(root.watch.pieces.get(("diff", job, before, after), read, fresh_s=IMMUTABLE_S))


@answered(JOB + "/runs/{generation}/log", answers.DriverLog)
def log(
    job: str, generation: int, root: Readable, look: Looked, user: GetUserDep, lines: int = 200
) -> JSONResponse:
    """Return the end of a driver's log, as far as the API server can read it, and where the rest is."""
    if not access.may_read_logs(user, root.page):
        raise access.denied(user, f"No right to read the logs of DAG {root.page.dag_id}.")
    if Generation(generation) not in look.board.generations():
        raise HTTPException(404, f"Job {job} has no generation {generation}.")
    most = min(max(1, lines), MOST_LINES)
    return JSONResponse(
        root.watch.pieces.get(
            ("log", job, generation, most), lambda: driver_log(root, job, Generation(generation), most)
        )
    )


def _listed(job: str, root: Readable, look: Looked) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = root.watch.pieces.get(("savepoints", job), look.listed)
    return found


def _summary(job: str, savepoint_id: str, root: Readable, look: Looked) -> dict[str, Any]:
    """Return what the list shows of a savepoint; raises ``SavepointMissingError`` once it was disposed of."""
    check_name("savepoint id", savepoint_id)
    listed = _listed(job, root, look)
    summary = next((one for one in listed if one["savepoint_id"] == savepoint_id), None)
    if summary is None:
        newest = [one["savepoint_id"] for one in listed[:5]]
        raise SavepointMissingError.of(savepoint_id, job=job, uri=look.board.store.uri, newest=newest)
    return summary
