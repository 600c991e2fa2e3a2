"""A driver process: the agent with everything but Spark, on a store behind a bad way."""

from __future__ import annotations

import logging
import os
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

from airflow_flinkstyle.agent.board import takeover
from airflow_flinkstyle.agent.board.takeover import NotOursError
from airflow_flinkstyle.agent.errors import SupersededError
from airflow_flinkstyle.agent.job_query import Sink
from airflow_flinkstyle.agent.jvm.process import EXIT_DONE, EXIT_FAILED, DriverProcess
from airflow_flinkstyle.agent.jvm.sources import StreamingSource
from airflow_flinkstyle.agent.launcher import _await_queries
from airflow_flinkstyle.agent.run.reasons import Failure, ScriptEnded
from airflow_flinkstyle.agent.runtime import Runtime
from airflow_flinkstyle.agent.script.held import _active_while_held
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.process import process_started
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation
from tests.bad_minutes.job import QUERY, Batches, Execution, StreamingQuery, Writer, a_view
from tests.declared import AS_BEFORE

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.agent.job_query import JobQuery
    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.protocol.records import IncarnationRecord
    from airflow_flinkstyle.storage.s3_settings import S3Settings

_SOURCE = StreamingSource(position=0, name=None, provider="kafka", options={})
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCommand:
    """What a deployment starts."""

    root: str
    settings: S3Settings | None
    """None for a folder."""
    job: str
    claim_id: str
    digest: str
    """Of the claim, as the caller verified it."""
    generation: int
    submit: int
    host: str
    folder: Path
    """Of the lab: the ledger and the logs."""
    seed: str
    startup_s: float
    """What Spark takes to come up."""
    pause_s: float
    """Between two batches."""


class _Process(DriverProcess):
    """This process; it has no JVM."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host

    def record(self) -> IncarnationRecord:
        pid = os.getpid()
        return replace(
            super().record(), host=self._host, jvm_pid=pid, pid_started=process_started(pid) or "ended"
        )

    def halt(self, code: int) -> None:
        log.error("Ending the driver at once, exit code %d", code)
        logging.shutdown()
        os._exit(code)


class _Runtime(Runtime):
    """The agent's, with a pretended Spark."""

    pause_s: float
    ledger: Path

    def run_script(self) -> None:
        """Start the script's only query, and wait for it."""
        writer = Writer()
        _active_while_held(StreamingQuery, self)
        self.jvm, self.spark_version, self.queries.spark = MagicMock(), "4.2.0", writer._spark
        self.heartbeat_writer.spark_is_up(spark_version="4.2.0", application_id="app")
        self.start_query(writer, None, lambda: self._run_query(writer))  # type: ignore[arg-type]
        _await_queries(self)

    def _register(self, writer: Any, seen: Any, run: Any) -> JobQuery:
        query = self.queries.register(QUERY, writer, run, [_SOURCE], AS_BEFORE)
        query.sink = Sink(name="kafka")
        return query

    def _run_query(self, writer: Writer) -> StreamingQuery:
        batches = Batches(
            self.queries.checkpoint(QUERY),
            cluster=self._cluster,
            ledger=self.ledger,
            who=(self.driver_run.generation, self.driver_run.incarnation),
        )
        return StreamingQuery(batches.query_id, Execution(batches, once=writer.once, pause_s=self.pause_s))

    @property
    def _cluster(self) -> str:
        return "new" if self.driver_run.claim.overrides else "old"

    def describe(self, source: StreamingSource) -> ClusterView:
        return a_view(self._cluster)


def main(command: DriverCommand) -> None:
    """Run the driver; ends the process."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    random.seed(command.seed)
    name = f"driver-{command.generation}-{command.submit}-{command.host}-{os.getpid()}.log"
    logging.basicConfig(
        filename=command.folder / name, format="%(asctime)s %(threadName)s %(message)s", level=logging.INFO
    )
    code = EXIT_FAILED
    try:
        code = _run(command)
    except (NotOursError, SupersededError) as reason:
        log.warning("Leaving before Spark starts: %s", reason)
        code = EXIT_DONE
    except FlinkstyleError as error:
        log.error("%s: %s", error.code, error)  # noqa: TRY400
    except BaseException:
        log.exception("The driver failed")
    logging.shutdown()
    os._exit(code)


def _run(command: DriverCommand) -> int:
    store, generation = open_store(command.root, command.settings), Generation(command.generation)
    board, process = JobBoard(store, command.job), _Process(command.host)
    claim = takeover.submitted_claim(board, generation, command.claim_id, digest=command.digest)
    driver_run = takeover.begin(board, generation, process, submit=command.submit, claim=claim)
    runtime = _Runtime(board, SavepointRepository(store, command.job), driver_run, process)
    runtime.pause_s, runtime.ledger = command.pause_s, command.folder / "ledger.jsonl"
    runtime.open()
    try:
        runtime.ending.wait(command.startup_s)
        runtime.run_script()
    except SystemExit:
        runtime.finish(ScriptEnded())  # it has ended: this waits
    except BaseException as error:  # noqa: BLE001  # as the launcher does
        runtime.finish(Failure.of(error))
    else:
        runtime.finish(ScriptEnded())
    return runtime.exit_code
