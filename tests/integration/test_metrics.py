"""Airflow's real OpenTelemetry client sends a job's numbers from a trigger to a real collector's address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.query_records import Pace, SourcePace
from airflow_flinkstyle.protocol.records import Claim, Current, Heartbeat, QueryStatus
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from testbed.keys import SIGNING_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.airflow]
PROGRAM = """
import asyncio
from airflow_flinkstyle.triggers.metrics import MetricsTrigger

async def measure():
    trigger = MetricsTrigger(flinkstyle_conn_id="flinkstyle_default", every_s=0.2, for_s=1.0)
    return [event.payload async for event in trigger.run()]

print(asyncio.run(measure()))
"""
"""As Airflow's process for triggers runs it; its metrics are flushed when it ends."""


@pytest.fixture
def collector() -> Iterator[tuple[int, list[ExportMetricsServiceRequest]]]:
    """Where OpenTelemetry's HTTP exporter sends to; every request is decoded and kept."""
    received: list[ExportMetricsServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, received
    server.shutdown()
    server.server_close()
    thread.join()


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


def test_numbers_of_a_job_arrive_with_their_tags(
    tmp_path: Path, collector: tuple[int, list[ExportMetricsServiceRequest]]
):
    port, received = collector
    a_job(tmp_path / "root")
    measure(
        tmp_path,
        AIRFLOW__METRICS__OTEL_HOST="127.0.0.1",
        AIRFLOW__METRICS__OTEL_PORT=str(port),
        AIRFLOW__METRICS__OTEL_INTERVAL_MILLISECONDS="200",
    )
    points = {
        (metric.name, *sorted(tag.value.string_value for tag in point.attributes)): point.as_double
        or point.as_int
        for request in received
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.gauge.data_points
    }
    assert points["airflow.flinkstyle.lag_records", "orders", "totals"] == 12
    assert points["airflow.flinkstyle.input_rows_per_s", "orders", "totals"] == 20.5
    assert points["airflow.flinkstyle.up", "orders"] == 0
