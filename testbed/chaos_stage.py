"""One stage: a job, a broker, perhaps a cluster, and shots at all of them until enough have hit."""

from __future__ import annotations

import logging
import math
import os
import random
import signal
import time
from collections import Counter
from concurrent.futures import TimeoutError as NotYetError
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.audit.record_ids import by_header
from airflow_flinkstyle.kafka.audit.verify_topic import verify_topic
from airflow_flinkstyle.kafka.settings import KafkaCluster
from testbed.chaos_plan import (
    BROKER,
    BROKER_ZOMBIE,
    DRIVER,
    DRIVER_ZOMBIE,
    EXECUTOR,
    EXECUTOR_ZOMBIE,
    STANDALONE,
    WORKER,
    WORKER_ZOMBIE,
)
from testbed.chaos_processes import executor_of, freeze_worker, send, standalone_worker_of
from testbed.chaos_report import Hit, StageResult
from testbed.chaos_supervised import SupervisedJob
from testbed.chaos_trace import Trace
from testbed.chaos_zombies import Zombie, Zombies

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from airflow_flinkstyle.kafka.audit.id_counts import TopicVerdict
    from testbed.chaos_plan import Plan, StagePlan, Target
    from testbed.chaos_trace import Shot, Sight
    from testbed.kafka import Broker
    from testbed.spark import SparkCluster

log = logging.getLogger(__name__)
_DELAY_S = {"init": 0.03, "data": 0.006, "pre-commit": 0.006, "marker": 0.005, "commit": 0.004}
"""From a phase's begin to the strike at most."""
_PATIENCE = 30
_BROKER_DOWN_S = 2.0
_BROKER_FROZEN = (0.1, 2.5)
"""How often as long as a transaction may take."""
_HIT_WITHIN_S, _READ_WITHIN_S = 300.0, 300.0


def run(
    plan: StagePlan,
    folder: Path,
    broker: Broker,
    cluster: SparkCluster | None,
    *,
    seed: int,
    until_s: float = math.inf,
) -> StageResult:
    """Run the job, strike until there were as many kills as planned, let it come to rest, and judge.

    Args:
        plan: How many kills, and of what.
        folder: For checkpoint, logs and trace; new.
        broker: Where the job reads and writes.
        cluster: Where it runs; None: in the driver.
        seed: Of the order and the moments.
        until_s: When to stop striking though there were fewer kills; monotonic clock.
    """
    began_s = time.monotonic()
    folder.mkdir(parents=True)
    with Trace(folder) as trace:
        master = cluster.master if cluster else "local[2,1000]"
        job = SupervisedJob(folder, broker, plan, trace, master)
        stage = _Stage(trace, job, broker, cluster, plan.phases, random.Random(seed))  # noqa: S311  # moments, no secrets
        try:
            stage.strike_all(plan, until_s)
            verdict = stage.come_to_rest(plan.plan)
        finally:
            stage.end()
    return StageResult(
        plan=plan,
        hits=tuple(stage.hits),
        thawed=stage.zombies.thawed,
        woken=stage.zombies.woken(),
        relaunched=job.relaunched,
        replays_skipped=sum(sight.shard for sight in trace.sights if sight.phase == "batch"),
        verdict=verdict,
        seconds=time.monotonic() - began_s,
    )


class _Stage:
    def __init__(
        self,
        trace: Trace,
        job: SupervisedJob,
        broker: Broker,
        cluster: SparkCluster | None,
        phases: Sequence[str],
        moments: random.Random,
    ) -> None:
        self.hits: list[Hit] = []
        self.zombies = Zombies(trace)
        self._trace, self._job, self._broker, self._cluster = trace, job, broker, cluster
        self._phases, self._random = phases, moments
        self._strikes: Mapping[Target, Callable[[], object]] = {
            WORKER: lambda: self._hit(WORKER, lambda pid: os.kill(pid, signal.SIGKILL)),
            WORKER_ZOMBIE: self._freeze_worker,
            DRIVER: self._kill_driver,
            DRIVER_ZOMBIE: self._freeze_driver,
            EXECUTOR: lambda: self._hit(EXECUTOR, lambda pid: os.kill(executor_of(pid), signal.SIGKILL)),
            EXECUTOR_ZOMBIE: self._freeze_executor,
            STANDALONE: lambda: self._hit(
                STANDALONE, lambda pid: os.kill(standalone_worker_of(pid), signal.SIGKILL)
            ),
            BROKER: self._kill_broker,
            BROKER_ZOMBIE: self._freeze_broker,
        }

    def strike_all(self, plan: StagePlan, until_s: float) -> None:
        """Strike until there were so many kills as planned, or it is time."""
        targets = plan.deal(self._random)
        while len(self.hits) < plan.kills and time.monotonic() < until_s:
            self._strikes[next(targets)]()

    def _hit(self, target: Target, strike: Callable[[int], None]) -> Shot:
        """Strike in the phase that was hit least, and note the phase that really was."""
        done = Counter(hit.phase for hit in self.hits)
        fewest = min(done[phase] for phase in self._phases)
        aimed = self._random.choice([phase for phase in self._phases if done[phase] == fewest])
        delay_s = self._random.uniform(0, _DELAY_S[aimed])
        zombies = self.zombies.pids

        def wanted(sight: Sight) -> bool:
            current = sight.incarnation == self._job.driver.incarnation
            writes = sight.batch >= self._job.writes_from
            return current and writes and sight.phase == aimed and sight.pid not in zombies

        shot = self._tend_until(self._trace.aim(wanted, delay_s=delay_s, strike=strike))
        hit = Hit(target=target, phase=self._trace.phase_of(shot))
        self.hits.append(hit)
        log.info("Kill %d, %s in %s of batch %d", len(self.hits), target, hit.phase, shot.sight.batch)
        return shot

    def _tend_until(self, struck: Future[Shot]) -> Shot:
        deadline_s = time.monotonic() + _HIT_WITHIN_S
        while True:
            try:
                return struck.result(0.1)
            except NotYetError:
                if time.monotonic() > deadline_s:
                    last, words = self._trace.sights[-10:], self._job.driver.last_words()
                    raise RuntimeError(f"the job does not go on: {last}\n{words}") from None
                self.tend()

    def tend(self, *, feed: bool = True) -> None:
        """Do what a supervisor would, and thaw zombies that others have overtaken."""
        for service in self._cluster.worker_services if self._cluster else ():
            if not service.is_running:
                service.stop()
                service.launch()
        self._job.tend(feed=feed)
        self.zombies.tend()

    def _kill_driver(self) -> None:
        self._hit(DRIVER, lambda _: self._job.driver.send(signal.SIGKILL))
        self._end_driver()

    def _end_driver(self) -> None:
        self._job.driver.kill()
        self._job.start_next()

    def _freeze_worker(self) -> None:
        """Who waits for it would wait for ever: its executor is killed; without one, the driver."""
        executors: list[int] = []

        def strike(pid: int) -> None:
            executors.extend([executor_of(pid)] if self._cluster else [])
            freeze_worker(pid)

        shot = self._hit(WORKER_ZOMBIE, strike)
        self._add_zombie(shot, pids=(shot.sight.pid,))
        if executors:
            send(executors[-1], signal.SIGKILL)
        else:
            self._end_driver()
        self.hits.append(Hit(target=EXECUTOR if executors else DRIVER, phase=self.hits[-1].phase))

    def _freeze_driver(self) -> None:
        with_worker = self._random.random() < 0.5

        def strike(pid: int) -> None:
            if with_worker:
                os.kill(pid, signal.SIGSTOP)
            self._job.driver.send(signal.SIGSTOP)

        shot = self._hit(DRIVER_ZOMBIE, strike)
        self._add_zombie(shot, pids=(shot.sight.pid,) if with_worker else (), driver=self._job.driver)
        self._job.start_next()

    def _freeze_executor(self) -> None:
        with_worker = self._random.random() < 0.5
        frozen: list[int] = []

        def strike(pid: int) -> None:
            executor = executor_of(pid)
            if with_worker:
                freeze_worker(pid)
                frozen.append(pid)
            os.kill(executor, signal.SIGSTOP)
            frozen.append(executor)

        shot = self._hit(EXECUTOR_ZOMBIE, strike)
        self._add_zombie(shot, pids=tuple(frozen))

    def _add_zombie(self, shot: Shot, **what: Any) -> None:
        patience = self._random.randint(1, _PATIENCE)
        self.zombies.add(Zombie(sight=shot.sight, frozen_ns=shot.at_ns, patience=patience, **what))

    def _kill_broker(self) -> None:
        self._hit(BROKER, lambda _: os.killpg(self._broker.service.pid, signal.SIGKILL))
        self._broker.kill()
        time.sleep(self._random.uniform(0, _BROKER_DOWN_S))
        self._broker.start()

    def _freeze_broker(self) -> None:
        group = self._broker.service.pid
        try:
            self._hit(BROKER_ZOMBIE, lambda _: os.killpg(group, signal.SIGSTOP))
            until_s = time.monotonic() + self._job.timeout_s * self._random.uniform(*_BROKER_FROZEN)
            while time.monotonic() < until_s:
                self.tend()
                time.sleep(0.1)
        finally:
            os.killpg(group, signal.SIGCONT)

    def come_to_rest(self, plan: Plan) -> TopicVerdict:
        """Thaw all zombies, let the job read everything, end it, and judge what it has written."""
        self._tend_while(lambda: not self.zombies.are_settled)
        if plan == "stateful":
            self._job.numbers.close_windows()
        self._tend_while(lambda: self._verdict().missing.count > 0, feed=False)
        if self.zombies.immortal:
            raise RuntimeError(f"{self.zombies.immortal} thawed drivers go on, though others have taken over")
        self.end()
        return self._verdict(count_hidden=True)

    def _tend_while(self, unfinished: Callable[[], bool], *, feed: bool = True) -> None:
        deadline_s = time.monotonic() + _READ_WITHIN_S
        while unfinished() and time.monotonic() < deadline_s:
            self.tend(feed=feed)
            time.sleep(1.0)

    def _verdict(self, *, count_hidden: bool = False) -> TopicVerdict:
        cluster = KafkaCluster(name="chaos", config={"bootstrap.servers": self._broker.bootstrap})
        expected = range(self._job.numbers.count)
        return verify_topic(cluster, self._job.target, expected, by_header("id"), count_hidden=count_hidden)

    def end(self) -> None:
        """End the job and what is left of zombies."""
        self.zombies.end()
        self._job.driver.clear()
