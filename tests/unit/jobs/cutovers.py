"""Cutovers of the jobs' world, with short deadlines, and a savepoint of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_flinkstyle.jobs.cutover import steps
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.cutover import PHASES, Cutover
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from testbed.keys import SIGNER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pytest

    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.jobs.cutover.context import CutoverContext
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


class Killed(BaseException):
    """The process died."""


class DyingStore:
    """Dies at the n-th write of a key that contains a text: before it, or after it took effect."""

    def __init__(self, store: object, at: int = 1, *, after: bool = False, only: str = "") -> None:
        self._store, self._left, self._after, self._only = store, at, after, only

    def __getattr__(self, name: str) -> object:
        call = getattr(self._store, name)
        return self._dying(call) if name in ("create", "replace") else call

    def _dying(self, call: Callable[..., object]) -> object:
        def write(key: str, *args: object, **kwargs: object) -> object:
            self._left -= self._only in key
            if self._left == 0:
                if self._after:
                    call(key, *args, **kwargs)
                raise Killed
            return call(key, *args, **kwargs)

        return write


def a_cutover(world: World, store: object = None) -> Cutover:
    return Cutover(
        client=world.client(),
        journal=CutoverJournal(store or world.store, world.job, "m1", PHASES, signer=SIGNER),
        switch=StoreProducerSwitch(world.store, f"{world.job}/switch.json"),
        kafka=world.logs,
        spec=world.spec(NEW, new=True),
        target=world.target(),
        hot_savepoint_id=None,
        settings=QUICK,
    )


def position(world: World) -> str | None:
    return StoreProducerSwitch(world.store, f"{world.job}/switch.json").read()


def an_upgrade(world: World, *, first_commit_timeout_s: float = 1.0, **settings: object) -> Upgrade:
    return Upgrade(
        client=world.client(),
        journal=CutoverJournal(world.store, world.job, "u1", UPGRADE_PHASES, signer=SIGNER),
        spec=world.spec("v2.py"),
        target=world.target(),
        settings=replace(QUICK, first_commit_timeout_s=first_commit_timeout_s),
        **settings,
    )


def stop_before_it(monkeypatch: pytest.MonkeyPatch, client: JobClient) -> None:
    """Let a person stop the job right before a cutover does."""
    stop = steps.stop

    def behind_a_person(context: CutoverContext) -> Mapping[str, object]:
        client.requests.stop("a person", savepoint=True, timeout_s=10)
        return stop(context)

    monkeypatch.setattr(steps, "stop", behind_a_person)


def save(world: World, key: str = "save") -> str:
    client = world.client()
    pending, _ = client.requests.wait(client.requests.request_savepoint(key), timeout_s=10)
    assert pending.savepoint_id is not None
    return pending.savepoint_id
