"""A Spark job under the agent, started and asked for savepoints as users do."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.start.choice import history_of
from airflow_flinkstyle.jobs.start.origins import Fresh
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from testbed.drivers import SPARK_PYTHON, spark_conf, spark_env
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_flinkstyle.savepoint.manifest import Manifest

START_TIMEOUT_S = 180.0
SAVEPOINT_TIMEOUT_S = 300.0
JVM = "-XX:+UseSerialGC"
"""The whole JIT, unlike in tests: drivers here run long enough to need it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One savepoint of the running job."""

    manifest: Manifest
    reported_s: float
    """From the request's record to the end report's, by their own clocks, which are this machine's."""

    @property
    def size_bytes(self) -> int:
        """All files of the savepoint, shared or not."""
        return self.manifest.total_bytes


class RunningJob:
    """One job with its store and checkpoint below one folder; ends with the context."""

    def __init__(
        self,
        folder: Path,
        script: Path,
        *,
        conf: Mapping[str, str] | None = None,
        memory: str = "1g",
        supervised: bool = False,
        archives: bool = False,
    ) -> None:
        self.folder, self.script = folder, script
        self.root = folder / "root"
        store = LocalStore(self.root)
        self.board = JobBoard(store, "bench")
        self.client = JobClient(
            view=JobView(
                board=self.board,
                repository=SavepointRepository(store, "bench"),
                deployment=DetachedDeployment(
                    supervisor_env={} if supervised else None, class_archives=archives
                ),
                signer=SIGNER,
                secret_env={},
                base_env=spark_env(),
                poll_s=0.05,
            )
        )
        ours = {"spark.driver.memory": memory, "spark.driver.extraJavaOptions": JVM}
        self.target = SubmitTarget(
            master="local[2]",
            python=str(SPARK_PYTHON),
            conf={**spark_conf(), **ours, **(conf or {})},
            log_dir=str(folder / "drivers"),
        )
        self._asked = 0

    def __enter__(self) -> Self:
        """Return the job; ``start`` starts it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the drivers."""
        for generation in self.board.generations():
            self.client.drivers.end_driver(generation)

    def start(self, args: Sequence[str]) -> None:
        """Start the next generation with an empty checkpoint, whatever ran before; returns once it runs."""
        self._asked += 1
        spec = JobSpec(
            name="bench",
            script=str(self.script),
            args=tuple(args),
            checkpoint_root=str(self.folder / "checkpoints"),
        )
        history = history_of(self.client.view)
        origin = Fresh(discard_history=history.name if history else None)
        handle = self.client.starts.start(spec, self.target, claim_key=f"start-{self._asked}", origin=origin)
        self.client.drivers.wait_running(handle.generation, timeout_s=START_TIMEOUT_S)

    def stop(self) -> None:
        """Stop without a savepoint."""
        self._asked += 1
        self.client.requests.stop(f"stop-{self._asked}", savepoint=False, timeout_s=START_TIMEOUT_S)

    def checkpoint(self, query: str) -> Path:
        """Return the checkpoint of a query of the current generation."""
        current = self.board.current()
        claim = self.board.claim(current.value.generation) if current else None
        if claim is None:
            raise RuntimeError("the job has not started")
        return Path(claim.checkpoint_location) / query

    def last_batch(self, query: str) -> int:
        """Return the newest committed batch, -1 before the first."""
        names = [path.name for path in (self.checkpoint(query) / "commits").glob("[0-9]*")]
        return max((int(name) for name in names), default=-1)

    def savepoint(self) -> Taken:
        """Take a savepoint and wait for it."""
        self._asked += 1
        pending = self.client.requests.request_savepoint(f"savepoint-{self._asked}")
        _, ended = self.client.requests.wait(pending, timeout_s=SAVEPOINT_TIMEOUT_S)
        request = self.board.request(pending.generation)
        end = self.board.end(pending.generation, pending.request_id)
        if ended.savepoint_id is None or request is None or end is None:
            raise RuntimeError(f"The savepoint ended as {ended}")
        return Taken(
            manifest=self.client.view.repository.read(ended.savepoint_id),
            reported_s=(end.ended_at_ms - request.value.sent_at_ms) / 1000,
        )

    def stored_bytes(self) -> int:
        """Return the size of all blobs."""
        return sum(self.client.view.repository.blob_sizes().values())

    def empty_repository(self) -> None:
        """Delete every savepoint, so that the next one uploads everything."""
        for folder in ("savepoints", "blobs"):
            shutil.rmtree(self.root / "bench" / folder, ignore_errors=True)
        os.sync()  # what the disk still owes belongs to nobody's measurement


def wait_for_batch(job: RunningJob, query: str, batch: int, *, timeout_s: float) -> None:
    """Wait until the query has committed that batch.

    Raises:
        TimeoutError: If it has not in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while job.last_batch(query) < batch:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"Query {query} was expected to commit batch {batch} within {timeout_s:g} s")
        time.sleep(0.5)
