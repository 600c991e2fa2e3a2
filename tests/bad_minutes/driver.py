"""A driver process: the agent with everything but Spark, on a store behind a bad way."""

from __future__ import annotations

import logging
import os
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.agent.core.board import takeover
from airflow_flinkstyle.agent.core.board.takeover import NotOursError
from airflow_flinkstyle.agent.core.errors import SupersededError
from airflow_flinkstyle.agent.core.process import EXIT_DONE, EXIT_FAILED
from airflow_flinkstyle.agent.core.run.reasons import Failure, ScriptEnded
from airflow_flinkstyle.agent.core.runtime import Runtime
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.agent.spark.process import DriverProcess
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.process import process_started
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.types import Generation
from tests.bad_minutes.job import QUERY, Batches, Execution, a_view
from tests.small_spark import SmallSpark, SmallStart

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.protocol.records import IncarnationRecord
    from airflow_flinkstyle.storage.base import ObjectStore
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


def _run_script(runtime: Runtime, command: DriverCommand) -> None:
    """Start the script's only query, and wait for it."""
    cluster = "new" if runtime.driver_run.claim.overrides else "old"
    who = (runtime.driver_run.generation, runtime.driver_run.incarnation)

    def run(checkpoint: ObjectStore, once: bool) -> Execution:
        batches = Batches(checkpoint, cluster=cluster, ledger=command.folder / "ledger.jsonl", who=who)
        return Execution(batches, once=once, pause_s=command.pause_s)

    seen = StreamOptions()
    seen.query_name, seen.format = QUERY, "kafka"
    spark = SmallSpark(lambda _source: a_view(cluster))
    runtime.start_query(SmallStart(spark, (_SOURCE,), run), seen)
    runtime.await_queries()


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
    runtime = Runtime(board, SavepointRepository(store, command.job), driver_run, process)
    runtime.open()
    try:
        runtime.ending.wait(command.startup_s)
        _run_script(runtime, command)
    except SystemExit:
        runtime.finish(ScriptEnded())  # it has ended: this waits
    except BaseException as error:  # noqa: BLE001  # as the launcher does
        runtime.finish(Failure.of(error))
    else:
        runtime.finish(ScriptEnded())
    return runtime.exit_code
