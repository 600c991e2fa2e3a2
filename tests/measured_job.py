"""A job's records, and Airflow's trigger of metrics run on them in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import Pace, QueryStatus, SourcePace
from airflow_flinkstyle.protocol.records import Claim, Current, Heartbeat, TakeoverOrder
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from testbed.keys import SIGNING_KEY

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio
from airflow_flinkstyle.triggers.metrics import MetricsTrigger

async def measure():
    trigger = MetricsTrigger(flinkstyle_conn_id="flinkstyle_default", every_s=0.2, for_s=1.0)
    return [event.payload async for event in trigger.run()]

print(asyncio.run(measure()))
"""
"""As Airflow's process for triggers runs it; its metrics are flushed when it ends."""


def a_job(root: Path) -> None:
    """Write the records of a job that has run."""
    board, first = JobBoard(LocalStore(root), "orders"), Generation(1)
    claim = Claim(
        claim_key="test",
        follows=None,
        checkpoint_location=str(root / "checkpoints"),
        prepare_savepoint_id=None,
        overrides=(),
        lease_s=30,
        launch={},
        claimed_at_ms=1,
    )
    board.create_claim(first, claim)
    order = TakeoverOrder(savepoint_id=None, closed_at=None, expected={}, parent=BEGINNING)
    board.create_takeover_order(first, order)
    pace = Pace(
        batch_id=BatchId(4),
        begun_at_ms=1,
        batch_ms=1500,
        rows=300,
        input_rows_per_s=20.5,
        processed_rows_per_s=200.0,
        watermark_ms=None,
        state_rows=77,
        sources=(SourcePace(description="KafkaV2", lag_records=12),),
    )
    query = QueryStatus(query_id="q", batch_id=BatchId(4), batch_committed_at_ms=1, sources={}, pace=pace)
    heartbeat = Heartbeat(
        incarnation=Incarnation(1),
        state="closed",
        beat=1,
        written_at_ms=1,
        spark_version="4.2.0",
        application_id="app",
        queries={"totals": query},
    )
    board.beat(first, heartbeat, seen=None)
    board.take_current(Current(generation=first, incarnation=Incarnation(1)), seen=None)


def measure(folder: Path, **settings: str) -> None:
    """Run a trigger for a second on the job below ``folder``, in an Airflow whose metrics are set so."""
    connection = {
        "conn_type": "flinkstyle",
        "password": SIGNING_KEY,
        "extra": {"savepoint_root": str(folder / "root")},
    }
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW_CONN_FLINKSTYLE_DEFAULT": json.dumps(connection),
        "AIRFLOW__METRICS__OTEL_ON": "True",
        **settings,
    }
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert "'rounds': " in run.stdout, run.stdout + run.stderr
