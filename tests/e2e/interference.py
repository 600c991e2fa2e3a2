"""What people and accidents do to a migration or an upgrade in a real Airflow, at a phase of its journal."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.unsettled import find_unsettled
from testbed import paths
from testbed.airflow import Airflow
from testbed.airflow_api import FINISHED, AirflowApiError
from testbed.producer import read_events
from testbed.waiting import PATIENCE_S, wait_until
from tests.e2e.upgrades import SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_flinkstyle.jobs.unsettled import Unsettled
    from testbed.scenario import OrdersScenario

What = Literal[
    "mark the run failed",
    "mark the run success",
    "mark the task failed",
    "mark the task success",
    "clear the task",
    "delete the run",
    "pause the DAG, kill the task",
    "let the run time out",
    "kill the worker",
    "kill the scheduler",
    "kill the triggerer",
    "kill the API server",
    "kill all of Airflow",
]
OF_A_RUN: Final[tuple[What, ...]] = (
    "mark the run failed",
    "mark the run success",
    "mark the task failed",
    "mark the task success",
    "clear the task",
    "delete the run",
    "pause the DAG, kill the task",
    "let the run time out",
    "kill the worker",
)
WITHOUT_RETRY: Final[tuple[What, ...]] = (
    "mark the run failed",
    "mark the run success",
    "mark the task failed",
    "mark the task success",
    "delete the run",
    "pause the DAG, kill the task",
    "let the run time out",
)
"""Behind these no task comes that would finish the cutover."""
OF_AIRFLOW: Final[tuple[What, ...]] = (
    "kill the scheduler",
    "kill the triggerer",
    "kill the API server",
    "kill all of Airflow",
)
_PARTS: Final = {
    "kill the scheduler": "scheduler",
    "kill the triggerer": "triggerer",
    "kill the API server": "api",
}
LEASE_S: Final = 20.0
STATED_S: Final = 5 * 60.0
"""Within so long, scaled by the machine's load, everything is at rest. The lease is 20 s here, not 120."""
TIMES_OUT_S: Final = 60
_DAGS = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_flinkstyle.dags import watch_dag
from airflow_flinkstyle.jobs.definition import SparkStreamingJob
from airflow_flinkstyle.operators import (
    MigrateStreamingJobOperator, SettleMigrationOperator, UpgradeStreamingJobOperator,
)

RETRIES = {{"retries": 2, "retry_delay": timedelta(seconds=2)}}
TOLD = {{"job": {job!r}, "migration": {{
    "source_kafka_conn_id": "kafka_old", "target_kafka_conn_id": "kafka_new",
    "timeouts": {{"hold_lease_s": {lease_s}}},
}}}}

def moves(dag_id, **more):
    with DAG(dag_id, schedule=None, catchup=False, default_args=RETRIES, **more) as dag:
        migrate = MigrateStreamingJobOperator(task_id="migrate", **TOLD)
        settle = SettleMigrationOperator(task_id="settle", **TOLD)
        settle.as_teardown(on_failure_fail_dagrun=True)
        migrate >> settle
    return dag

def upgrades(dag_id, **more):
    with DAG(dag_id, schedule=None, catchup=False, default_args=RETRIES, **more) as dag:
        UpgradeStreamingJobOperator(
            task_id="upgrade", job={job!r}, script="{{{{ params.script }}}}", params={{"script": ""}},
            rehearse_batches=0, if_committed="continue",
        )
    return dag

timed = {{"dagrun_timeout": timedelta(seconds={times_out_s})}}
move, move_timed = moves("move"), moves("move_timed", **timed)
upgrade, upgrade_timed = upgrades("upgrade"), upgrades("upgrade_timed", **timed)
watch = watch_dag(
    [SparkStreamingJob(job={job!r}, script={script!r})], dag_id="watch", schedule=timedelta(seconds=15),
    max_active_runs=1, default_args={{"retries": 0}},
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """One case."""

    cutover: Literal["migration", "upgrade"]
    what: What
    phase: str
    """At which it happens, or at one right behind it: the task is frozen as soon as the journal names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    case: Interference
    frozen_in: str
    free_s: float | None
    """Until producers wrote again, from the interference on; None if they were not held."""
    rest_s: float
    """Until nothing was unsettled and the job ran."""
    runs_on: str
    """``old``, ``new``: cluster or version."""

    def row(self) -> str:
        """Return it as a row of a table."""
        cells = (
            self.case.cutover,
            self.frozen_in,
            self.case.what,
            f"{self.free_s:.0f} s" if self.free_s is not None else "not held",
            f"{self.rest_s:.0f} s",
            self.runs_on,
        )
        return f"| {' | '.join(cells)} |"


HEAD: Final = (
    "| cutover | frozen in | what is done | producers write after | at rest after | the job runs on |\n"
    "|---|---|---|---|---|---|"
)


class InterferedAirflow:
    """An Airflow that moves and upgrades one job, and looks after it."""

    def __init__(self, scenario: OrdersScenario) -> None:
        folder = scenario.folder / "dags"
        folder.mkdir()
        text = _DAGS.format(
            job=scenario.spec.name, lease_s=LEASE_S, times_out_s=TIMES_OUT_S, script=scenario.spec.script
        )
        (folder / "interfered.py").write_text(text)
        self.scenario = scenario
        self._journals = scenario.folder / "store" / scenario.spec.name / "migrations"
        self._before = ""
        self.airflow = Airflow(
            scenario.folder / "airflow",
            folder,
            connections=scenario.connections(),
            env={
                "PYTHONPATH": str(paths.ROOT),
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            },
        )

    def run(self, case: Interference) -> Outcome:
        """Begin a cutover, interfere with it, and wait until everything is at rest."""
        dag_id, before = self._dag(case), {path.name for path in self._journals.glob("*")}
        api = self.airflow.api
        api.wait_for_dag(dag_id)
        api.wait_for_dag("watch")
        run_id = api.trigger(dag_id, {"script": self._other_script()} if case.cutover == "upgrade" else None)
        pid, frozen_in = self._freeze(case, before)
        begun_s = time.time()
        self._interfere(case, dag_id, run_id, pid)
        wait_until("producers write", lambda: self.scenario.producer_is_at() is not None, timeout_s=STATED_S)
        wait_until("all is at rest", self._rests, timeout_s=STATED_S)
        rest_s, free_s = time.time() - begun_s, self._freed_s(begun_s)
        with suppress(AirflowApiError):  # it may be deleted
            self._patch(f"/dags/{dag_id}", {"is_paused": False})
        return Outcome(
            case=case, frozen_in=frozen_in, free_s=free_s, rest_s=rest_s, runs_on=self._side(case.cutover)
        )

    # --- the cutover --------------------------------------------------------------------------

    def _dag(self, case: Interference) -> str:
        timed = "_timed" if case.what == "let the run time out" else ""
        return f"{'move' if case.cutover == 'migration' else 'upgrade'}{timed}"

    def _other_script(self) -> str:
        runs = self.scenario.running().run.claim.launch["spec"]["script"]
        first, second = self.scenario.spec.script, str(SCRIPTS / "orders_job_v2.py")
        self._before = str(runs)
        return second if runs == first else first

    def _unsettled(self) -> list[Unsettled]:
        return find_unsettled(self.scenario.board)

    def _freeze(self, case: Interference, before: set[str]) -> tuple[int, str]:
        """Stop the task's process once the journal names the phase; return it, and the phase it is in."""
        begun_s = time.monotonic()
        while time.monotonic() - begun_s < 3 * PATIENCE_S:
            for path in self._journals.glob(f"*/[1-9]*-{case.phase}.json"):
                work = self.scenario.board.work(path.parent.name)
                ended = any(path.parent.glob("*-rollback.json")) or any(path.parent.glob("*-running.json"))
                if path.parent.name in before or work is None or ended:
                    continue
                pid = int(work.value.holder.rpartition(" ")[2])
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                    (found,) = (one for one in self._unsettled() if one.migration_id == path.parent.name)
                    return pid, found.phases[-1]
            time.sleep(0.002)
        raise TimeoutError(f"no {case.cutover} came to its phase {case.phase}")

    # --- what is done to it -------------------------------------------------------------------

    def _interfere(self, case: Interference, dag_id: str, run_id: str, pid: int) -> None:
        api, task = self.airflow.api, "migrate" if case.cutover == "migration" else "upgrade"
        run, what = f"/dags/{dag_id}/dagRuns/{run_id}", case.what
        if what in ("mark the run failed", "mark the run success"):
            self._patch(run, {"state": what.rpartition(" ")[2]})
        elif what in ("mark the task failed", "mark the task success"):
            self._patch(f"{run}/taskInstances/{task}", {"new_state": what.rpartition(" ")[2]})
        elif what == "clear the task":
            api.clear(dag_id, run_id, [task])
        elif what == "delete the run":
            # Airflow deletes none that runs: so it is marked, its teardown task too.
            for name in ("settle", task) if case.cutover == "migration" else (task,):
                self._patch(f"{run}/taskInstances/{name}", {"new_state": "failed"})
            self._kill(pid)
            wait_until("the run has ended", lambda: api.run_state(dag_id, run_id) in FINISHED)
            api.call("DELETE", run)
        elif what == "pause the DAG, kill the task":
            self._patch(f"/dags/{dag_id}", {"is_paused": True})
            self._kill(pid)
        elif what == "let the run time out":
            wait_until("the run has timed out", lambda: api.run_state(dag_id, run_id) == "failed")
            self._kill(pid)
        elif what == "kill the worker":
            self._kill(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            self._kill(pid)
        else:
            self._kill_part(what, pid)

    def _patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Change something, again if SQLite was locked: two components of Airflow wrote at once."""
        for tries_left in reversed(range(5)):
            try:
                self.airflow.api.call("PATCH", path, body)
            except AirflowApiError as error:
                if error.status != HTTPStatus.INTERNAL_SERVER_ERROR or not tries_left:
                    raise
                time.sleep(1)
            else:
                return

    def _kill_part(self, what: str, pid: int) -> None:
        """Kill a part of Airflow for good, or all of it, and start it again a while later."""
        if what == "kill all of Airflow":
            self._kill(pid)
            self.airflow.kill()
        else:
            for part in self._processes(_PARTS[what]):
                self._kill(part)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
            time.sleep(LEASE_S / 2)
            self.airflow.stop()
        self.airflow.start()

    def _processes(self, part: str) -> list[int]:
        """Return the processes of this Airflow whose command line names a part."""
        home, found = f"AIRFLOW_HOME={self.airflow.folder}\0".encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                mine = home in (folder / "environ").read_bytes() + b"\0"
                if mine and part.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        return found

    @staticmethod
    def _kill(pid: int | str) -> None:
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)

    # --- what becomes of it -------------------------------------------------------------------

    def _freed_s(self, begun_s: float) -> float | None:
        """Return when producers wrote again, in seconds from then on; None if they were not held."""
        events = read_events(self.scenario.ledger)
        freed = [one["at_ms"] / 1000 - begun_s for one in events if one["event"] == "released"]
        return min((at for at in freed if at > 0), default=None)

    def _rests(self) -> bool:
        status = self.scenario.client.status()
        runs = isinstance(status, Running) and bool(status.heartbeat.batches())
        return runs and not self._unsettled() and not self.scenario.switch.is_held()

    def _side(self, cutover: str) -> str:
        if cutover == "migration":
            return "new" if self.scenario.switch.read() == "release_new" else "old"
        runs = self.scenario.running().run.claim.launch["spec"]["script"]
        return "old" if runs == self._before else "new"
