"""A migration, new orders on the new cluster, and the way back, judged order by order."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.hooks.approval import read
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.hooks.migration import cutover
from airflow_flinkstyle.jobs.errors import MIRROR_BEHIND
from airflow_flinkstyle.jobs.migration.fail_back import begin_fail_back
from airflow_flinkstyle.jobs.migration.form import MigrationForm
from airflow_flinkstyle.jobs.migration.producers import TokenCounter
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.reading import ReadRange, count_records
from airflow_flinkstyle.kafka.settings import KafkaCluster
from testbed.drivers import spark_env
from testbed.ledger import read_ledger
from testbed.mirror import Mirror, MirrorSettings
from testbed.refusals import refuses
from testbed.scenario import OrdersScenario
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.judge import StateReader
    from testbed.kafka import Broker
    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.nightly, pytest.mark.e2e, pytest.mark.airflow]

TOPIC = "failback-orders"  # not one of those that the session's mirror copies
GONE = {0: 100, 1: 40}
"""Records that are deleted on the old cluster before the job starts."""


def a_mirror(folder: Path, source: Broker, target: Broker, source_alias: str, target_alias: str) -> Mirror:
    settings = MirrorSettings(
        source_bootstrap=source.bootstrap,
        target_bootstrap=target.bootstrap,
        source_alias=source_alias,
        target_alias=target_alias,
        topics="failback-.*",
        # Else it also runs the other direction for its heartbeats, and for a moment that one's mirror as
        # it was last configured: it would copy on what was copied back.
        more={f"{target_alias}->{source_alias}.emit.heartbeats.enabled": "false"},
    )
    return Mirror(folder, settings)


def a_form(job: OrdersScenario, *, back: bool) -> MigrationForm:
    clusters, aliases = ("kafka_old", "kafka_new"), ("home", "away")
    source, target = reversed(clusters) if back else clusters
    source_alias, target_alias = reversed(aliases) if back else aliases
    return MigrationForm(
        job=job.spec.name,
        source_kafka_conn_id=source,
        target_kafka_conn_id=target,
        mirror={"source_alias": source_alias, "target_alias": target_alias},
        back=back,
    )


def hold_producer(job: OrdersScenario) -> Counter[int]:
    """Hold it, and return how many orders stand in each partition of the new cluster only."""
    job.switch.apply("hold", TokenCounter(job.board.store, job.spec.name).next())
    wait_until("the producer is held", lambda: job.producer_is_at() is None)
    return Counter(entry.order.partition for entry in read_ledger(job.ledger) if entry.cluster == "new")


def orders_on(broker: Broker) -> int:
    """Return how many records a reader finds in the topic."""
    cluster = KafkaCluster(name=broker.name, config={"bootstrap.servers": broker.bootstrap})
    logs = describe(cluster, [TOPIC]).topics[TOPIC].partitions
    ranges = {(TOPIC, number): ReadRange(low=log.start, high=log.end) for number, log in logs.items()}
    return sum(count_records(cluster, ranges, "read_committed").values())


def test_going_back_is_refused_until_new_orders_are_mirrored_back_and_then_counts_each_once(
    tmp_path: Path, kafka_pair: KafkaPair, reader: StateReader, monkeypatch: pytest.MonkeyPatch
):
    job = OrdersScenario(folder=tmp_path, old=kafka_pair.old, new=kafka_pair.new, topic=TOPIC)
    there = a_mirror(tmp_path / "there", job.old, job.new, "home", "away")
    again = a_mirror(tmp_path / "again", job.new, job.old, "away", "home")
    for name, value in {**spark_env(), **_airflow(job)}.items():
        monkeypatch.setenv(name, value)
    hook, back = StreamingJobHook(), a_form(job, back=True)
    begin = partial(
        begin_fail_back,
        *(hook.store, back),
        signer=hook.signer,
        now=hook.kafka("kafka_new"),
        then=hook.kafka("kafka_old"),
        topics="original",
    )
    with job:
        job.create_topic(deleted=GONE)
        with there:
            job.start_producer(rate_per_s=100)
            job.start()
            cutover(hook, read(hook, a_form(job, back=False)), "there").run()
        wait_until("orders go to new", lambda: job.producer_is_at() == "new")
        job.wait_commits(1)

        only_there = hold_producer(job)
        with refuses(MIRROR_BEHIND) as refused:
            begin(migration_id=None, mirror_timeout_s=0)
        found = {
            int(n): int(records) for n, records in re.findall(rf"{TOPIC}-(\d+): (\d+)", str(refused.value))
        }
        assert found == dict(only_there)
        assert f"{sum(only_there.values())} records behind" in str(refused.value)
        job.switch.apply("release_new", TokenCounter(job.board.store, job.spec.name).next())

        with again:
            way = begin(migration_id="there", mirror_timeout_s=90)
            assert (way.rename, way.noted) == ({TOPIC: TOPIC}, {}), "where it begins was noted before"
            report = cutover(hook, read(hook, back), "back").run()
            assert not report.plan.refused
            wait_until("orders go to old", lambda: job.producer_is_at() == "old")
            job.wait_commits(1)
            judgement = job.judge(reader, job.old)
        assert judgement.right, judgement
        written = sum(1 for _ in read_ledger(job.ledger))
        assert orders_on(job.old) == written, "the mirror back brought what was new, and nothing twice"


def _airflow(job: OrdersScenario) -> dict[str, str]:
    return {f"AIRFLOW_CONN_{name.upper()}": value for name, value in job.connections().items()}
