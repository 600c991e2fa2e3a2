"""A standby that a limit leaves no room for is refused before it is started; what is not free is told."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.cutover.steps import require_room
from airflow_flinkstyle.jobs.deployments.room import Room
from airflow_flinkstyle.jobs.errors import NO_ROOM
from airflow_flinkstyle.jobs.target import Deployments
from testbed.refusals import refuses
from tests.unit.jobs.hosts import Host
from tests.unit.jobs.specs import a_spec, a_target

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

LEFT = Room(where="queue streams of YARN", cores=1, memory_mb=1024)
LIMIT = replace(LEFT, limit=LEFT)


class Cluster(Host):
    """One that tells its room."""

    told: Room | None = None

    def room(self) -> Room | None:
        return self.told


def ask(world: World, told: Room | None, **limits: Any) -> tuple[str, bool]:
    host = Cluster(world, "a")
    host.told = told
    client = JobClient(view=replace(host.client().view, clusters=Deployments(make=lambda _: host)))
    return require_room(
        client.view, a_spec(), a_target(master="yarn", deploy_mode="cluster", conf={}, **limits)
    )


def test_what_a_standby_takes_is_told(world: World):
    for told in (None, Room(where="it", cores=3, memory_mb=9999)):
        assert ask(world, told) == (
            "Beside the driver that runs, the next one waits until it takes over: 3 cores and 4.1 GiB (a "
            "driver with 1 core and 1.4 GiB; 2 executors with 1 core and 1.4 GiB each).",
            True,
        )


def test_standby_on_the_workers_machine_is_told_as_such(world: World):
    told, is_free = require_room(Host(world, "a").client().view, a_spec(), a_target())
    assert is_free
    assert told.endswith("waits until it takes over: a driver on the worker's machine.")


def test_limit_without_room_for_one_executor_is_an_error(world: World):
    with refuses(NO_ROOM, match=r"queue streams of YARN has 1 of 2 cores and 1\.0 GiB") as error:
        ask(world, LIMIT)
    assert error.value.retryable
    assert "keeps running" in error.value.state_after


def test_limit_with_room_for_one_executor_and_what_is_merely_not_free_are_warnings(world: World):
    enough = replace(LEFT, cores=2, memory_mb=4000)
    for told in (replace(enough, limit=enough), LEFT, replace(LEFT, limit=enough)):
        words, is_free = ask(world, told)
        assert not is_free
        assert "it may wait, or begin with fewer executors" in words


def test_more_than_the_connection_allows_a_standby_is_refused(world: World):
    with pytest.raises(BadInputError, match="3 cores, 2 are allowed"):
        ask(world, None, standby_cores=2)
