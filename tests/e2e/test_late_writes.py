"""A producer that wakes behind the proof that nobody writes: without a fence, under load, and with one."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.errors import ROLLED_BACK
from airflow_flinkstyle.jobs.migration.kafka_side import LiveKafka
from airflow_flinkstyle.kafka.fence.acls import AclRule, create_rules, rules_on
from airflow_flinkstyle.kafka.fence.fences import AclFence
from testbed.kafka import AUTHORIZER, Broker
from testbed.mirror import Mirror, MirrorSettings
from testbed.refusals import refuses
from testbed.scenario import OrdersScenario
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.judge import StateReader

pytestmark = pytest.mark.e2e

RATE_PER_S = 5000.0
TOPIC, COPIED = "orders-fenced", "orders-copied"


@pytest.fixture
def fenceable(tmp_path: Path) -> Iterator[OrdersScenario]:
    """A job between brokers that keep ACLs, and a mirror that copies them as it does by default."""
    settings = {"settings": AUTHORIZER}
    with (
        Broker("old", tmp_path / "old", **settings) as old,
        Broker("new", tmp_path / "new", **settings) as new,
    ):
        acls = {"sync.topic.acls.enabled": "true", "sync.topic.acls.interval.seconds": "1"}
        mirrored = MirrorSettings(
            source_bootstrap=old.bootstrap, target_bootstrap=new.bootstrap, topics="orders.*", more=acls
        )
        with (
            Mirror(tmp_path / "mirror", mirrored),
            OrdersScenario(folder=tmp_path / "job", old=old, new=new, topic=TOPIC) as scenario,
        ):
            scenario.create_topic()
            old.create_topic(COPIED, partitions=1)
            yield scenario


def waking(kafka: LiveKafka, wake: Callable[[], Any]) -> LiveKafka:
    """Return the same clusters, with somebody who wakes once the positions are proved."""

    class Woken(LiveKafka):
        def plan(self, manifest: Manifest, *, preview: bool = False) -> OffsetRewritePlan:
            plan = LiveKafka.plan(self, manifest, preview=preview)
            wake()
            return plan

    return Woken(**{name: getattr(kafka, name) for name in LiveKafka.__slots__})


@pytest.mark.nightly
def test_late_writes_send_the_migration_back_and_without_them_the_next_one_moves(
    scenario: OrdersScenario, reader: StateReader
):
    late_producer = scenario.late_producer()
    late_producer.write(5)
    scenario.start_producer(rate_per_s=RATE_PER_S)
    began, before = time.monotonic(), scenario.acknowledged()
    scenario.start()
    rate_per_s = (scenario.acknowledged() - before) / (time.monotonic() - began)
    print(f"{rate_per_s:.0f} records/s while the migration begins")  # noqa: T201
    assert rate_per_s > RATE_PER_S / 5, rate_per_s  # a busy machine brings it down
    offsets: list[int] = []
    kafka = waking(scenario.kafka_side(), lambda: offsets.extend(late_producer.write(3)))
    with refuses(ROLLED_BACK) as found:
        scenario.cutover(kafka=kafka).run()
    assert len(offsets) == 3
    assert f"{scenario.topic}-3 ({offsets[0]} to {offsets[-1] + 1})" in str(found.value)
    wait_until("orders go to old", lambda: scenario.producer_is_at() == "old")
    assert not scenario.running().run.claim.overrides

    report = scenario.cutover(migration_id="m2").run()
    wait_until("orders go to new", lambda: scenario.producer_is_at() == "new")
    assert report.generation == scenario.running().run.generation
    scenario.wait_commits(2)
    judgement = scenario.judge(reader, scenario.new)
    assert judgement.right, judgement


@pytest.mark.nightly
def test_fence_by_acl_makes_the_late_write_fail_and_shuts_out_neither_job_nor_mirror_nor_target(
    fenceable: OrdersScenario, reader: StateReader
):
    scenario, late_producer = fenceable, fenceable.late_producer()
    late_producer.write(5)
    scenario.start_producer()
    scenario.start()
    kafka = scenario.kafka_side()
    offsets: list[int] = []
    fenced = replace(kafka, fence=AclFence(cluster=kafka.old, open_topics=True))
    report = scenario.cutover(kafka=waking(fenced, lambda: offsets.extend(late_producer.write(3)))).run()
    assert offsets == late_producer.write(3) == []
    assert rf"deny User:\* WRITE on topic {TOPIC} (prefixed)" in report.as_markdown()
    wait_until("orders go to new", lambda: scenario.producer_is_at() == "new")
    scenario.wait_commits(2)
    canary = AclRule(name=COPIED, principal="User:guest", operation="WRITE", permission="deny")
    create_rules(kafka.old, [canary])
    wait_until("the mirror copies ACLs", lambda: canary in rules_on(kafka.new, [COPIED])[COPIED])
    assert rules_on(kafka.new, [TOPIC])[TOPIC] == frozenset()
    judgement = scenario.judge(reader, scenario.new)
    assert judgement.right, judgement
