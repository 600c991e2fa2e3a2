"""Every query of the dashboard is asked of a real Prometheus, which has a job's numbers from Airflow.

``make test-dashboard PROMETHEUS=/path/to/prometheus``: version 3, with the configuration of docker/.
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from testbed import paths
from testbed.ports import free_port
from testbed.process import Service
from tests.measured_job import a_job, measure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

UNKNOWN = {"savepoint_age_s", "savepoint_bytes", "watermark_age_s"}
"""The job has neither a savepoint nor a watermark."""


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that listens for OpenTelemetry."""
    program = shutil.which(os.environ.get("PROMETHEUS") or "prometheus")
    assert program is not None, "say where it is: PROMETHEUS=/path/to/prometheus"
    address = f"http://127.0.0.1:{free_port()}"
    service = Service(
        "Prometheus",
        [
            program,
            f"--config.file={paths.ROOT / 'docker' / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address.removeprefix('http://')}",
            "--web.enable-otlp-receiver",
        ],
        log_file=tmp_path / "prometheus.log",
        ready=lambda: answers(f"{address}/-/ready"),
    )
    service.start()
    yield address
    service.stop()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:
        return False


def found(address: str, query: str) -> list[dict[str, Any]]:
    """Return the labels of what a query finds."""
    asked = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"{address}/api/v1/query?{asked}", timeout=30) as answer:  # noqa: S310 - our own
        return [one["metric"] for one in json.load(answer)["data"]["result"]]


def test_each_query_finds_what_airflow_has_sent(prometheus: str, tmp_path: Path):
    a_job(tmp_path / "root")
    measure(
        tmp_path,
        OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=f"{prometheus}/api/v1/otlp/v1/metrics",
        OTEL_METRIC_EXPORT_INTERVAL="200",
    )
    dashboard = json.loads((paths.ROOT / "dashboards" / "grafana.json").read_text())
    prefix = next(one for one in dashboard["templating"]["list"] if one["name"] == "prefix")["query"]
    empty = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("${prefix}", prefix).replace("$streaming_job", "orders")
            labels = found(prometheus, query)
            assert all(one["streaming_job"] == "orders" for one in labels)
            if not labels:
                empty.add(panel["description"].removeprefix("flinkstyle."))
    assert empty == UNKNOWN
