"""Many cases on a few lanes: one process and one warm JVM each, one broker for all."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import shutil
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from testbed import paths
from testbed.differential.case import Case, shrink
from testbed.differential.deployment import Lane
from testbed.differential.stage import submit_conf
from testbed.differential.trial import Trial, Verdict
from testbed.kafka import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.queues import Queue
    from pathlib import Path

_SHRINK_TRIALS = 25
_JARS = ("spark-kafka", "s3a", "delta")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One case to try."""

    label: str
    """Of its folder and topics."""
    case: Case
    shrink: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of it."""

    task: Task
    case: Case
    """The task's own, or the smallest that fails like it."""
    verdict: Verdict

    def to_json(self) -> str:
        """Render for the run's file of results."""
        shown = {"label": self.task.label, "case": json.loads(self.case.to_json())}
        return json.dumps({**shown, "verdict": asdict(self.verdict)})


class Runner:
    """Tries cases in a lane of its own."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        """Launch the lane; failed trials leave their folders below ``folder``."""
        self._folder, self._broker = folder, broker
        self._lane = Lane(folder / "lane")
        self._count = 0

    def close(self) -> None:
        """End the lane."""
        self._lane.close()

    def do(self, task: Task) -> Result:
        """Try the task's case, and smaller ones if asked."""
        verdict, case = self.attempt(task.case, task.label), task.case
        if task.shrink and verdict.kind == "failed":
            case = shrink(case, lambda each: self._fails(each, task.label), most_trials=_SHRINK_TRIALS)
        return Result(task=task, case=case, verdict=verdict)

    def _fails(self, case: Case, label: str) -> bool:
        return self.attempt(case, f"{label}-smaller").kind == "failed"

    def attempt(self, case: Case, label: str) -> Verdict:
        """Try one case."""
        self._count += 1
        folder = self._folder / f"{label}-{self._count}"
        trial = Trial(
            spec=case.spec,
            plan=case.plan,
            folder=folder,
            broker=self._broker,
            lane=self._lane,
            topics=folder.name,
            own_deployment=DetachedDeployment() if case.own_jvm else None,
            own_conf=submit_conf(paths.class_path(*_JARS)) if case.own_jvm else {},
        )
        verdict = trial.run()
        if verdict.kind != "failed":
            shutil.rmtree(folder, ignore_errors=True)
        return verdict


def run_all(tasks: Sequence[Task], folder: Path, *, lanes: int) -> Iterator[Result]:
    """Yield the results as they come."""
    context = multiprocessing.get_context("spawn")
    todo: Queue[Any] = context.Queue()
    done: Queue[Any] = context.Queue()
    for task in tasks:
        todo.put(task)
    for _ in range(lanes):
        todo.put(None)
    with Broker("differential", folder / "kafka") as broker:
        workers = [
            context.Process(target=_work, args=(folder / f"lane-{number}", broker.port, todo, done))
            for number in range(lanes)
        ]
        for worker in workers:
            worker.start()
        try:
            yield from _results(len(tasks), workers, done)
        finally:
            for worker in workers:
                worker.join(60)
                if worker.is_alive():
                    worker.kill()


def _results(count: int, workers: Sequence[Any], done: Queue[Any]) -> Iterator[Result]:
    import queue

    while count:
        with contextlib.suppress(queue.Empty):
            yield done.get(timeout=1)
            count -= 1
            continue
        if not any(worker.is_alive() for worker in workers):
            raise RuntimeError(f"The lanes have ended, {count} cases were not tried.")
        time.sleep(0)


def _work(folder: Path, port: int, todo: Queue[Any], done: Queue[Any]) -> None:
    broker = Broker("differential", folder / "unused", port=port)  # another process started it
    runner = Runner(folder, broker)
    try:
        while (task := todo.get()) is not None:
            done.put(runner.do(task))
    finally:
        runner.close()
