"""What the page reads, below ``/flinkstyle/api``; each answer is described in ``answers``.

A route that reads a store is ``async``: it waits for one of the root's own threads, and holds none of those
that Airflow answers with. Rights are checked before, in the route's dependencies.
"""

# FastAPI reads the annotations at run time, so they are not postponed.

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Any

from fastapi import APIRouter, HTTPException
from fastapi.responses import JSONResponse

from airflow_flinkstyle.plugin import acting_answers, answers, kept
from airflow_flinkstyle.plugin.access import FoundJob, KafkaAsked, Logged, Readable, ReadableRoots
from airflow_flinkstyle.plugin.cache.pieces import FRESH_S, CachedAnswer
from airflow_flinkstyle.plugin.driver_log import driver_log
from airflow_flinkstyle.plugin.roots import OpenRoot
from airflow_flinkstyle.plugin.starting import dry_run
from airflow_flinkstyle.plugin.views.comparisons import comparison_document
from airflow_flinkstyle.plugin.views.job_reader import JobReader
from airflow_flinkstyle.plugin.views.savepoint_documents import manifest_document
from airflow_flinkstyle.protocol.board import check_name
from airflow_flinkstyle.savepoint.diff import diff_savepoints
from airflow_flinkstyle.savepoint.errors import SavepointMissingError
from airflow_flinkstyle.typed_json import encode
from airflow_flinkstyle.types import Generation

IMMUTABLE_S = 3600.0
"""How long a manifest counts: it never changes, but it may be disposed of."""
MOST_LINES = 2000
FIRST_ANSWER_S = 0.25
"""How long the first request waits, before it answers that the jobs are being read."""
_POLL_S = 0.02
STALE = '110 - "Response is Stale"'
"""The header ``Warning`` of an answer that is older than it should be (RFC 7234)."""
JOB = "/roots/{conn_id}/jobs/{job}"
SAVEPOINT = JOB + "/savepoints/{savepoint_id}"
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": answers.FailedAnswer, "description": "The request cannot be carried out."},
    403: {"description": "No right to read, or to trigger, the root's DAG."},
    404: {"model": answers.FailedAnswer, "description": "No such job or savepoint."},
    503: {"model": answers.FailedAnswer, "description": "The store cannot be read now."},
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
async def jobs(roots: ReadableRoots) -> JSONResponse:
    """Return all jobs that the user may see, as read last, by savepoint root."""
    end_s = time.monotonic() + FIRST_ANSWER_S
    while True:
        found = [{"conn_id": root.page.conn_id, **root.watch.jobs()} for root in roots]
        if time.monotonic() >= end_s or not any(one["loading"] for one in found):
            return JSONResponse({"roots": found})
        await asyncio.sleep(_POLL_S)


@answered(JOB, answers.Job)
async def job_view(job: str, root: Readable, reader: FoundJob) -> JSONResponse:
    """Return one job: runs, savepoints, migrations and upgrades, failures, lineage, and how fast it was."""
    return await _answer(root, ("job", job), reader.detail)


@answered(JOB + "/savepoints", answers.Savepoints)
async def savepoints(
    job: str, root: Readable, reader: FoundJob, offset: int = 0, limit: int = 100
) -> JSONResponse:
    """Return some of the job's savepoints, the newest first; ``limit`` is 1000 at most."""
    found = await _listed(job, root, reader)
    first, most = max(0, offset), min(max(1, limit), 1000)
    return JSONResponse({"total": len(found), "savepoints": found[first : first + most]})


@answered(JOB + "/usage", answers.KeptAnswer)
async def usage(job: str, root: Readable, reader: FoundJob) -> JSONResponse:
    """Return what the job keeps, how much that is, and why, as counted in the last ten minutes."""

    def count() -> dict[str, Any]:
        return kept.kept(root, reader, reader.savepoints.listed(more=0))

    return await _answer(root, ("usage", job), count, fresh_s=kept.FRESH_S)


@answered(SAVEPOINT, answers.SavepointContent)
async def savepoint(job: str, savepoint_id: str, root: Readable, reader: FoundJob) -> JSONResponse:
    """Return what is in one savepoint, without the names of its files."""
    summary = await _summary(job, savepoint_id, root, reader)

    def read() -> dict[str, Any]:
        return manifest_document(reader.repository.read(savepoint_id))

    manifest = await root.watch.pieces.get(("savepoint", job, savepoint_id), read, fresh_s=IMMUTABLE_S)
    return JSONResponse({**summary, **manifest})


@answered(SAVEPOINT + "/start", acting_answers.DryStartAnswer)
async def start(
    job: str, savepoint_id: str, root: Readable, reader: FoundJob, kafka_conn_id: KafkaAsked
) -> JSONResponse:
    """Return what a start from the savepoint would meet; nothing is started.

    With ``kafka_conn_id`` the clusters of these connections are asked whether its positions can still be
    read, which takes the right to trigger.
    """
    summary = await _summary(job, savepoint_id, root, reader)
    return await _answer(
        root,
        ("start", job, savepoint_id, kafka_conn_id),
        lambda: dry_run(root, job, savepoint_id, summary, kafka_conn_id),
    )


@answered(JOB + "/diff", answers.Diff)
async def diff(job: str, before: str, after: str, root: Readable, reader: FoundJob) -> JSONResponse:
    """Return what changed from one savepoint of the job to another."""
    for savepoint_id in (before, after):
        check_name("savepoint id", savepoint_id)

    def read() -> object:
        return encode(diff_savepoints(reader.repository.read(before), reader.repository.read(after)))

    return await _answer(root, ("diff", job, before, after), read, fresh_s=IMMUTABLE_S)


@answered(JOB + "/runs/{generation}/comparison", answers.ComparisonAnswer)
async def comparison(job: str, generation: int, root: Logged, reader: FoundJob) -> JSONResponse:
    """Return what a run has compared, with rows and keys that differ, which tasks' logs have too."""

    def read() -> dict[str, Any] | None:
        found = reader.board.comparison(Generation(generation))
        return comparison_document(found, rows=True) if found is not None else None

    found = await root.watch.pieces.kept(("comparison", job, generation), read)
    if found.value is None:
        raise HTTPException(404, f"Generation {generation} of job {job} has compared nothing.")
    return _sent(found)


@answered(JOB + "/runs/{generation}/log", answers.DriverLog)
async def log(job: str, generation: int, root: Logged, reader: FoundJob, lines: int = 200) -> JSONResponse:
    """Return the end of a driver's log, as far as the API server can read it, and where the rest is."""
    most = min(max(1, lines), MOST_LINES)

    def read() -> dict[str, Any] | None:
        if Generation(generation) not in reader.board.generations():
            return None
        return driver_log(root, job, Generation(generation), most)

    found = await root.watch.pieces.kept(("log", job, generation, most), read)
    if found.value is None:
        raise HTTPException(404, f"Job {job} has no generation {generation}.")
    return _sent(found)


async def _answer(
    root: OpenRoot, key: Hashable, read: Callable[[], Any], *, fresh_s: float = FRESH_S
) -> JSONResponse:
    return _sent(await root.watch.pieces.kept(key, read, fresh_s=fresh_s))


def _sent(found: CachedAnswer) -> JSONResponse:
    """Return an answer with its age; one that is older than it should be has a warning."""
    headers = {"Age": str(int(found.age_s)), **({"Warning": STALE} if found.is_stale else {})}
    return JSONResponse(found.value, headers=headers)


async def _listed(job: str, root: OpenRoot, reader: JobReader) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await root.watch.pieces.get(("savepoints", job), reader.listed)
    return found


async def _summary(job: str, savepoint_id: str, root: OpenRoot, reader: JobReader) -> dict[str, Any]:
    """Return what the list shows of a savepoint; raises ``SavepointMissingError`` once it was disposed of."""
    check_name("savepoint id", savepoint_id)
    listed = await _listed(job, root, reader)
    summary = next((one for one in listed if one["savepoint_id"] == savepoint_id), None)
    if summary is None:
        newest = [one["savepoint_id"] for one in listed[:5]]
        raise SavepointMissingError.of(savepoint_id, job=job, uri=reader.board.store.uri, newest=newest)
    return summary
