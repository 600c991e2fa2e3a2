"""One Airflow worker: a process that does tasks as it is told, line by line, with ``DetachedDeployment``."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration import window
from airflow_flinkstyle.jobs.migration.cutover import PHASES, Cutover
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.jobs.spec import JobSpec, SubmitTarget
from airflow_flinkstyle.jobs.status import Running, describe_status
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.savepoint.manifest import Manifest
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_summary
from airflow_flinkstyle.storage.open import open_store
from testbed.keys import SIGNER
from testbed.waiting import PATIENCE_S
from tests.bad_minutes.kafka import PretendedKafka
from tests.workers.clocks import set_clocks
from tests.workers.driver import FOLDER

if TYPE_CHECKING:
    from collections.abc import Mapping

JOB, LEASE_S = "orders-job", 3.0


class Worker:
    """The tasks; each returns what the test looks at."""

    def __init__(self, folder: Path) -> None:
        self.folder, store = folder, open_store(str(folder / "root"))
        self.client = JobClient(
            view=JobView(
                signer=SIGNER,
                board=JobBoard(store, JOB),
                repository=SavepointRepository(store, JOB),
                deployment=DetachedDeployment(),
                poll_s=0.1,
            )
        )

    def spec(self, *, new: bool) -> JobSpec:
        rule = KafkaOverride(role="source", servers="old:9092", options={"kafka.bootstrap.servers": "new"})
        return JobSpec(
            name=JOB,
            script="job.py",
            overrides=(rule,) if new else (),
            checkpoint_root=str(self.folder / "checkpoints"),
            lease_s=LEASE_S,
        )

    def target(self) -> SubmitTarget:
        return SubmitTarget(
            master="local[1]",
            python=sys.executable,
            spark_home=str(self.folder / "spark"),
            log_dir=str(self.folder / "logs" / socket.gethostname()),
        )

    def start(self, key: str) -> Any:
        handle = self.client.starts.start(self.spec(new=False), self.target(), claim_key=key)
        self.client.drivers.wait_running(handle.generation, timeout_s=PATIENCE_S)
        return self.running()

    def running(self) -> Any:
        """Have the job run, wherever, and wait until it has told of a batch."""
        wait = self.client.view.waiting(PATIENCE_S)
        while wait.again():
            status = self.client.drivers.ensure_running(self.client.view.settled_status(afresh=True))
            if isinstance(status, Running) and status.heartbeat.batches():
                return {"generation": status.run.generation, "incarnation": status.heartbeat.incarnation}
        raise AssertionError(describe_status(self.client.view.status()))

    def take(self, key: str) -> Any:
        found = self.client.requests.begin_savepoint(key, timeout_s=PATIENCE_S)
        if not isinstance(found, Manifest):
            found = self.client.requests.finish_savepoint(found, timeout_s=PATIENCE_S)
        return {"savepoint_id": found.savepoint_id, "taken_at_ms": found.taken_at_ms}

    def newest(self) -> Any:
        found = newest_summary(self.client.view.repository)
        return found.savepoint_id if found is not None else None

    def stop(self, key: str) -> Any:
        stopped: Any = self.client.requests.stop(key, savepoint=True, timeout_s=PATIENCE_S)
        return {"savepoint_id": stopped.savepoint_id, "batches": dict(stopped.batches)}

    def migrate(self, *, dies: bool) -> Any:
        """Move the job; a worker may die once the new driver waits and producers are held."""
        if dies:
            window.caught_up = lambda _context: os._exit(137)
        store = self.client.view.board.store
        cutover = Cutover(
            client=self.client,
            journal=CutoverJournal(store, JOB, "move", PHASES, signer=SIGNER),
            switch=StoreProducerSwitch(store, f"{JOB}/switch.json"),
            kafka=PretendedKafka(),
            spec=self.spec(new=True),
            target=self.target(),
            hot_savepoint_id=None,
        )
        cutover.run()
        return "moved"

    def do(self, task: str, arguments: Mapping[str, Any]) -> Any:
        """Do one task; an error of the package is an answer."""
        try:
            return getattr(self, task)(**arguments)
        except FlinkstyleError as error:
            return {"error": error.code, "text": str(error)}


def main() -> None:
    """Do what is asked on standard input until it ends."""
    set_clocks()
    folder = Path(os.environ[FOLDER])
    logging.basicConfig(filename=folder / f"{socket.gethostname()}.log", level=logging.INFO)
    worker = Worker(folder)
    for line in sys.stdin:
        task, arguments = json.loads(line)
        print(json.dumps(worker.do(task, arguments)), flush=True)


if __name__ == "__main__":
    main()
