from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.protocol.records import Claim, Heartbeat
from airflow_flinkstyle.types import Generation, Incarnation
from tests.unit.clocks import SleptClock as Clock


@pytest.fixture
def clock() -> Clock:
    """Time that passes only by sleeping."""
    return Clock()


def a_claim(**changes: Any) -> Claim:
    values: dict[str, Any] = {
        "claim_key": "k",
        "follows": None,
        "checkpoint_location": "/checkpoints/2",
        "prepare_savepoint_id": None,
        "overrides": (),
        "lease_s": 6.0,
        "launch": {},
        "claimed_at_ms": 0,
    }
    return Claim(**{**values, **changes})


def a_heartbeat(**changes: Any) -> Heartbeat:
    values: dict[str, Any] = {
        "incarnation": Incarnation(1),
        "state": "running",
        "beat": 1,
        "written_at_ms": 0,
        "spark_version": "4.2.0",
        "application_id": "app",
        "queries": {},
    }
    return Heartbeat(**{**values, **changes})


G1, G2, G3 = Generation(1), Generation(2), Generation(3)
I1, I2 = Incarnation(1), Incarnation(2)
