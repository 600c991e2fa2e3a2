"""A hold of the producers ends by itself: as a producer sees it, and as the attempt that renews it does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.clock import Clock
from airflow_flinkstyle.jobs.errors import HOLD_LOST, StaleTokenError
from airflow_flinkstyle.jobs.migration.context import ProducerHold
from airflow_flinkstyle.jobs.migration.producers import HoldLease, StoreProducerSwitch, SwappedSwitch, leased
from airflow_flinkstyle.jobs.status import Sightings
from airflow_flinkstyle.types import Generation
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.unit.jobs.cutovers import a_cutover

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.migration.producers import Position, ProducerSwitch
    from tests.unit.jobs.conftest import World

KEY = "orders-job/switch.json"


class Hands(Clock):
    """A clock that the test sets."""

    now_s = 1000.0


@pytest.fixture
def clock() -> Hands:
    return Hands()


def a_producer(store: MemoryStore, clock: Clock) -> StoreProducerSwitch:
    """Return how one producer process reads the switch."""
    return StoreProducerSwitch(store, KEY, Sightings(clock))


def a_lease(renewal: int = 1, generation: int | None = 2) -> HoldLease:
    return HoldLease(
        lease_s=60.0, renewal=renewal, generation=None if generation is None else Generation(generation)
    )


def test_hold_that_nobody_renews_ends_once_a_producer_has_looked_for_its_lease(clock: Hands):
    store = MemoryStore()
    StoreProducerSwitch(store, KEY).hold(a_lease(), 3)
    producer = a_producer(store, clock)
    assert producer.read() == "hold"
    clock.now_s += 59.9
    assert (producer.read(), a_producer(store, clock).read()) == ("hold", "hold")
    clock.now_s += 0.1
    assert producer.read() == "release_old"
    assert a_producer(store, clock).read() == "hold", "it counts from its own first look"


def test_each_renewal_holds_for_its_whole_lease(clock: Hands):
    store = MemoryStore()
    switch, producer = StoreProducerSwitch(store, KEY), a_producer(store, clock)
    for renewal in range(1, 5):
        switch.hold(a_lease(renewal), 3)
        assert producer.read() == "hold"
        clock.now_s += 59.0
    assert producer.read() == "hold"
    clock.now_s += 1.0
    assert producer.read() == "release_old"


def test_renewal_brings_back_no_hold_that_was_released():
    switch = StoreProducerSwitch(MemoryStore(), KEY)
    switch.hold(a_lease(), 3)
    switch.apply("release_new", 3)
    with refuses(HOLD_LOST, match="found it at release_new"):
        switch.hold(a_lease(2), 3)
    switch.apply("hold", 4)
    with pytest.raises(StaleTokenError, match="Token 3"):
        switch.hold(a_lease(3), 3)
    assert switch.read() == "hold"


def test_hold_of_a_migration_back_ends_on_the_cluster_that_the_job_still_reads(clock: Hands):
    store = MemoryStore()
    hold = leased(SwappedSwitch(StoreProducerSwitch(store, KEY)))
    assert hold is not None
    hold(a_lease(), 3)
    producer = a_producer(store, clock)
    producer.read()
    clock.now_s += 60
    assert producer.read() == "release_new"


@pytest.mark.parametrize("last", ["old", "new", "a run after new"])
def test_hold_ends_on_the_side_where_the_job_runs(world: World, clock: Hands, last: str):
    client = world.start()
    if last != "old":
        a_cutover(world).run()
    if last == "a run after new":
        client.requests.stop("s", savepoint=False, timeout_s=10)
        later = client.starts.follow(Generation(2), claim_key="later").generation
        client.drivers.wait_running(later, timeout_s=10)
    StoreProducerSwitch(world.store, KEY).hold(a_lease(generation=2), 9)
    producer = a_producer(world.store, clock)
    assert producer.read() == "hold"
    clock.now_s += 60
    assert producer.read() == ("release_old" if last == "old" else "release_new")


class Switch:
    """A switch that takes its time."""

    def __init__(self, clock: Hands, *, slow_s: float = 0.0) -> None:
        self.clock, self.slow_s = clock, slow_s
        self.told: list[object] = []

    def hold(self, lease: HoldLease, token: int) -> None:
        self.clock.now_s += self.slow_s
        self.told.append(lease.renewal)

    def apply(self, position: Position, token: int) -> None:
        self.told.append(position)

    def read(self) -> None:
        """It cannot tell."""


def a_hold(switch: ProducerSwitch, clock: Hands) -> ProducerHold:
    return ProducerHold(switch, token=3, lease_s=60.0, clock=clock)


def test_attempt_that_renews_too_late_finds_its_hold_gone(clock: Hands):
    switch = Switch(clock)
    hold = a_hold(switch, clock)
    hold.begin(None)
    clock.now_s += 59
    hold.renew()
    clock.now_s += 60
    for ask in (hold.require, hold.renew):
        with refuses(HOLD_LOST, match="not renewed for 60 s"):
            ask()
    hold.release("release_old")
    assert switch.told == [1, 2, "release_old"]


def test_renewal_that_lands_after_the_lease_renews_nothing(clock: Hands):
    switch = Switch(clock)
    hold = a_hold(switch, clock)
    hold.begin(None)
    switch.slow_s = 30
    clock.now_s += 31
    with refuses(HOLD_LOST):
        hold.renew()
    with refuses(HOLD_LOST):
        hold.require()


def test_driver_may_take_over_only_for_what_is_left_and_only_once_it_was_told(clock: Hands):
    switch = Switch(clock)
    hold = a_hold(switch, clock)
    assert hold.renew() == 0.0, "nothing is held"
    hold.begin(None)
    assert hold.renew() == 0.0
    hold.let_take_over()
    switch.slow_s = 10
    assert hold.renew() == 50.0
    hold.release("release_new")
    assert hold.renew() == 0.0


def test_switch_without_leases_holds_until_it_is_told_otherwise(clock: Hands):
    told: list[str] = []

    def apply(position: str, token: int) -> None:
        told.append(position)

    hold = a_hold(SimpleNamespace(apply=apply, read=lambda: None), clock)
    hold.begin(None)
    clock.now_s += 1e6
    hold.renew()
    hold.require()
    hold.release("release_new")
    assert told == ["hold", "release_new"]
