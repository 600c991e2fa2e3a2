"""What people and accidents do to a migration or an upgrade in a real Airflow, at a phase of its journal."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_flinkstyle.jobs.deployments.base import Alive
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.unsettled import find_unsettled
from testbed.airflow_api import FINISHED, AirflowApiError
from testbed.chaos_processes import parent_of
from testbed.producer import read_events
from testbed.waiting import wait_until
from tests.e2e.upgrades import SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from testbed.airflow import Airflow
    from testbed.scenario import OrdersScenario

Cutover = Literal["migration", "upgrade"]
What = Literal[
    "mark the run failed",
    "mark the run success",
    "mark the task failed",
    "mark the task success",
    "clear the task",
    "delete the run",
    "pause the DAG, kill the task",
    "let the run time out",
    "kill the task",
    "kill the worker and the task",
    "kill the worker, the task runs on",
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
    "kill the task",
    "kill the worker and the task",
    "kill the worker, the task runs on",
)
"""These meet nobody else's runs."""
OF_AIRFLOW: Final[tuple[What, ...]] = (
    "kill the scheduler",
    "kill the triggerer",
    "kill the API server",
    "kill all of Airflow",
)
_PARTS: Final = {
    "kill the scheduler": ("scheduler",),
    "kill the triggerer": ("triggerer",),
    "kill the API server": ("api-server", "execution-api"),
}
LEASE_S: Final = 20.0
"""Of a hold; 120 s by default."""
AGAIN_S: Final = 10.0
"""A part of Airflow that was killed is started again after so long."""
STATED_S: Final = 10 * 60.0
"""Within so long everything is at rest, on a machine as busy as it may be."""
TIMES_OUT_S: Final = 90
_CHANGES: Final = threading.Lock()
"""Of two requests that change something at once, one may hold SQLite and wait for the API server's event
loop, which waits for SQLite: Airflow notes who asked for what in the loop itself.
"""
DAGS: Final = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_flinkstyle.dags import watch_dag
from airflow_flinkstyle.jobs.definition import SparkStreamingJob
from airflow_flinkstyle.operators import (
    MigrateStreamingJobOperator, SettleMigrationOperator, UpgradeStreamingJobOperator,
)

RETRIES = {{"retries": 2, "retry_delay": timedelta(seconds=2)}}
USUAL = {{"schedule": None, "catchup": False, "default_args": RETRIES}}
TIMED = {{"dagrun_timeout": timedelta(seconds={times_out_s})}}

OF = {{"job": {job!r}, "flinkstyle_conn_id": {job!r}}}
MOVES = {{**OF, "migration": {{
    "source_kafka_conn_id": "kafka_old", "target_kafka_conn_id": "kafka_new",
    "timeouts": {{"hold_lease_s": {lease_s}}},
}}}}

def moves(dag_id, **more):
    with DAG(dag_id, **USUAL, **more) as dag:
        migrate = MigrateStreamingJobOperator(task_id="migrate", **MOVES)
        settle = SettleMigrationOperator(task_id="settle", **MOVES)
        settle.as_teardown(on_failure_fail_dagrun=True)
        migrate >> settle
    return dag

def upgrades(dag_id, **more):
    with DAG(dag_id, params={{"script": ""}}, **USUAL, **more) as dag:
        UpgradeStreamingJobOperator(
            task_id="upgrade", script="{{{{ params.script }}}}", rehearse_batches=0,
            if_committed="continue", **OF,
        )
    return dag

move, move_timed = moves("migration_{job}"), moves("migration_timed_{job}", **TIMED)
upgrade, upgrade_timed = upgrades("upgrade_{job}"), upgrades("upgrade_timed_{job}", **TIMED)
watch = watch_dag(
    [SparkStreamingJob(script={script!r}, **OF)], dag_id="watch_{job}", schedule=timedelta(seconds=15),
    max_active_runs=1, default_args={{"retries": 0}},
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """One case."""

    cutover: Cutover
    what: What
    phase: str
    """At which it happens, or at one right behind it: the task is frozen as soon as the journal names it."""

    def __str__(self) -> str:
        """Name it."""
        return f"{self.what}, at {self.phase} of the {self.cutover}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    case: Interference
    frozen_in: str
    free_s: float | None
    """Until producers wrote again, from the interference on; None if they were not held then."""
    rest_s: float
    """Until nothing was unsettled and one driver of the job ran."""
    runs_on: Literal["old", "new"]
    """Cluster or version."""

    @property
    def has_moved(self) -> bool:
        """Whether the job and its producers are on the other cluster now."""
        return self.case.cutover == "migration" and self.runs_on == "new"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """A cutover whose task is stopped in a phase."""

    case: Interference
    dag_id: str
    run_id: str
    pid: int
    """Of the task's process."""
    phase: str
    holds: bool
    """Whether producers are held."""
    since_s: float

    @property
    def task(self) -> str:
        """Its name in the DAG."""
        return "migrate" if self.case.cutover == "migration" else "upgrade"

    @property
    def run(self) -> str:
        """Its path in the API."""
        return f"/dags/{self.dag_id}/dagRuns/{self.run_id}"


class InterferedJob:
    """One job that an Airflow moves, upgrades and looks after."""

    def __init__(self, airflow: Airflow, scenario: OrdersScenario) -> None:
        self.scenario, self._airflow, self._api = scenario, airflow, airflow.api
        self._job = scenario.spec.name
        self._journals = scenario.folder / "store" / self._job / "migrations"
        self._before, self._cases = "", 0

    def start(self) -> None:
        """Start it, and let Airflow look after it."""
        self.scenario.create_topic(deleted={0: 100, 1: 40, 2: 250})
        self.scenario.start_producer(rate_per_s=100)
        self.scenario.start()
        self.scenario.new.wait_for_topic(self.scenario.topic)
        self._unpause(f"watch_{self._job}")

    def leave_alone(self) -> None:
        """Let Airflow look after it no longer."""
        self._patch(f"/dags/watch_{self._job}", {"is_paused": True})

    def run(self, case: Interference) -> Outcome | None:
        """Begin a cutover, interfere with it, wait until everything is at rest; None if it was too fast."""
        frozen = self._begin(case)
        if frozen is None:
            return None
        self._interfere(frozen)
        _within(STATED_S, f"all is at rest: {case}", self._rests)
        rest_s = time.time() - frozen.since_s
        free_s = self._freed_s(frozen.since_s) if frozen.holds else None
        self.scenario.wait_commits(1)
        self._patch(f"/dags/{frozen.dag_id}", {"is_paused": False})
        _within(STATED_S, f"the run has ended: {case}", lambda: self._is_over(frozen.dag_id, frozen.run_id))
        _within(STATED_S, f"all is at rest after the run's end: {case}", self._rests)
        return Outcome(
            case=case, frozen_in=frozen.phase, free_s=free_s, rest_s=rest_s, runs_on=self._side(case.cutover)
        )

    # --- the cutover --------------------------------------------------------------------------

    def _begin(self, case: Interference) -> Frozen | None:
        timed = "_timed" if case.what == "let the run time out" else ""
        dag_id = f"{case.cutover}{timed}_{self._job}"
        self._unpause(dag_id)
        known = {path.name for path in self._journals.glob("*")}
        conf = {"script": self._other_script()} if case.cutover == "upgrade" else {}
        self._cases += 1
        run_id = f"case-{self._cases}"
        body = {"logical_date": None, "dag_run_id": run_id, "conf": conf}
        self._again(lambda: self._api.call("POST", f"/dags/{dag_id}/dagRuns", body))
        while not self._is_over(dag_id, run_id):
            for pid, phase in self._just_begun(case.phase, known):
                return Frozen(
                    case=case,
                    dag_id=dag_id,
                    run_id=run_id,
                    pid=pid,
                    phase=phase,
                    holds=self.scenario.switch.is_held(),
                    since_s=time.time(),
                )
        return None

    def _is_over(self, dag_id: str, run_id: str) -> bool:
        """Whether a run has ended, or was deleted; False while Airflow does not answer."""
        try:
            return self._api.run_state(dag_id, run_id) in FINISHED
        except AirflowApiError as error:
            return error.status == HTTPStatus.NOT_FOUND
        except OSError:
            return False

    def _just_begun(self, phase: str, known: set[str]) -> Iterator[tuple[int, str]]:
        """Yield the task's process, stopped, and its phase, once the journal names the wanted one."""
        until_s = time.monotonic() + 2.0
        while time.monotonic() < until_s:
            for path in self._journals.glob(f"*/[1-9]*-{phase}.json"):
                migration_id = path.parent.name
                work = self.scenario.board.work(migration_id)
                if migration_id in known or work is None:
                    continue
                pid = int(work.value.holder.rpartition(" ")[2])
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                for found in find_unsettled(self.scenario.board):
                    if found.migration_id == migration_id:
                        yield pid, found.phases[-1]
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, signal.SIGCONT)
                known.add(migration_id)
            time.sleep(0.005)

    def _other_script(self) -> str:
        self._before = self._script()
        first, second = self.scenario.spec.script, str(SCRIPTS / "orders_job_v2.py")
        return second if self._before == first else first

    # --- what is done to it -------------------------------------------------------------------

    def _interfere(self, cut: Frozen) -> None:
        if cut.case.what in OF_AIRFLOW:
            self._break_airflow(cut)
        elif "kill the" in cut.case.what:
            self._kill(cut)
        else:
            self._change(cut)

    def _change(self, cut: Frozen) -> None:
        """Do what people do in Airflow."""
        what = cut.case.what
        if what in ("mark the run failed", "mark the run success"):
            self._patch(cut.run, {"state": what.rpartition(" ")[2]})
        elif what in ("mark the task failed", "mark the task success"):
            self._patch(f"{cut.run}/taskInstances/{cut.task}", {"new_state": what.rpartition(" ")[2]})
        elif what == "clear the task":
            self._again(lambda: self._api.clear(cut.dag_id, cut.run_id, [cut.task]))
        elif what == "delete the run":
            # Airflow deletes none that runs: so its tasks are marked, the teardown task first.
            for name in ("settle", cut.task) if cut.case.cutover == "migration" else (cut.task,):
                self._patch(f"{cut.run}/taskInstances/{name}", {"new_state": "failed"})
            _send(cut.pid, signal.SIGKILL)
            wait_until("the run has ended", lambda: self._is_over(cut.dag_id, cut.run_id))
            self._again(lambda: self._api.call("DELETE", cut.run))
        else:
            wait_until("the run has timed out", lambda: self._is_over(cut.dag_id, cut.run_id))
            _send(cut.pid, signal.SIGKILL)

    def _kill(self, cut: Frozen) -> None:
        """End the task, the worker that runs it, or both."""
        what = cut.case.what
        if what.startswith("pause the DAG"):
            self._patch(f"/dags/{cut.dag_id}", {"is_paused": True})
        if "worker" in what:
            _send(parent_of(cut.pid), signal.SIGKILL)
        _send(cut.pid, signal.SIGCONT if what.endswith("the task runs on") else signal.SIGKILL)

    def _break_airflow(self, cut: Frozen) -> None:
        """End a part of Airflow, which comes back by itself, or all of it."""
        if cut.case.what == "kill all of Airflow":
            _send(cut.pid, signal.SIGKILL)
            self._airflow.kill()
            self._airflow.start()
        else:
            for part in _PARTS[cut.case.what]:
                self._airflow.kill_part(part)
            _send(cut.pid, signal.SIGCONT)

    def _patch(self, path: str, body: Mapping[str, Any]) -> None:
        self._again(lambda: self._api.call("PATCH", path, body))

    def _unpause(self, dag_id: str) -> None:
        with _CHANGES:
            self._api.wait_for_dag(dag_id)

    def _again(self, call: Callable[[], object]) -> None:
        """Ask Airflow until it answers and its SQLite is not locked; what is gone, or done, is right."""

        def asked() -> bool:
            try:
                with _CHANGES:
                    call()
            except AirflowApiError as error:
                if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    return True
                if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                return False
            except OSError:
                return False
            return True

        wait_until("Airflow answers", asked)

    # --- what becomes of it -------------------------------------------------------------------

    def _freed_s(self, begun_s: float) -> float | None:
        """Return when producers wrote again, in seconds from then on; None if they were not held."""
        events = read_events(self.scenario.ledger)
        freed = [one["at_ms"] / 1000 - begun_s for one in events if one["event"] == "released"]
        return min((at for at in freed if at > 0), default=None)

    def _rests(self) -> bool:
        """Whether nothing is unsettled, producers write, and one driver of the job runs and reports."""
        if self.scenario.switch.is_held() or self.scenario.producer_is_at() is None:
            return False
        if find_unsettled(self.scenario.board):
            return False
        status = self.scenario.client.view.status()
        if not isinstance(status, Running) or not status.heartbeat.batches():
            return False
        others = set(self.scenario.board.generations()) - {status.run.generation}
        state = self.scenario.client.view.deployment.state
        return not any(
            isinstance(state(driver), Alive) for other in others for driver in self.scenario.native_ids(other)
        )

    def _side(self, cutover: Cutover) -> Literal["old", "new"]:
        """Return the version or cluster on which the job runs; its producers must write to its cluster."""
        spec = self.scenario.running().run.claim.launch["spec"]
        reads = "new" if spec["overrides"] else "old"
        if reads != (written := self.scenario.producer_is_at()):
            raise AssertionError(f"the job reads the {reads} cluster, producers write to {written}")
        if cutover == "migration":
            return "old" if reads == "old" else "new"
        return "old" if self._script() == self._before else "new"

    def _script(self) -> str:
        return str(self.scenario.running().run.claim.launch["spec"]["script"])


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _within(stated_s: float, what: str, met: Callable[[], bool]) -> None:
    """Return once ``met``; the time is a promise, so that no load makes it longer."""
    begun_s = time.monotonic()
    while not met():
        if time.monotonic() - begun_s > stated_s:
            raise TimeoutError(f"Not within {stated_s:g} s: {what}")
        time.sleep(0.5)
