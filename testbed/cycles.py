"""Stops with savepoint, starts from them, and migrations to and fro, of a job that writes exactly once."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.errors import ROLLED_BACK, JobError, RequestFailedError
from airflow_flinkstyle.jobs.migration.fail_back import mirror_begins
from airflow_flinkstyle.jobs.migration.producers import SwappedSwitch
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.kafka.mirror.lag import CaughtUp
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.start import set_mirror_start, wait_copied
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import Generation
from testbed.exactly_once import QUERIES
from testbed.mirror import Mirror
from testbed.mirror import MirrorSettings as MirrorProcess
from testbed.tries import Tries
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
    from airflow_flinkstyle.jobs.migration.report import CutoverReport
    from airflow_flinkstyle.jobs.spec import JobSpec
    from testbed.exactly_once import ExactlyOnceJob
    from testbed.judge import Judgement, StateReader
    from testbed.outputs import OutputJudgement
    from testbed.topics import Reached

MOST_SHARDS = 4
LONGEST_RUN_S = 3.0
"""Between a start's first batches and the next stop."""
LATEST_KILL_S = 9.0
"""After a start: before the driver's session is up, while it restores, in its first batches."""
_KILL_EVERY, _RESHARD_EVERY = 5, 3
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycle:
    """One stop with savepoint, and the start from it."""

    run_s: float
    """How long the job runs before the stop."""
    shards: int
    """With how many shards the sinks go on."""
    kill_after_s: float | None
    """When the started driver gets its ``kill -9``; None: never."""

    def __str__(self) -> str:
        """Return what is done."""
        killed = "" if self.kill_after_s is None else f", kill -9 after {self.kill_after_s:.1f} s"
        return f"ran {self.run_s:.1f} s, then {self.shards} shards{killed}"


def cycles_of(seed: int, count: int) -> Iterator[Cycle]:
    """Yield cycles at random moments; every third may change the shards, every fifth is killed. Pure."""
    moments = random.Random(seed)  # noqa: S311  (moments, not secrets)
    shards = 2
    for number in range(1, count + 1):
        run_s, kill_s = moments.uniform(0, LONGEST_RUN_S), moments.uniform(0, LATEST_KILL_S)
        if number % _RESHARD_EVERY == 0:
            shards = moments.randint(1, MOST_SHARDS)
        yield Cycle(run_s=run_s, shards=shards, kill_after_s=None if number % _KILL_EVERY else kill_s)


@dataclass(slots=True)
class Downtimes:
    """From the last commit before to the first one after, of the query that waited longer, in seconds."""

    seconds: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        """Return median and maximum."""
        if not self.seconds:
            return "none"
        return f"downtime median {median(self.seconds):.1f} s, max {max(self.seconds):.1f} s"


class Moves:
    """What is done to a job that runs, one move after the other."""

    def __init__(self, job: ExactlyOnceJob, *, moving_sink: bool = False, tries: Tries | None = None) -> None:
        """Prepare.

        Args:
            job: Not started yet.
            moving_sink: Whether the output moves with the source, or stays on ``old``.
            tries: How steps are tried; by default once.
        """
        self._tries = Tries() if tries is None else tries
        self._job, self._orders, self._moving_sink = job, job.orders, moving_sink
        self._shards, self._on_new = 2, False
        self.mirrors_restarted = 0
        """How often a mirror died while the job moved, and was started again."""
        self._begins = Offsets()
        """First record that the next mirror is to copy, per partition of the cluster that the job reads."""

    @property
    def reads(self) -> Reached:
        """The cluster that the job reads now."""
        return self._orders.new if self._on_new else self._orders.old

    def start(self) -> None:
        """Start the job for the first time."""
        spec = self._spec(on_new=False)
        handle = self._tries(
            lambda: self._orders.client.starts.start(spec, self._orders.target, claim_key="start")
        )
        self._wait_commits(handle.generation, dict.fromkeys(QUERIES, -1))

    def cycle(self, name: str, cycle: Cycle) -> float:
        """Stop with a savepoint, start from it; returns the downtime in seconds."""
        orders = self._orders
        time.sleep(cycle.run_s)
        outcome = self._stop(name)
        self._shards, saved = cycle.shards, FromSavepoint(savepoint_id=outcome.savepoint_id or "")
        handle = self._tries(
            lambda: orders.client.starts.start(
                self._spec(on_new=self._on_new), orders.target, claim_key=name, origin=saved
            )
        )
        if cycle.kill_after_s is not None:
            time.sleep(cycle.kill_after_s)
            self._tries(lambda: orders.client.drivers.end_driver(handle.generation))
        self._wait_commits(handle.generation, outcome.batches)
        return self._tries(lambda: self._downtime_s(outcome.generation, handle.generation, outcome.batches))

    def _stop(self, name: str) -> Stopped:
        refused = itertools.count()
        key = f"{name}/stop{next(refused)}"

        def stop() -> Stopped:
            nonlocal key
            try:
                outcome = self._orders.client.requests.stop(key, savepoint=True, timeout_s=_TIMEOUT_S)
            except RequestFailedError:  # what has ended is not asked again under its key
                key = f"{name}/stop{next(refused)}"
                raise
            if not isinstance(outcome, Stopped) or outcome.savepoint_id is None:
                raise RuntimeError(f"The job did not stop with a savepoint: {outcome}")
            return outcome

        return self._tries(stop)

    def migrate(self, name: str) -> float:
        """Move the source to the other cluster, with a mirror of its own; returns the downtime in seconds."""
        orders, old = self._orders, self._tries(self._generation)
        to = orders.old if self._on_new else orders.new
        here, there = _cluster(self.reads), _cluster(to)
        rules = MirrorSettings(source_alias=f"{name}from", target_alias=f"{name}to")
        self._tries(lambda: set_mirror_start(there, rules, self._begins))
        with self._mirror(rules, here, there) as mirror:
            to.wait_for_topic(orders.topic, timeout_s=_TIMEOUT_S)
            copied = self._tries(
                lambda: wait_copied(here, there, rules, [orders.topic], timeout_s=_TIMEOUT_S)
            )
            if not isinstance(copied, CaughtUp):
                raise TimeoutError(copied.describe())
            report = self._cut_over(name, replace(orders.kafka_side(), old=here, new=there, mirror=rules))
            self._on_new = not self._on_new
            self._begins = mirror_begins(report.plan)
            wait_until("orders go there", lambda: orders.producer_is_at() == self.reads.name)
            new = Generation(report.generation)
            self._wait_commits(new, report.plan.batches)
        self.mirrors_restarted += mirror.restarts
        return self._tries(lambda: self._downtime_s(old, new, report.plan.batches))

    def _cut_over(self, name: str, kafka: LiveKafka) -> CutoverReport:
        orders, rolled_back = self._orders, 0

        def run() -> CutoverReport:
            nonlocal rolled_back
            try:
                return orders.cutover(
                    migration_id=f"{name}-{rolled_back}",
                    switch=SwappedSwitch(orders.switch) if self._on_new else orders.switch,
                    kafka=kafka,
                    spec=self._spec(on_new=not self._on_new),
                ).run()
            except JobError as error:
                if error.code == ROLLED_BACK.code:
                    rolled_back += 1
                raise

        return self._tries(run)

    def judge(self, reader: StateReader) -> tuple[Judgement, OutputJudgement]:
        """End the producer, and judge what the job counted and wrote on all its ways.

        The last fault may strike after the last step, so the driver is watched until everything is read.
        """
        return self._job.judge(
            reader, self.reads, watch=lambda: self._tries(self._orders.client.drivers.ensure_running)
        )

    def _spec(self, *, on_new: bool) -> JobSpec:
        """Return the job as it is to run from now on, reading one of the clusters."""
        out = self._orders.new if on_new and self._moving_sink else self._orders.old
        spec = self._job.spec(shards=self._shards, out=out)
        return replace(spec, overrides=self._orders.on_new if on_new else ())

    def _mirror(self, rules: MirrorSettings, here: KafkaCluster, there: KafkaCluster) -> Mirror:
        back = f"{rules.target_alias}->{rules.source_alias}"
        settings = MirrorProcess(
            source_bootstrap=here.bootstrap_servers,
            target_bootstrap=there.bootstrap_servers,
            source_alias=rules.source_alias,
            target_alias=rules.target_alias,
            topics=self._orders.topic,
            more={f"{back}.emit.heartbeats.enabled": "false"},  # else it runs that way, too
        )
        return Mirror(self._orders.folder / rules.source_alias, settings)

    def _wait_commits(self, generation: Generation, after: Mapping[str, int]) -> None:
        """Wait for each query's next batch; a driver that died without a word is started again."""

        def committed() -> bool:
            runs = isinstance(self._orders.client.drivers.ensure_running(), Running)
            return runs and all(
                self._commit(generation, query, after[query] + 1).exists() for query in QUERIES
            )

        wait_until(f"batches of generation {generation} after {after}", lambda: self._tries(committed))

    def _downtime_s(self, old: Generation, new: Generation, at: Mapping[str, int]) -> float:
        """Return how long the query waited that waited longer, by the times of its commits."""
        return max(
            self._commit(new, query, at[query] + 1).stat().st_mtime
            - self._commit(old, query, at[query]).stat().st_mtime
            for query in QUERIES
        )

    def _generation(self) -> Generation:
        current = self._orders.board.current()
        if current is None:
            raise RuntimeError("no generation has run yet")
        return current.value.generation

    def _commit(self, generation: Generation, query: str, batch: int) -> Path:
        return self._orders.checkpoint(generation, query=query) / "commits" / str(batch)


def _cluster(broker: Reached) -> KafkaCluster:
    return KafkaCluster(name=broker.name, config={"bootstrap.servers": broker.bootstrap})
