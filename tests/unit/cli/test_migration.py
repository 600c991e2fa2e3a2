"""``flinkstyle migration list|settle|release``, on migrations whose task was killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.cli import migration
from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.jobs.migration.approved import Approved, ClusterRef, Migration
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from tests.unit.jobs.conftest import World
from tests.unit.jobs.cutovers import QUICK, DyingStore, Killed, a_cutover
from tests.unit.jobs.drivers import hurry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A job whose drivers keep the protocol in threads, behind the command line."""
    hurry(monkeypatch)
    world = World(tmp_path)
    monkeypatch.setattr(migration, "client_of", lambda *_: world.client())
    monkeypatch.setattr(migration, "require_job", lambda *_: None)
    yield world
    world.kill_all()


def flinkstyle(world: World, *args: str, code: int = 0) -> Any:  # noqa: ANN401 - JSON, or what was said
    options = ("--root", "/unused", "--job", world.job, "--json")
    result = CliRunner().invoke(app, ("migration", args[0], *options, *args[1:]))
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if code == 0 else result.output


def killed(world: World, place: str, switch: str = "store") -> None:
    """Migrate until the task is killed, as the operators do it."""
    world.start()
    refs = {
        name: ClusterRef(conn_id=name, servers="localhost:1") for name in ("source", "target")
    }  # nobody answers there
    moving = Migration(
        job=world.job, **refs, producer_switch=switch, script_servers="old:9092", settings=QUICK
    )
    cutover = a_cutover(world, DyingStore(world.store, only=place))
    cutover.switch = producers(world)
    a_cutover(world).journal.approve(Approved(migration=moving, told={}).as_fields())
    with pytest.raises(Killed):
        cutover.run()


def producers(world: World) -> StoreProducerSwitch:
    return StoreProducerSwitch(world.store, f"{world.job}/producers.json")


def test_migration_that_nobody_finishes_is_listed_and_settled(world: World):
    killed(world, "-translate")
    (found,) = flinkstyle(world, "list")["unsettled"]
    assert (found["migration_id"], found["cutover"], found["phases"][-1]) == ("m1", "migration", "stop")
    settled = flinkstyle(world, "settle", "--now", "--yes")
    assert (settled["where"], producers(world).read()) == ("old", "release_old")
    assert flinkstyle(world, "list") == {"unsettled": []}
    assert "was expected, found none" in flinkstyle(world, "settle", "--yes", code=1)
    world.logs.produce(5)
    world.judge()


def test_producers_alone_are_released(world: World):
    killed(world, "-stop")
    assert flinkstyle(world, "release", "--yes")["released_to"] == "old"
    assert producers(world).read() == "release_old"
    assert flinkstyle(world, "release", "m1", "--to", "new", "--yes")["released_to"] == "new"
    assert producers(world).read() == "release_new"
    assert "found m1" in flinkstyle(world, "release", "m7", "--yes", code=1)


def test_switch_that_is_code_is_left_to_airflow(world: World):
    killed(world, "-stop", switch="my.switches:orders")
    told = flinkstyle(world, "settle", "--now", "--yes", code=1)
    assert "BAD_INPUT" in told
    assert "settle_job" in told
