"""One counting job on Kafka whose state has a chosen size, upgraded to itself or moved to another cluster."""

from __future__ import annotations

import contextlib
import itertools
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES, Cutover
from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.protocol.records import KafkaOverride
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from benchmarks.common import MIB
from benchmarks.feed import Feed
from benchmarks.running_job import RunningJob, wait_for_batch
from testbed import paths
from testbed.kafka import Broker
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.jobs.cutover.downtime import Downtime
    from airflow_flinkstyle.jobs.migration.report import CutoverReport
    from airflow_flinkstyle.jobs.upgrade.context import Standby
    from airflow_flinkstyle.jobs.upgrade.upgrade import UpgradeReport
    from airflow_flinkstyle.types import Generation

JOB = paths.ROOT / "benchmarks" / "jobs" / "versioned_count.py"
QUERY = "counts"
ROWS_PER_S, TRIGGER_MS, PARTITIONS = 2000, 500, 4
KEYS = {"1 MiB": 1_000, "100 MiB": 100_000, "600 MiB": 600_000}
"""State, about: 1 KiB beside each key."""
MAINTENANCE, SNAPSHOTS_S = "spark.sql.streaming.stateStore.maintenanceInterval", 10
"""Drivers live for less than a minute here. With Spark's default no snapshot of the state would ever be
written, and each run would replay the changelogs of all those before it."""
AT_ONCE = 5_000
"""Partitions that a topic is created with in one request."""
TIMEOUT_S = 300.0
_SETTINGS = CutoverSettings(standby_timeout_s=TIMEOUT_S, first_commit_timeout_s=TIMEOUT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOver:
    """One upgrade or migration."""

    downtime_s: float
    """By the times of the files in the two commit logs."""
    before_s: float
    ours_s: float
    spark_s: float
    batch_ms: Mapping[str, int]
    phases_s: Mapping[str, float]
    load: float
    """Of the machine over the last minute, by its own word."""


class MovedJob(RunningJob):
    """A job that has read as many numbers as it has keys, and goes on evenly; ends with the context."""

    def __init__(
        self,
        folder: Path,
        brokers: tuple[Broker, Broker],
        topic: str,
        keys: int,
        *,
        partitions: int = PARTITIONS,
        rows_per_s: int = ROWS_PER_S,
        supervised: bool = False,
        archives: bool = False,
    ) -> None:
        conf = {MAINTENANCE: f"{SNAPSHOTS_S}s"}
        super().__init__(folder, JOB, conf=conf, memory="1g", supervised=supervised, archives=archives)
        self._brokers, self._topic, self._keys = brokers, topic, keys
        self._partitions, self._rows_per_s = partitions, rows_per_s
        self.feed = Feed({"release_old": brokers[0], "release_new": brokers[1]}, topic)
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        """Fill it, at the pace at which it runs then; returns once it has read all."""
        create_topic(self._brokers[0], self._topic, self._partitions)
        self.feed.fill(self._keys)
        self.start(self.arguments())
        batches = -(-self._keys // 100_000)
        wait_for_batch(self, QUERY, batches - 1, timeout_s=TIMEOUT_S)
        self.feed.start(self._rows_per_s)
        wait_for_batch(self, QUERY, batches + 5, timeout_s=TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the drivers."""
        self.feed.stop()
        super().__exit__()

    def arguments(self, *more: str) -> list[str]:
        """Return the job's command line."""
        said = ["--servers", self._brokers[0].bootstrap, "--topic", self._topic]
        return [*said, "--keys", str(self._keys), "--trigger-ms", str(TRIGGER_MS), *more]

    @property
    def size_mib(self) -> float:
        """Of a savepoint of it now."""
        return self.savepoint().size_bytes / MIB

    def current(self) -> Generation:
        """Return the generation that runs."""
        slot = self.board.current()
        if slot is None:
            raise RuntimeError("the job has not started")
        return slot.value.generation

    def upgraded(self, standby: Standby, rehearse: Rehearse | None) -> CutOver:
        """Replace the job by itself once it runs evenly."""
        wait_for_batch(self, QUERY, self.last_batch(QUERY) + 5, timeout_s=TIMEOUT_S)
        upgrade = self.upgrade(self.arguments(), standby, rehearse)
        return self._measured(lambda: _shares(upgrade.run()))

    def upgrade(self, args: list[str], standby: Standby, rehearse: Rehearse | None) -> Upgrade:
        """Return an upgrade to the same script with other arguments."""
        spec, target = self.client.view.launch_of(self.current())
        return Upgrade(
            client=self.client,
            journal=self._journal(UPGRADE_PHASES),
            spec=replace(spec, args=tuple(args)),
            target=target,
            standby=standby,
            rehearse=rehearse,
            settings=_SETTINGS,
        )

    def migrated(self) -> CutOver:
        """Move it to the second cluster, rehearsed there; a mirror runs."""
        old, new = (
            KafkaCluster(name=name, config={"bootstrap.servers": broker.bootstrap})
            for name, broker in zip(("old", "new"), self._brokers, strict=True)
        )
        spec, target = self.client.view.launch_of(self.current())
        options = {"kafka.bootstrap.servers": self._brokers[1].bootstrap}
        rule = KafkaOverride(role="source", servers=self._brokers[0].bootstrap, options=options)
        cutover = Cutover(
            client=self.client,
            journal=self._journal(PHASES),
            switch=self.feed,
            kafka=LiveKafka(old=old, new=new, mirror=MirrorSettings(source_alias="old", target_alias="new")),
            spec=replace(spec, overrides=(rule,)),
            target=target,
            hot_savepoint_id=self.savepoint().manifest.savepoint_id,
            rehearse=Rehearse(batches=2, elsewhere=True),
            settings=_SETTINGS,
        )
        return self._measured(lambda: _shares(cutover.run()))

    def _journal(self, phases: tuple[str, ...]) -> CutoverJournal:
        key = f"c{next(self._numbers)}"
        return CutoverJournal(self.board.store, "bench", key, phases, signer=SIGNER)

    def _measured(self, run: Callable[[], tuple[Downtime, Mapping[str, float]]]) -> CutOver:
        old, load = self.checkpoint(QUERY), os.getloadavg()[0]
        shares, phases_s = run()
        before = max(commits(old).items())
        wait_for_batch(self, QUERY, before[0] + 1, timeout_s=TIMEOUT_S)
        after = commits(self.checkpoint(QUERY))[before[0] + 1]
        return CutOver(
            downtime_s=after - before[1],
            before_s=shares.before_s,
            ours_s=shares.ours_s,
            spark_s=shares.spark_s,
            batch_ms=shares.batch_ms,
            phases_s=phases_s,
            load=load,
        )


def _shares(report: UpgradeReport | CutoverReport) -> tuple[Downtime, Mapping[str, float]]:
    if report.downtime is None:
        raise RuntimeError("The job had nothing to read")
    return report.downtime, report.phases_s


def commits(checkpoint: Path) -> dict[int, float]:
    """Return batch -> when its commit was written, epoch seconds, of those that are still there."""
    return {
        int(path.name): path.stat().st_mtime
        for path in (checkpoint / "commits").iterdir()
        if path.name.isdigit()
    }


def create_topic(broker: Broker, topic: str, partitions: int) -> None:
    """Create a topic; a large one in two steps, since a controller takes at most 10,000 records at a time."""
    from confluent_kafka.admin import NewPartitions

    broker.create_topic(topic, partitions=min(partitions, AT_ONCE))
    if partitions > AT_ONCE:
        broker.admin().create_partitions([NewPartitions(topic, partitions)])[topic].result(TIMEOUT_S)


@contextlib.contextmanager
def two_brokers(folder: Path, **settings: Any) -> Iterator[tuple[Broker, Broker]]:
    """Run two clusters of a broker each."""
    pair = Broker("old", folder / "old", **settings), Broker("new", folder / "new", **settings)
    try:
        for broker in pair:
            broker.launch()
        for broker in pair:
            broker.wait_ready()
        yield pair
    finally:
        for broker in pair:
            broker.kill()
