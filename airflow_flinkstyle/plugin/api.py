"""The page's API, below ``/flinkstyle``: authenticated by Airflow's own user, described by OpenAPI.

Reading asks for the right to read the root's DAG, everything else for the right to trigger it. The cookie of
the UI authenticates a POST too, so a POST from another origin is refused.
"""

# FastAPI reads the annotations at run time, so they are not postponed.

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.hooks.page_roots import PageRoot, configured_roots
from airflow_flinkstyle.plugin.documents import error_document, manifest_document
from airflow_flinkstyle.plugin.errors import StoreBusyError
from airflow_flinkstyle.plugin.job_look import JobLook
from airflow_flinkstyle.plugin.root_watch import RootWatch
from airflow_flinkstyle.protocol.board import check_job_name, check_name
from airflow_flinkstyle.savepoint.diff import diff_savepoints
from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from airflow_flinkstyle.storage.base import ObjectStore
from airflow_flinkstyle.storage.errors import StoreError
from airflow_flinkstyle.typed_json import encode

STATIC = Path(__file__).with_name("static")
ACTIONS = ("take_savepoint", "start_job", "upgrade_job", "migrate_kafka_cluster")
"""DAGs of this package that the page's buttons open, if they are there and the user may trigger them."""
IMMUTABLE_S = 3600.0
"""How long a manifest counts: it never changes, but it may be disposed of."""
log = logging.getLogger(__name__)


class Watches:
    """The roots of the page, by connection."""

    def __init__(self, roots: dict[str, PageRoot]) -> None:
        self.roots = roots
        self.watches = {conn_id: RootWatch(_connector(conn_id)) for conn_id in roots}


def _connector(conn_id: str) -> Callable[[], ObjectStore]:
    def connect() -> ObjectStore:
        from airflow_flinkstyle.hooks.airflow_versions import AirflowNotFoundException
        from airflow_flinkstyle.hooks.job import StreamingJobHook

        try:
            return StreamingJobHook(conn_id).store
        except AirflowNotFoundException:
            raise BadInputError(
                f"A connection {conn_id} of type flinkstyle was expected, found none.",
                state_after="No job can be shown.",
                remedy="Add the connection, or name another one in [flinkstyle] page.",
            ) from None

    return connect


def may(user: BaseUser, root: PageRoot, *, trigger: bool, dag_id: str | None = None) -> bool:
    """Return whether a user may read, or trigger, the DAG of a root, or another one."""
    wanted = dag_id or root.dag_id
    allowed: bool = get_auth_manager().is_authorized_dag(
        method="POST" if trigger else "GET",
        access_entity=DagAccessEntity.RUN if trigger else None,
        details=_details(wanted),
        user=user,
    )
    return allowed


def _details(dag_id: str) -> DagDetails:
    if not hasattr(DagModel, "get_team_name"):  # before Airflow 3.2
        return DagDetails(id=dag_id)
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))


def require_same_origin(request: Request) -> None:
    """Refuse what another site makes a browser send: the UI's cookie goes along with it."""
    origin = request.headers.get("origin")
    if origin is None:  # no browser, or a token in the header
        if request.headers.get("authorization"):
            return
        raise HTTPException(403, "A POST with a cookie needs an Origin header.")
    if urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "A POST from another origin is refused.")


def make_app(watches: Watches | None = None) -> FastAPI:
    """Return the application that Airflow mounts; a setting that is wrong is said in every answer."""
    app = FastAPI(
        title="Flinkstyle Savepoints",
        description="Jobs and savepoints, as the Savepoints page shows them.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
    )
    fault: FlinkstyleError | None = None
    if watches is None:
        try:
            watches = Watches(configured_roots())
        except FlinkstyleError as error:
            log.error("%s", error)  # noqa: TRY400 - three sentences say it all
            watches, fault = Watches({}), error
    _add_routes(app, watches, fault)
    app.add_exception_handler(FlinkstyleError, _as_sentences)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _as_sentences(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, FlinkstyleError):
        raise error
    status = 400 if isinstance(error, BadInputError) else 500
    if isinstance(error, SavepointMissingError):
        status = 404
    elif isinstance(error, StoreError | StoreBusyError):
        status = 503
    log.info("The Savepoints page: %s", error)
    return JSONResponse({"error": error_document(error)}, status_code=status)


def _add_routes(app: FastAPI, watches: Watches, fault: FlinkstyleError | None) -> None:  # noqa: C901
    def readable(conn_id: str, user: GetUserDep) -> PageRoot:
        root = watches.roots.get(conn_id)
        if root is None or not may(user, root, trigger=False):
            # The same answer for both: who may not read a root does not learn that it is there.
            raise HTTPException(403, "No savepoint root of that connection, or no right to read its DAG.")
        return root

    Readable = Annotated[PageRoot, Depends(readable)]

    def look(conn_id: str, job: str, root: Readable) -> JobLook:
        check_job_name(job)
        watch = watches.watches[root.conn_id]
        found = watch.pieces.get(("is job", job), lambda: watch.look(job))
        if found is None:
            raise HTTPException(404, f"No job {job} below the savepoint root of {conn_id}.")
        return found  # type: ignore[no-any-return]

    Look = Annotated[JobLook, Depends(look)]

    @app.get("/api/jobs")
    def jobs(user: GetUserDep) -> dict[str, Any]:
        """Return all jobs that the user may see, as read last, by savepoint root."""
        if fault is not None:
            raise fault
        roots = [root for root in watches.roots.values() if may(user, root, trigger=False)]
        if not roots:
            raise HTTPException(403, "No right to read the DAG of any savepoint root.")
        return {"roots": [{"conn_id": one.conn_id, **watches.watches[one.conn_id].jobs()} for one in roots]}

    @app.get("/api/roots/{conn_id}/actions")
    def actions(root: Readable, user: GetUserDep) -> dict[str, Any]:
        """Return the DAGs that the page's buttons may open for this user."""
        known = [dag_id for dag_id in ACTIONS if DagModel.get_dagmodel(dag_id) is not None]
        allowed = [dag_id for dag_id in known if may(user, root, trigger=True, dag_id=dag_id)]
        return {"dags": allowed, "refresh": may(user, root, trigger=True)}

    @app.post("/api/roots/{conn_id}/refresh", dependencies=[Depends(require_same_origin)])
    def refresh(root: Readable, user: GetUserDep) -> dict[str, Any]:
        """Read the jobs again at once, if the store has not been asked too often."""
        if not may(user, root, trigger=True):
            raise HTTPException(403, f"No right to trigger DAG {root.dag_id}.")
        return {"begun": watches.watches[root.conn_id].look_again()}

    @app.get("/api/roots/{conn_id}/jobs/{job}")
    def job_view(job: str, root: Readable, look: Look) -> dict[str, Any]:
        """Return one job: runs, savepoints, migrations and upgrades, and how fast it was."""
        pieces = watches.watches[root.conn_id].pieces
        return pieces.get(("job", job), look.detail)  # type: ignore[no-any-return]

    @app.get("/api/roots/{conn_id}/jobs/{job}/savepoints")
    def savepoints(job: str, root: Readable, look: Look, offset: int = 0, limit: int = 100) -> dict[str, Any]:
        """Return some of the job's savepoints, the newest first."""
        pieces = watches.watches[root.conn_id].pieces
        found = pieces.get(("savepoints", job), look.savepoints)
        first, most = max(0, offset), min(max(1, limit), 1000)
        return {"total": len(found), "savepoints": found[first : first + most]}

    @app.get("/api/roots/{conn_id}/jobs/{job}/savepoints/{savepoint_id}")
    def savepoint(job: str, savepoint_id: str, root: Readable, look: Look) -> dict[str, Any]:
        """Return what is in one savepoint, without the names of its files."""
        check_name("savepoint id", savepoint_id)

        def read() -> dict[str, Any]:
            return manifest_document(look.repository.read(savepoint_id))

        pieces = watches.watches[root.conn_id].pieces
        manifest = pieces.get(("savepoint", job, savepoint_id), read, fresh_s=IMMUTABLE_S)
        listed = pieces.get(("savepoints", job), look.savepoints)
        summary = next((one for one in listed if one["savepoint_id"] == savepoint_id), None)
        if summary is None:
            raise SavepointMissingError.of(
                savepoint_id,
                job=job,
                uri=look.board.store.uri,
                newest=[one["savepoint_id"] for one in listed[:5]],
            )
        return {**summary, **manifest}

    @app.get("/api/roots/{conn_id}/jobs/{job}/diff")
    def diff(job: str, before: str, after: str, root: Readable, look: Look) -> dict[str, Any]:
        """Return what changed from one savepoint of the job to another."""
        for savepoint_id in (before, after):
            check_name("savepoint id", savepoint_id)

        def read() -> object:
            return encode(diff_savepoints(look.repository.read(before), look.repository.read(after)))

        pieces = watches.watches[root.conn_id].pieces
        return pieces.get(("diff", job, before, after), read, fresh_s=IMMUTABLE_S)  # type: ignore[no-any-return]
