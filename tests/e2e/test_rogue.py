"""A producer that wakes behind the proof that nobody writes, under load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.jobs.errors import WentBackError
from airflow_flinkstyle.jobs.kafka_side import LiveKafka
from testbed.scenario import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = pytest.mark.e2e

RATE_PER_S = 5000.0


def waking(kafka: LiveKafka, wake: Callable[[], Any]) -> LiveKafka:
    """Return the same clusters, with somebody who wakes once the positions are proved."""

    class Woken(LiveKafka):
        def plan(self, manifest: Manifest, *, preview: bool = False) -> OffsetRewritePlan:
            plan = LiveKafka.plan(self, manifest, preview=preview)
            wake()
            return plan

    return Woken(**{name: getattr(kafka, name) for name in LiveKafka.__slots__})


def test_rogue_producer_sends_the_migration_back_and_without_it_the_next_one_moves(
    scenario: OrdersScenario, reader: StateReader
):
    rogue = scenario.rogue()
    rogue.write(5)
    scenario.start_producer(rate_per_s=RATE_PER_S)
    scenario.start()
    offsets: list[int] = []
    kafka = waking(scenario.kafka_side(), lambda: offsets.extend(rogue.write(3)))
    with pytest.raises(WentBackError) as found:
        scenario.cutover(kafka=kafka).run()
    assert len(offsets) == 3
    assert f"{scenario.topic}-3 ({offsets[0]} to {offsets[-1] + 1})" in str(found.value)
    wait_until("orders go to old", lambda: scenario.producer_is_at() == "old", timeout_s=20)
    assert not scenario.running().run.claim.overrides

    report = scenario.cutover(migration_id="m2").run()
    wait_until("orders go to new", lambda: scenario.producer_is_at() == "new", timeout_s=20)
    assert report.generation == scenario.running().run.generation
    scenario.wait_commits(2)
    judgement = scenario.judge(reader, scenario.new)
    assert judgement.right, judgement
