"""Airflow's real OpenTelemetry client sends a job's numbers from a trigger to a real collector's address."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.measured_job import a_job, measure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.airflow]


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
    assert points["airflow.flinkstyle.rows", "orders", "totals"] == 300
    assert points["airflow.flinkstyle.input_rows_per_s", "orders", "totals"] == 0, "it has stopped"
    assert points["airflow.flinkstyle.up", "orders"] == 0
    assert points["airflow.flinkstyle.stopped", "orders"] == 1
