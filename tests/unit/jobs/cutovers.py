"""A migration of the jobs' world, with short deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES, Cutover, CutoverSettings
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World


QUICK = CutoverSettings(
    standby_timeout_s=10,
    hold_timeout_s=0.1,
    steady_window_s=0.01,
    caught_up_timeout_s=1,
    stop_timeout_s=10,
    takeover_timeout_s=10,
    first_commit_timeout_s=0.2,
)


NEW = "v1-new.py"


def a_cutover(world: World, store: object = None) -> Cutover:
    return Cutover(
        client=world.client(),
        journal=CutoverJournal(store or world.store, world.job, "m1", PHASES),
        switch=StoreProducerSwitch(world.store, f"{world.job}/switch.json"),
        kafka=world.logs,
        spec=world.spec(NEW, new=True),
        target=world.target(),
        hot_savepoint_id=None,
        settings=QUICK,
    )


def position(world: World) -> str | None:
    return StoreProducerSwitch(world.store, f"{world.job}/switch.json").read()
