"""How long a start waits for brokers that do not answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.board.takeover import DriverRun
from airflow_flinkstyle.agent.core.run.admission import FIRST_PATIENCE_S, GUARD_PATIENCE_S
from airflow_flinkstyle.agent.core.run.reasons import Failure
from airflow_flinkstyle.agent.core.runtime import Runtime
from airflow_flinkstyle.agent.spark.process import DriverProcess
from airflow_flinkstyle.kafka.errors import CLUSTER_MISMATCH, ClusterUnreachableError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.unit.agent.conftest import G1, I1, a_claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.clocks import SleptClock as Clock


@pytest.fixture
def runtime(clock: Clock) -> Runtime:
    store = MemoryStore()
    driver_run = DriverRun(
        generation=G1, incarnation=I1, claim=a_claim(lease_s=6.0), prior=None, seen=None, clock=clock
    )
    return Runtime(
        JobBoard(store, "orders"), SavepointRepository(store, "orders"), driver_run, DriverProcess()
    )


def out_of_reach_until(clock: Clock, until_s: float) -> Callable[[], None]:
    def guard() -> None:
        clock.sleep(20.0)
        if clock.now_s < until_s:
            raise ClusterUnreachableError("No broker answered.", "Nothing.", "Wait.")

    return guard


def test_start_guard_waits_out_brokers_that_cannot_be_reached(runtime: Runtime, clock: Clock) -> None:
    runtime.admission.relaunched = True
    runtime.admission._await_kafka(out_of_reach_until(clock, 1000.0 + GUARD_PATIENCE_S - 30))
    assert clock.now_s > 1500.0


@pytest.mark.parametrize(("relaunched", "patience_s"), [(True, GUARD_PATIENCE_S), (False, FIRST_PATIENCE_S)])
def test_start_guard_fails_for_now_if_they_stay_away(
    runtime: Runtime, clock: Clock, relaunched: bool, patience_s: float
) -> None:
    runtime.admission.relaunched = relaunched
    with pytest.raises(ClusterUnreachableError) as away:
        runtime.admission._await_kafka(out_of_reach_until(clock, 1e9))
    assert patience_s <= clock.now_s - 1000.0 < patience_s + 30
    assert Failure.of(away.value).transient


def test_start_guard_waits_for_nothing_that_would_stay_wrong(runtime: Runtime, clock: Clock) -> None:
    def guard() -> None:
        raise CLUSTER_MISMATCH.with_text("Another cluster.", "Nothing.", "Correct it.")

    with refuses(CLUSTER_MISMATCH) as wrong:
        runtime.admission._await_kafka(guard)
    assert clock.now_s == 1000.0
    assert not Failure.of(wrong.value).transient
