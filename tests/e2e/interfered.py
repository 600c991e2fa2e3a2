"""Jobs that one Airflow moves and upgrades side by side, each judged once it has moved or all is done."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from testbed import paths
from testbed.airflow import Airflow
from testbed.scenario import OrdersScenario
from tests.e2e.interference import AGAIN_S, DAGS, LEASE_S, TIMES_OUT_S, Cutover, InterferedJob

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from testbed.judge import Judgement, StateReader
    from tests.conftest import KafkaPair
    from tests.e2e.interference import Interference, Outcome

_TRIES: Final = 3
"""A phase may end before the task is stopped in it."""


class InterferedAirflow:
    """An Airflow, the jobs it moves and upgrades, and what became of them."""

    def __init__(self, folder: Path, pair: KafkaPair, reader: StateReader, *, jobs: int) -> None:
        """Prepare; ``jobs`` may be moved or spoiled before there is none left."""
        self.outcomes: list[Outcome] = []
        self.faults: list[str] = []
        self.judgements: list[Judgement] = []
        self._reader, self._lock = reader, threading.Lock()
        scenarios = [
            OrdersScenario(
                folder=folder / f"job-{number}",
                old=pair.old,
                new=pair.new,
                topic=f"orders-interfered-{number}",
                job=f"interfered-{number}",
            )
            for number in range(jobs)
        ]
        self._left = iter(scenarios)
        self._now: dict[Cutover, Future[InterferedJob]] = {}
        self._ends, self._judging = ExitStack(), ThreadPoolExecutor(1)
        self._starting = ThreadPoolExecutor(2)
        self._airflow = _airflow(folder, scenarios)

    def __enter__(self) -> Self:
        """Start Airflow; jobs are started as they are needed."""
        self._ends.enter_context(self._airflow)
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        for pool in (self._starting, self._judging):
            pool.shutdown(wait=True, cancel_futures=True)
        self._ends.close()

    def run(self, cases: Sequence[Interference]) -> None:
        """Run one case, or one of a migration and one of an upgrade side by side."""
        with ThreadPoolExecutor(len(cases)) as lanes:
            list(lanes.map(self._run, cases))

    def judge_rest(self) -> None:
        """Judge every job that has not moved yet, and wait for all judgements."""
        for cutover in list(self._now):
            self._retire(cutover)
        self._judging.shutdown(wait=True)

    def _run(self, case: Interference) -> None:
        try:
            outcome = self._interfered(case)
        except Exception:  # noqa: BLE001  # the others are tried; this one is told at the end
            self._note_fault(case)
        else:
            with self._lock:
                self.outcomes.append(outcome)
            print(outcome.row(), flush=True)  # noqa: T201 - a long run

    def _interfered(self, case: Interference) -> Outcome:
        for _ in range(_TRIES):
            outcome = self._job(case.cutover).run(case)
            moved = case.cutover == "migration" if outcome is None else outcome.has_moved
            if moved:  # its producers are on the target: the next job, then
                self._retire(case.cutover)
            if outcome is not None:
                return outcome
        raise TimeoutError(f"the task could not be stopped in {_TRIES} tries: {case}")

    def _note_fault(self, case: Interference) -> None:
        fault = f"{case}:\n{traceback.format_exc()}"
        with self._lock:
            self.faults.append(fault)
        print(fault, flush=True)  # noqa: T201 - a long run
        if (job := self._now.pop(case.cutover, None)) and not job.exception():
            job.result().leave_alone()
            job.result().scenario.__exit__(None, None, None)

    def _job(self, cutover: Cutover) -> InterferedJob:
        if cutover not in self._now:
            self._now[cutover] = self._starting.submit(self._start)
        return self._now[cutover].result()

    def _start(self) -> InterferedJob:
        with self._lock:
            scenario = self._ends.enter_context(next(self._left))
        job = InterferedJob(self._airflow, scenario)
        job.start()
        return job

    def _retire(self, cutover: Cutover) -> None:
        """Judge the job beside what follows."""
        self._judging.submit(self._judge, self._now.pop(cutover).result())

    def _judge(self, job: InterferedJob) -> None:
        scenario = job.scenario
        try:
            is_on = scenario.new if scenario.producer_is_at() == "new" else scenario.old
            judgement = scenario.judge(self._reader, is_on)
            print(f"{scenario.spec.name}: {judgement}", flush=True)  # noqa: T201 - a long run
            self.judgements.append(judgement)
            job.leave_alone()
            scenario.end_drivers()
        except Exception:  # noqa: BLE001  # in a thread
            self.faults.append(f"{scenario.spec.name}, judged:\n{traceback.format_exc()}")


def _airflow(folder: Path, scenarios: Sequence[OrdersScenario]) -> Airflow:
    dags = folder / "dags"
    dags.mkdir()
    connections = scenarios[0].connections()
    for one in scenarios:
        job, script = one.spec.name, one.spec.script
        text = DAGS.format(job=job, lease_s=LEASE_S, times_out_s=TIMES_OUT_S, script=script)
        (dags / f"{job}.py").write_text(text)  # of its own: each task reads the whole file of its DAG
        connections[job] = one.connections()["flinkstyle_default"]
    return Airflow(
        folder / "airflow",
        dags,
        connections=connections,
        parallelism=6,
        again_s=AGAIN_S,
        env={
            "PYTHONPATH": str(paths.ROOT),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
        },
    )
