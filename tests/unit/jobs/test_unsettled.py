"""Migrations and upgrades whose task never comes back: the hold ends by itself, anybody may settle them."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest

from airflow_flinkstyle.clock import Clock
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import (
    MIGRATION_BUSY,
    MIGRATION_ENDED,
    ROLLED_BACK,
    UPGRADE_ROLLED_BACK,
    AttemptSupersededError,
    StaleTokenError,
)
from airflow_flinkstyle.jobs.journal import CutoverJournal, open_since_ms
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.jobs.retention import open_journal
from airflow_flinkstyle.jobs.status import Running, Sightings
from airflow_flinkstyle.jobs.unsettled import find_unsettled, is_abandoned, release, settle
from airflow_flinkstyle.jobs.upgrade.health import Bounds
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from testbed.keys import SIGNER
from testbed.refusals import refuses
from tests.nightly import nightly_but
from tests.unit.jobs.cutovers import NEW, QUICK, DyingStore, Killed, a_cutover, position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_flinkstyle.jobs.migration.cutover import Cutover
    from tests.unit.jobs.conftest import Mood, World


class Leaping(Clock):
    """A clock on which a lease takes no time, for who only looks."""

    now_s = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now_s += max(seconds, 0.01)


class Producers:
    """One producer process, as it reads the switch."""

    def __init__(self, world: World) -> None:
        self.clock = Leaping()
        self._switch = StoreProducerSwitch(world.store, f"{world.job}/switch.json", Sightings(self.clock))

    def behind_the_lease(self) -> str | None:
        """Return where they write once nobody has renewed their hold for its lease."""
        self._switch.read()
        self.clock.sleep(QUICK.hold_lease_s)
        return self._switch.read()


def a_migration(world: World, store: object = None) -> Cutover:
    return a_cutover(world, store)


def an_upgrade(world: World, store: object = None, script: str = "v2.py") -> Upgrade:
    return Upgrade(
        client=world.client(),
        journal=CutoverJournal(store or world.store, world.job, "u1", UPGRADE_PHASES, signer=SIGNER),
        spec=world.spec(script),
        target=world.target(),
        settings=QUICK,
    )


def settle_all(world: World) -> list[str]:
    client = world.client()
    return [
        settle(client, one, migration=lambda _: a_migration(world), afresh=True).where
        for one in find_unsettled(client.view.board)
    ]


def runs(world: World) -> bool:
    return isinstance(world.client().view.status(), Running)


def has_decided(world: World) -> bool:
    """Tell whether the newest driver does not take the job over any more: it has, has ended, or may not."""
    board = world.client().view.board
    newest, current = board.generations()[-1], board.current()
    ordered = board.takeover_order(newest) is not None
    has_it = current is not None and current.value.generation == newest
    return has_it or not ordered or newest not in world.alive()


PLACES = (
    "-standby",
    "-hold",
    "-caught-up",
    "-stop",
    "-translate",
    "-rewrite",
    "-takeover-order",
    "-takeover.",
)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2], ids=["intent", "result"])
@pytest.mark.parametrize("place", nightly_but(lambda place: place in ("-stop", "-takeover-order"), PLACES))
def test_migration_that_never_comes_back_holds_producers_no_longer_than_its_lease_and_is_settled(
    world: World, place: str, at: int, after: bool
):
    world.start()
    with pytest.raises(Killed):
        a_migration(world, DyingStore(world.store, at, after=after, only=place)).run()
    world.until(lambda: has_decided(world))  # it has real time; the lease below takes none
    told = Producers(world).behind_the_lease()
    assert told != "hold"
    if told == "release_old":  # producers obey, whoever settles it, and when
        world.logs.produce(5)
    client = world.client()
    for found in find_unsettled(client.view.board):
        assert is_abandoned(world.client(Leaping()).view, found)
        (where,) = settle_all(world)
        assert told in (None, f"release_{where}")
        assert position(world) in (None, f"release_{where}")
    world.logs.produce(5)
    world.judge()
    assert find_unsettled(client.view.board) == []
    world.until(lambda: len(world.alive()) == 1)


def test_driver_that_was_told_to_take_over_does_not_once_nobody_holds_the_producers(world: World):
    world.start()
    store = DyingStore(world.store, 2, only="-takeover-order")
    migration = a_migration(world, store)
    order = migration.client.starts.order_takeover

    def die_behind_it(*args: object) -> None:
        world.kill(2)
        order(*args)
        raise Killed

    migration.client.starts.order_takeover = die_behind_it  # type: ignore[method-assign]
    with pytest.raises(Killed):
        migration.run()
    assert Producers(world).behind_the_lease() == "release_old"
    world.logs.produce(5)
    client = world.client()
    client.drivers.ensure_running()  # a watcher starts the driver again that died with its order
    assert client.view.board.current().value.generation == 1
    assert settle_all(world) == ["old"]
    world.logs.produce(5)
    world.judge()


def test_attempt_that_is_late_finds_its_hold_gone_and_goes_back(world: World):
    world.start()
    migration = a_migration(world)
    mirrored = world.logs.await_mirrored

    def sleep_through_the_lease(*args: object) -> None:
        migration.held._clock = Leaping()  # the machine was suspended
        migration.held._clock.now_s = migration.held._until_s
        world.logs.produce(5)
        mirrored(*args)

    world.logs.await_mirrored = sleep_through_the_lease  # type: ignore[method-assign]
    with refuses(ROLLED_BACK, match="Producers were expected to be held"):
        migration.run()
    world.judge()
    assert (position(world), world.client().view.board.current().value.generation) == ("release_old", 1)


def test_retry_that_comes_behind_the_lease_goes_back_if_producers_wrote_meanwhile(world: World):
    world.start()
    with pytest.raises(Killed):
        a_migration(world, DyingStore(world.store, 1, only="-rewrite")).run()
    assert Producers(world).behind_the_lease() == "release_old"
    world.logs.produce(5)
    with refuses(ROLLED_BACK, match="producers were held"):
        a_migration(world).run()
    assert position(world) == "release_old"
    world.judge()


def test_retry_that_comes_behind_the_lease_goes_on_if_nobody_wrote(world: World):
    world.start()
    with pytest.raises(Killed):
        a_migration(world, DyingStore(world.store, 1, only="-rewrite")).run()
    assert Producers(world).behind_the_lease() == "release_old"
    assert a_migration(world).run().generation == 2
    assert position(world) == "release_new"
    world.logs.produce(5)
    world.judge()


def test_migration_at_work_is_left_alone_unless_a_person_says_otherwise(world: World):
    world.start()
    migration = a_migration(world)
    mirrored = world.logs.await_mirrored
    asked: list[object] = []

    def meanwhile(*args: object) -> None:
        if not asked:
            asked.append(None)
            (found,) = find_unsettled(world.board)
            migration.work.beat()
            with refuses(MIGRATION_BUSY, match=r"migration m1 \(in phase caught-up\)"):
                settle(world.client(), found, migration=lambda _: a_migration(world))
            assert position(world) == "hold"
            asked.append(settle_all(world))
        mirrored(*args)

    world.logs.await_mirrored = meanwhile  # type: ignore[method-assign]
    with pytest.raises((AttemptSupersededError, StaleTokenError)):
        migration.run()
    assert asked[1] == ["old"]
    assert position(world) == "release_old"
    with refuses(MIGRATION_ENDED):
        a_migration(world).run()
    world.logs.produce(5)
    world.judge()


@pytest.mark.parametrize(("to", "released"), [(None, "release_old"), ("new", "release_new")])
def test_producers_alone_are_released_where_the_job_runs_or_as_a_person_says(
    world: World, to: str | None, released: str
):
    world.start()
    with pytest.raises(Killed):
        a_cutover(world, DyingStore(world.store, 1, only="-stop")).run()
    assert position(world) == "hold"
    assert (release(a_migration(world), to), position(world)) == (released, released)
    assert runs(world)


def test_producers_are_not_released_while_it_is_undecided_where_the_job_runs(world: World):
    world.start()
    migration = a_migration(world)
    order = migration.client.starts.order_takeover

    def die_behind_it(*args: object) -> None:
        world.kill(2)
        order(*args)
        raise Killed

    migration.client.starts.order_takeover = die_behind_it  # type: ignore[method-assign]
    with pytest.raises(Killed):
        migration.run()
    with pytest.raises(BadInputError, match="generation 2 was ordered to take over and has not"):
        release(a_migration(world))
    assert release(a_migration(world), "old") == "release_old"
    assert settle_all(world) == ["old"]
    world.logs.produce(5)
    world.judge()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", nightly_but(lambda at: at in (8, 12), range(1, 18)))
def test_upgrade_that_never_comes_back_is_settled(world: World, at: int, after: bool):
    world.start()
    try:
        an_upgrade(world, DyingStore(world.store, at, after=after)).run()
    except Killed:
        world.logs.produce(5)
        settle_all(world)
    assert find_unsettled(world.board) == []
    world.logs.produce(5)
    world.judge()
    world.until(lambda: len(world.alive()) == 1)


@pytest.mark.parametrize("standby", ["warm", "none"])
def test_upgrade_whose_driver_takes_over_alone_is_settled_and_its_own_retry_finds_it_done(
    world: World, standby: Literal["warm", "none"]
):
    world.start()
    with pytest.raises(Killed):
        replace(an_upgrade(world, DyingStore(world.store, 2, only="-takeover.")), standby=standby).run()
    world.until(lambda: world.board.current().value.generation == world.board.generations()[-1])
    world.logs.produce(5)  # it is waited for a batch of it
    assert settle_all(world) == ["new"]
    assert find_unsettled(world.board) == []
    report = replace(an_upgrade(world), standby=standby).run()
    assert report.generation == world.board.current().value.generation
    world.logs.produce(5)
    world.judge()


def test_upgrade_whose_task_ends_while_it_is_observed_is_settled_as_it_runs(world: World):
    world.start()
    observed = Bounds(observe_s=60)
    with pytest.raises(Killed):
        replace(an_upgrade(world, DyingStore(world.store, 1, only="-observe")), bounds=observed).run()
    assert len(find_unsettled(world.board)) == 1
    assert settle_all(world) == ["new"]
    assert find_unsettled(world.board) == []
    assert open_journal(world.board) is None, "old checkpoints may go"
    world.until(lambda: runs(world))
    second = replace(an_upgrade(world, script="v3.py"), journal=journal_of(world, "u2")).run()
    assert second.generation > 2, "no other upgrade has to wait"


def test_version_that_was_found_unhealthy_is_settled_back(world: World):
    world.start()
    with pytest.raises(Killed):
        replace(
            an_upgrade(world, DyingStore(world.store, 1, only="-observe")), bounds=Bounds(observe_s=60)
        ).run()
    journal = journal_of(world, "u1")
    journal.begin(lambda: 0)
    found = {"failure": "It falls behind.", "observed_s": 1.0, "reasons": [], "batches": {}, "unknown": []}
    journal.close(journal.open("observe", {}), found)
    with producing(world):  # the old version is waited for a batch of it
        assert settle_all(world) == ["old"]
    assert find_unsettled(world.board) == []
    world.logs.produce(5)
    world.judge()


def test_what_was_approved_and_never_begun_keeps_no_old_checkpoint(world: World):
    world.start()
    journal_of(world, "u1").approve({"script": "v2.py"})
    assert open_journal(world.board) is None
    assert open_since_ms(world.store, world.job) is None


@contextmanager
def producing(world: World) -> Iterator[None]:
    """Let records come, one after the other."""
    ended = threading.Event()

    def produce() -> None:
        while not ended.wait(0.05):
            world.logs.produce(1)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def journal_of(world: World, name: str) -> CutoverJournal:
    return CutoverJournal(world.store, world.job, name, UPGRADE_PHASES, signer=SIGNER)


def test_new_version_that_fails_before_its_first_batch_is_settled_back(world: World, mood: type[Mood]):
    world.start()
    world.moods["v2.py"] = mood(fails_in_batch=True)
    with pytest.raises(Killed):
        an_upgrade(world, DyingStore(world.store, 1, only="-verify")).run()
    world.logs.produce(5)
    assert settle_all(world) == ["old"]
    world.judge()
    with refuses(UPGRADE_ROLLED_BACK):
        an_upgrade(world).run()


def test_finished_ones_and_those_that_never_began_are_no_matter(world: World):
    world.start()
    a_migration(world).run()
    assert find_unsettled(world.board) == []
    other = a_cutover(world)
    other.journal = CutoverJournal(world.store, world.job, "m2", other.journal._phases, signer=SIGNER)
    other.journal.approve({"format_version": 1})
    other.journal.decide({"by": "ann"}, approved=True)
    assert find_unsettled(world.board) == []
    assert NEW in str(world.client().view.board.claim(2).launch)
