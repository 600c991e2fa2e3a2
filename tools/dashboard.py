"""``python -m tools.dashboard``: write dashboards/grafana.json from the names of our metrics.

For Prometheus, with the names that a collector makes of what Airflow sends: ``airflow_flinkstyle_up``.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.metrics import PREFIX
from tools.common import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = ROOT / "dashboards" / "grafana.json"
OF_A_JOB: Mapping[str, str] = {
    "up": "1 while a driver runs the job, else 0",
    "stopped": "1 while it is meant to be down: it was stopped, or never started; else 0",
    "generation": "number of the run",
    "savepoint_age_s": "seconds since the newest savepoint was taken",
    "savepoint_bytes": "size of the newest savepoint",
}
"""Name -> meaning; tagged with ``streaming_job``."""
OF_A_QUERY: Mapping[str, str] = {
    "batch": "newest committed batch",
    "batch_age_s": "seconds since that was committed",
    "batch_ms": "how long the newest batch took",
    "rows": "input rows of the newest batch",
    "input_rows_per_s": "rows that arrive per second; 0 while there is no new batch",
    "processed_rows_per_s": "rows per second of the newest batch; 0 while there is no new one",
    "lag_records": "records behind the ends of its Kafka sources",
    "watermark_age_s": "seconds between the watermark and now",
    "state_rows": "rows in all stores of state",
}
"""Name -> meaning; tagged with ``streaming_job`` and ``query``."""
UNITS = {
    "_s": "s",
    "_ms": "ms",
    "_bytes": "bytes",
    "_per_s": "rowsps",
}
"""End of a metric's name -> Grafana's unit; the longest end that fits counts."""
WIDTH, HEIGHT, PER_ROW = 8, 7, 3
FIRST = "up"
"""Its panel is a line of states over the whole width."""


def dashboard() -> dict[str, Any]:
    """Return the dashboard: which jobs are up, then a panel for each other metric."""
    others = [name for name in (*OF_A_JOB, *OF_A_QUERY) if name != FIRST]
    panels = [_states()]
    for number, name in enumerate(others):
        row, column = divmod(number, PER_ROW)
        panels.append(_plot(number + 2, name, x=column * WIDTH, y=HEIGHT + row * HEIGHT))
    return {
        "title": "Streaming jobs (flinkstyle)",
        "uid": "flinkstyle-jobs",
        "tags": ["airflow", "flinkstyle", "spark"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source(), _variable("prefix"), _jobs()]},
        "panels": panels,
    }


def unit_of(name: str) -> str:
    """Return Grafana's unit of a metric."""
    ends = sorted((end for end in UNITS if name.endswith(end)), key=len)
    return UNITS[ends[-1]] if ends else "short"


def _source() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _variable(name: str) -> dict[str, Any]:
    """Return the field for what Airflow's ``otel_prefix`` or ``statsd_prefix`` makes of the names."""
    value = f"airflow_{PREFIX}"
    chosen = {"text": value, "value": value}
    return {"name": name, "label": "Prefix", "type": "textbox", "query": value, "current": chosen}


def _jobs() -> dict[str, Any]:
    return {
        "name": "streaming_job",
        "label": "Job",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": f'label_values({{__name__="${{prefix}}_{FIRST}"}}, streaming_job)',
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
    }


def _target(name: str) -> dict[str, Any]:
    legend = "{{streaming_job}}" if name in OF_A_JOB else "{{streaming_job}} {{query}}"
    selector = f'{{__name__="${{prefix}}_{name}", streaming_job=~"$streaming_job"}}'
    return {"refId": "A", "expr": selector, "legendFormat": legend}


def _panel(number: int, name: str, kind: str, x: int, y: int, width: int) -> dict[str, Any]:
    meaning = {**OF_A_JOB, **OF_A_QUERY}[name]
    return {
        "id": number,
        "type": kind,
        "title": meaning[0].upper() + meaning[1:],
        "description": f"{PREFIX}.{name}",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "gridPos": {"x": x, "y": y, "w": width, "h": HEIGHT},
        "targets": [_target(name)],
    }


def _states() -> dict[str, Any]:
    words = {"0": {"text": "down", "color": "red"}, "1": {"text": "up", "color": "green"}}
    return {
        **_panel(1, FIRST, "state-timeline", 0, 0, WIDTH * PER_ROW),
        "fieldConfig": {"defaults": {"mappings": [{"type": "value", "options": words}]}, "overrides": []},
    }


def _plot(number: int, name: str, *, x: int, y: int) -> dict[str, Any]:
    return {
        **_panel(number, name, "timeseries", x, y, WIDTH),
        "fieldConfig": {"defaults": {"unit": unit_of(name), "min": 0}, "overrides": []},
    }


def text() -> str:
    """Return the file's content."""
    return json.dumps(dashboard(), indent=2) + "\n"


def main() -> int:
    """Write it."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
