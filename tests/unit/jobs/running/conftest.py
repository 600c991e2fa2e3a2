from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from tests.unit.jobs.conftest import World

LEASE_S = 600.0
"""Whoever waits for it is too late for any test."""


@pytest.fixture
def client(world: World) -> JobClient:
    """A job that has counted some records, with that lease."""
    client = world.client()
    world.logs.produce(10)
    client.starts.start(replace(world.spec(), lease_s=LEASE_S), world.target(), claim_key="start")
    client.drivers.wait_running(1, timeout_s=20)
    world.until(lambda: client.view.status().heartbeat.batches())
    return client
