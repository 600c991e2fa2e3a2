"""The page's API, below ``/flinkstyle``: authenticated by Airflow's own user, described by OpenAPI.

``reading`` has what is asked, ``acting`` what is changed, ``access`` the rights.
"""

# FastAPI reads the annotations at run time, so they are not postponed.

import logging
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.hooks.page_roots import configured_roots
from airflow_flinkstyle.plugin import acting, reading
from airflow_flinkstyle.plugin.roots import Roots
from airflow_flinkstyle.plugin.views.documents import error_document
from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from airflow_flinkstyle.storage.errors import StoreError

STATIC = Path(__file__).with_name("static")
log = logging.getLogger(__name__)


def make_app(roots: Roots | None = None) -> FastAPI:
    """Return the application that Airflow mounts; a setting that is wrong is an error in every answer."""
    app = FastAPI(
        title="Flinkstyle Savepoints",
        description="Jobs and savepoints, as the Savepoints page shows them.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.roots = roots if roots is not None else _configured()
    app.include_router(reading.router)
    app.include_router(acting.router)
    app.add_exception_handler(FlinkstyleError, _as_sentences)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app


def _configured() -> Roots:
    try:
        return Roots(pages=configured_roots())
    except FlinkstyleError as error:
        log.error("%s", error)  # noqa: TRY400 - the three sentences are enough
        return Roots(pages={}, fault=error)


def _as_sentences(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, FlinkstyleError):
        raise error
    log.info("The Savepoints page: %s", error)
    return JSONResponse({"error": error_document(error)}, status_code=_status(error))


def _status(error: FlinkstyleError) -> int:
    if isinstance(error, SavepointMissingError):
        return 404
    if isinstance(error, BadInputError):
        return 400
    return 503 if error.retryable or isinstance(error, StoreError) else 500
