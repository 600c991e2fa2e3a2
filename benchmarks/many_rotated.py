"""Rotating the savepoints of many jobs in few tasks, in processes of their own, as Airflow runs them.

The drivers only seem to run, so what each is asked for is answered here at once: by a savepoint of files that
are there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.hooks.rotation import Caller, Rotated, rotate_job, rotate_jobs
from airflow_flinkstyle.jobs.definition import SparkStreamingJob
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import End
from airflow_flinkstyle.savepoint.manifest_json import from_json, to_json
from airflow_flinkstyle.storage.meter import Meter, MeteredStore
from airflow_flinkstyle.types import Generation
from testbed.keys import SIGNING_KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testbed.s3 import VersityGw

TASKS: Final = 2
AT_ONCE: Final = 8
KEPT: Final = 8
TIMEOUT_S: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one task did."""

    seconds: float
    requests: int
    taken: int
    disposed: int


def connect(server: VersityGw, root: str) -> None:
    """Let this process, and those that it starts, find the connections where Airflow looks first."""
    extra = {"savepoint_root": root, "aws_conn_id": "bench_aws"}
    there = {"endpoint_url": server.endpoint, "region_name": server.region}
    connections = {
        "flinkstyle_default": {"conn_type": "flinkstyle", "password": SIGNING_KEY, "extra": extra},
        "bench_aws": {
            "conn_type": "aws",
            "login": server.access_key,
            "password": server.secret_key,
            "extra": there,
        },
    }
    for name, connection in connections.items():
        os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(connection)


def rotated(jobs: Sequence[str], manifest: str) -> list[Share]:
    """Rotate all jobs, in so many tasks at once.

    Args:
        jobs: Their names.
        manifest: A savepoint, as JSON, whose files each job has.
    """
    with multiprocessing.get_context("spawn").Pool(TASKS) as pool:
        shares = [(list(jobs[number::TASKS]), manifest) for number in range(TASKS)]
        return pool.starmap(_rotate, shares)


def _rotate(jobs: list[str], manifest: str) -> Share:
    begun_s, meter, hook = time.monotonic(), Meter(), StreamingJobHook()
    hook.store = Answering(MeteredStore(hook.store, meter), hook.store, manifest)
    caller = Caller(key="bench", by="bench")
    defined = [SparkStreamingJob(job=job, script="/jobs/job.py", max_count=KEPT) for job in jobs]

    def rotate(job: SparkStreamingJob) -> Rotated:
        return rotate_job(hook, job, caller, dry_run=False, timeout_s=TIMEOUT_S)

    found = rotate_jobs(defined, rotate, at_once=AT_ONCE)
    done = [one for _, one in found if isinstance(one, Rotated)]
    if len(done) < len(jobs):
        raise RuntimeError(next(str(one) for _, one in found if not isinstance(one, Rotated)))
    return Share(
        seconds=time.monotonic() - begun_s,
        requests=meter.requests,
        taken=sum(one.is_new for one in done),
        disposed=sum(len(one.disposed) for one in done),
    )


class Answering:
    """A store in which each request for a savepoint is answered; the answers are not counted."""

    def __init__(self, counted: Any, store: Any, manifest: str) -> None:  # noqa: ANN401
        self._counted, self._store, self._one = counted, store, from_json(manifest)
        self._drivers = ThreadPoolExecutor(AT_ONCE)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        found = getattr(self._counted, name)
        if name not in ("create", "replace"):
            return found

        def written(key: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            version = found(key, *args, **kwargs)
            if key.endswith("/request.json"):
                self._drivers.submit(self._answer, key.partition("/")[0])
            return version

        return written

    def _answer(self, job: str) -> None:
        board = JobBoard(self._store, job)
        slot = board.request(Generation(1))
        if slot is None or (savepoint_id := slot.value.savepoint_id) is None:
            raise RuntimeError(f"a request for a savepoint of {job} was expected, found {slot}")
        taken = replace(self._one, job=job, savepoint_id=savepoint_id, taken_at_ms=now_ms())
        self._store.write(f"{job}/savepoints/{savepoint_id}.json", to_json(taken).encode())
        end = End(
            request_id=slot.value.request_id,
            outcome="done",
            savepoint_id=savepoint_id,
            detail="taken",
            ended_at_ms=now_ms(),
        )
        board.create_end(Generation(1), end)
