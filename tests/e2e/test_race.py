"""The new driver and the way back both told to go: exactly one of them ever runs a batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.start.origins import order_to_restore
from testbed.scenario import QUERY, committed_offsets
from testbed.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = [pytest.mark.e2e, pytest.mark.matrix]


def test_only_one_of_new_driver_and_way_back_runs_a_batch(scenario: OrdersScenario, reader: StateReader):
    scenario.start_producer()
    old = scenario.start()
    client, kafka = scenario.client, scenario.kafka_side()
    new = client.starts.standby(
        replace(scenario.spec, overrides=scenario.on_new),
        scenario.target,
        claim_key="next",
        prepare_savepoint_id=scenario.hot_savepoint(),
    ).generation
    wait_until("the new driver waits", lambda: client.view.run(new).heartbeat is not None)
    scenario.switch.apply("hold", 1)
    wait_until("producers are held", lambda: scenario.producer_is_at() is None)
    kafka.await_mirrored({f"{QUERY}/0": [scenario.topic]}, 60)
    stopped = client.requests.stop("stop", savepoint=True, timeout_s=PATIENCE_S)
    assert isinstance(stopped, Stopped)
    manifest = client.view.repository.read(stopped.savepoint_id)
    rewritten = kafka.apply(kafka.plan(manifest), manifest, client.view.repository)

    with ThreadPoolExecutor(2) as both:
        back = both.submit(client.starts.follow, old, claim_key="back")
        both.submit(
            client.starts.order_takeover, new, order_to_restore(rewritten, closed_at=dict(stopped.batches))
        )
    generations = {new, back.result().generation}
    wait_until("one has taken over", lambda: scenario.board.current().value.generation != old)
    winner = scenario.board.current().value.generation
    (loser,) = generations - {winner}
    wait_until("the other has ended", lambda: not client.view.run(loser).holds_the_job)

    broker = scenario.new if winner == new else scenario.old
    scenario.switch.apply("release_new" if winner == new else "release_old", 2)
    scenario.wait_commits(2)
    assert scenario.board.current().value.generation == winner
    if loser == new:  # the way back shares its checkpoint with the run it follows
        assert committed_offsets(scenario.checkpoint(loser)) is None
    judgement = scenario.judge(reader, broker)
    assert judgement.right, judgement
