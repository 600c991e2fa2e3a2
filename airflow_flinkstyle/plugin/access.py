"""Who may see and do what: each route asks for one of these.

Reading asks for the right to read the root's DAG, everything else for the right to trigger it. The cookie of
the UI authenticates a POST too, so one from another origin is refused.
"""

# FastAPI reads the annotations at run time, so they are not postponed.

import logging
from typing import Annotated
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException, Query, Request

from airflow_flinkstyle.hooks.page_roots import PageRoot
from airflow_flinkstyle.plugin.button_dags import dags_there
from airflow_flinkstyle.plugin.roots import OpenRoot, Roots
from airflow_flinkstyle.plugin.views.job_reader import JobReader
from airflow_flinkstyle.protocol.board import check_job_name

log = logging.getLogger(__name__)


def roots_of(request: Request) -> Roots:
    """Return the roots of the application that answers."""
    roots: Roots = request.app.state.roots
    return roots


def may(user: BaseUser, root: PageRoot, *, trigger: bool, dag_id: str | None = None) -> bool:
    """Return whether a user may read, or trigger, the DAG of a root, or another one."""
    entity = DagAccessEntity.RUN if trigger else None
    return _may(user, dag_id or root.dag_id, "POST" if trigger else "GET", entity)


def may_read_logs(user: BaseUser, root: PageRoot) -> bool:
    """Return whether a user may read the logs of the root's DAG."""
    return _may(user, root.dag_id, "GET", DagAccessEntity.TASK_LOGS)


def _may(user: BaseUser, dag_id: str, method: str, entity: DagAccessEntity | None) -> bool:
    """Return whether a user may; nobody may do anything with a DAG that is not there.

    Airflow would take it for one of no team, which users of every team may use.
    """
    with create_session() as session:
        if not dags_there(session, [dag_id]):
            log.warning("The Savepoints page shows nobody the root of DAG %s: there is no such DAG", dag_id)
            return False
    allowed: bool = get_auth_manager().is_authorized_dag(
        method=method,  # type: ignore[arg-type] # one of Airflow's literals
        access_entity=entity,
        details=_details(dag_id),
        user=user,
    )
    return allowed


def _details(dag_id: str) -> DagDetails:
    if not hasattr(DagModel, "get_team_name"):  # before Airflow 3.2
        return DagDetails(id=dag_id)
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))


def _as_its_team(roots: Roots, page: PageRoot) -> OpenRoot:
    """Return a root as the team of its DAG sees it: its connections are the team's own, and those of all."""
    return roots.root(page.conn_id, getattr(_details(page.dag_id), "team_name", None))


def denied(user: BaseUser, sentence: str) -> HTTPException:
    """Return a refusal, and log it with the user."""
    log.info("The Savepoints page refused user %s: %s", user.get_name(), sentence)
    return HTTPException(403, sentence)


def readable(conn_id: str, request: Request, user: GetUserDep) -> OpenRoot:
    """Return a root that the user may read."""
    roots = roots_of(request)
    page = roots.pages.get(conn_id)
    if page is None or not may(user, page, trigger=False):
        # The same answer for both: who may not read a root does not learn that it is there.
        raise denied(user, "No savepoint root of that connection, or no right to read its DAG.")
    return _as_its_team(roots, page)


Readable = Annotated[OpenRoot, Depends(readable)]


def triggerable(root: Readable, user: GetUserDep) -> OpenRoot:
    """Return a root whose DAG the user may trigger."""
    if not may(user, root.page, trigger=True):
        raise denied(user, f"No right to trigger DAG {root.page.dag_id}.")
    return root


Triggerable = Annotated[OpenRoot, Depends(triggerable)]


def readable_roots(request: Request, user: GetUserDep) -> list[OpenRoot]:
    """Return all roots that the user may read."""
    roots = roots_of(request)
    if roots.fault is not None:
        raise roots.fault
    found = [page for page in roots.pages.values() if may(user, page, trigger=False)]
    if not found:
        raise denied(user, "No right to read the DAG of any savepoint root.")
    return [_as_its_team(roots, page) for page in found]


ReadableRoots = Annotated[list[OpenRoot], Depends(readable_roots)]


def logged(root: Readable, user: GetUserDep) -> OpenRoot:
    """Return a root of whose DAG the user may read the logs."""
    if not may_read_logs(user, root.page):
        raise denied(user, f"No right to read the logs of DAG {root.page.dag_id}.")
    return root


Logged = Annotated[OpenRoot, Depends(logged)]


def kafka_asked(
    root: Readable,
    user: GetUserDep,
    kafka_conn_id: Annotated[list[str], Query(max_length=8)] = [],  # noqa: B006 - FastAPI copies it
) -> tuple[str, ...]:
    """Return the connections whose clusters are asked, which takes the right to trigger."""
    if kafka_conn_id and not may(user, root.page, trigger=True):
        raise denied(user, f"No right to trigger DAG {root.page.dag_id}, so no cluster is asked.")
    return tuple(sorted(set(kafka_conn_id)))


KafkaAsked = Annotated[tuple[str, ...], Depends(kafka_asked)]


async def found_job(job: str, root: Readable) -> JobReader:
    """Return the reader of a job below a root that the user may read."""
    check_job_name(job)
    found: JobReader | None = await root.watch.pieces.get(("is job", job), lambda: root.watch.reader(job))
    if found is None:
        raise HTTPException(404, f"No job {job} below the savepoint root of {root.page.conn_id}.")
    return found


FoundJob = Annotated[JobReader, Depends(found_job)]


def require_same_origin(request: Request) -> None:
    """Refuse what another site makes a browser send: the UI's cookie is sent with it."""
    origin = request.headers.get("origin")
    if origin is None:  # no browser, or a token in the header
        if request.headers.get("authorization"):
            return
        raise HTTPException(403, "A request that changes something by a cookie needs an Origin header.")
    if urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "A request from another origin is refused.")
