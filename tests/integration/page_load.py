"""How fast the page's API answers many viewers, and what that costs the store: ``make page-load``."""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import paths
from testbed.waiting import wait_until
from tests.integration.page_lab import Caller, an_airflow_of, connection
from tests.seeming_jobs import SeemingJob

if TYPE_CHECKING:
    from testbed.airflow import Airflow

API = "/flinkstyle/api"
EVERY_S = 10.0
"""How often a page that is open asks."""


def main() -> None:
    """Fill a root, start Airflow, let viewers look, and print what they saw."""
    parser = argparse.ArgumentParser()
    for name, default in (("jobs", 100), ("savepoints", 100), ("viewers", 200), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=paths.HOME / "tmp") as folder:
        fill(Path(folder), asked.jobs, asked.savepoints)
        root = connection(Path(folder) / "root")
        with an_airflow_of(Path(folder), {"flinkstyle_default": root}, "flinkstyle_default") as airflow:
            watch(airflow, asked.viewers, asked.seconds)


def fill(folder: Path, jobs: int, savepoints: int) -> None:
    """Leave so many jobs, each with so many savepoints."""
    for number in range(jobs):
        job = SeemingJob(folder, f"job-{number:03d}")
        for taken in range(savepoints):
            job.take(f"sp-{taken}", "4.2.0/stateless", minute=taken)
        job.seem_running(beats=False)
    print(f"{jobs} jobs with {savepoints} savepoints each", flush=True)


def watch(airflow: Airflow, viewers: int, seconds: int) -> None:
    """Let so many viewers look at the table and at one job, as often as the page does."""
    caller = Caller(airflow.base_url, "viewer")
    caller.until_parsed("take_savepoint")
    begun_s = time.monotonic()
    wait_until("the jobs were read", lambda: not _root(caller)["loading"])
    print(
        f"first reading {time.monotonic() - begun_s:.1f} s, {_root(caller)['requests']} requests", flush=True
    )
    before, begun_s = _root(caller)["requests"], time.monotonic()
    took_ms: list[float] = []
    wrong: list[int] = []
    end_s = begun_s + seconds
    lock = threading.Lock()

    def view(number: int) -> None:
        time.sleep(number * EVERY_S / viewers)
        while time.monotonic() < end_s:
            for path in ("/jobs", f"/roots/flinkstyle_default/jobs/job-{number % 100:03d}"):
                asked_s = time.monotonic()
                status, _ = caller.ask_once("GET", API + path)
                with lock:
                    took_ms.append((time.monotonic() - asked_s) * 1000)
                    if status != 200:
                        wrong.append(status)
            time.sleep(max(0.0, EVERY_S - (time.monotonic() - asked_s)))

    with ThreadPoolExecutor(viewers) as pool:
        list(pool.map(view, range(viewers)))
    minutes = (time.monotonic() - begun_s) / 60
    refused = dict(Counter(wrong)) or 0
    requests = _root(caller)["requests"] - before
    quantiles = statistics.quantiles(took_ms, n=100)
    print(
        f"{viewers} viewers, {len(took_ms)} answers, not 200: {refused}, median {quantiles[49]:.0f} ms, "
        f"p99 {quantiles[98]:.0f} ms; {requests / minutes:.0f} requests to the store a minute; "
        f"load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def _root(caller: Caller) -> dict[str, int]:
    (root,) = caller.ask("GET", f"{API}/jobs")[1]["roots"]
    return root


if __name__ == "__main__":
    main()
