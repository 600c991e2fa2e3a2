"""Airflow's side without a JVM and without Airflow's database: connections come from the environment."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from airflow_flinkstyle.hooks import deferral, shared_roots
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.jobs.migration.form_reader import LookUps
from airflow_flinkstyle.kafka.mirror.found import FoundMirror
from testbed.keys import SIGNING_KEY
from tests.unit.jobs.conftest import Mood, World
from tests.unit.jobs.drivers import hurry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.migration.approved import Migration

Operator = TypeVar("Operator")


class TaskInstance:
    """What operators use of Airflow's task instance."""

    def __init__(self, task_id: str = "task", run_id: str = "manual__2026-11-21T12:00:00+00:00") -> None:
        self.dag_id, self.task_id, self.run_id, self.map_index = "a_dag", task_id, run_id, -1
        self.xcoms: dict[str, Any] = {}

    def xcom_push(self, *, key: str, value: object) -> None:
        self.xcoms[key] = value

    def xcom_pull(self, *, key: str, **_: Any) -> Any:  # noqa: ANN401 - whatever was pushed
        return self.xcoms.get(key)


def a_context(task_id: str = "task", **kwargs: Any) -> dict[str, Any]:
    from airflow.sdk.execution_time.context import OutletEventAccessors

    return {"ti": TaskInstance(task_id, **kwargs), "outlet_events": OutletEventAccessors()}


def a_connection(conn_type: str, conn_id: str = "a_conn", extra: dict[str, Any] | None = None, **fields: Any):
    from airflow.sdk import Connection

    return Connection(conn_id=conn_id, conn_type=conn_type, extra=json.dumps(extra or {}), **fields)


@pytest.fixture(autouse=True)
def deferring_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks that wait defer without a look of their own, which would find what is done within moments."""
    monkeypatch.setattr(deferral, "AT_ONCE_S", 0.0)


@pytest.fixture(autouse=True)
def no_root_is_shared_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let triggers of one test know nothing of another's connections."""
    monkeypatch.setattr(shared_roots, "_roots", {})


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """Put connections where Airflow looks first; ``connections.set(id, type, extra)`` adds one."""

    def put(conn_id: str, conn_type: str, extra: dict[str, Any] | None = None, **fields: Any) -> None:
        value = json.dumps({"conn_type": conn_type, "extra": extra or {}, **fields})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value)

    root = tmp_path / "root"
    extra = {
        "savepoint_root": str(root),
        "lease_s": 0.3,
        "checkpoint_root": str(tmp_path / "checkpoints"),
        "producer_switch": "store",
    }
    put("flinkstyle_default", "flinkstyle", extra, password=SIGNING_KEY)
    put("spark_default", "spark", {"python": "/usr/bin/python3"}, host="local[1]")
    return SimpleNamespace(set=put, root=root, extra=extra)


class WorldHook(StreamingJobHook):
    """The hook, where both Kafka clusters are the world's logs in memory."""

    def __init__(self, world: World, store: object = None) -> None:
        super().__init__()
        self.world, self.seen = world, []
        self.deployment, self.store = world, store or world.store

    def look_ups(self) -> LookUps:
        """Look in the world's logs; a connection is called as the cluster that it leads to."""
        mirror = FoundMirror(source_aliases=("old",), target_aliases=("new",), replication_policy="identity")
        return LookUps(
            servers=lambda conn_id: self.kafka(conn_id).bootstrap_servers,
            cluster_id=lambda conn_id: conn_id,
            find_mirror=lambda *_, **__: mirror,
            allowed=self.defaults.kafka_connections or (),
        )

    def live_kafka(self, moving: Migration) -> Any:  # noqa: ANN401 - logs in memory
        """Note what a task works with."""
        self.seen.append(moving)
        return self.world.logs


def with_hook(operator: type[Operator], hook: StreamingJobHook, **arguments: Any) -> Operator:
    """Return an operator that works with this hook."""
    return type(operator.__name__, (operator,), {"hook": hook})(**arguments)


@pytest.fixture
def world(tmp_path: Path, connections: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A job whose drivers keep the protocol in threads, reached through our hook."""
    hurry(monkeypatch)
    world = World(tmp_path)
    there = {**connections.extra, "savepoint_root": "s3://savepoints/jobs"}  # links lead there, reads do not
    connections.set("flinkstyle_default", "flinkstyle", there, password=SIGNING_KEY)
    monkeypatch.setattr(StreamingJobHook, "deployment", world)
    monkeypatch.setattr(StreamingJobHook, "store", world.store)
    yield world
    world.kill_all()


@pytest.fixture
def mood() -> type[Mood]:
    return Mood
