"""What a store that hangs does to an Airflow: ``make hung-store``.

Five savepoint roots on an S3 that takes connections and never answers. Browsers look at the Savepoints page,
tasks wait in the triggerer; beside them Airflow's own routes are asked, and a trigger of another provider
uses a thread each half second. Printed with the same figures before anybody looks or waits.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed import paths
from testbed.keys import SIGNING_KEY
from testbed.waiting import wait_until
from tests.integration.page_lab import Caller, an_airflow_of, connection
from tests.seeming_jobs import SeemingJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.airflow import Airflow

ROOTS = 5
EVERY_S = 10.0
"""How often a page that is open asks; each second while a store that has not failed is being read."""
OTHER_ROUTES = ("/api/v2/monitor/health", "/api/v2/dags?limit=5", "/api/v2/version")
WAITS = """
from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import StartTriggerArgs


class Waits(BaseOperator):
    start_from_trigger = True

    def __init__(self, *, root, **kwargs):
        super().__init__(**kwargs)
        self.root = root
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls="airflow_flinkstyle.triggers.savepoint.FreshSavepointTrigger",
            trigger_kwargs={
                "job": "orders", "flinkstyle_conn_id": root, "poll_interval_s": 10.0, "max_age_s": 60.0
            },
            next_method="execute_complete",
            next_kwargs=None,
            timeout=None,
        )

    def execute(self, context):
        raise RuntimeError("it was to begin in the triggerer")


with DAG("waits", schedule=None, max_active_runs=10000) as dag:
    for number in range(ROOTS):
        Waits(task_id=f"waits-{number}", root=f"hung_{number}")


class Idle(BaseOperator):
    start_from_trigger = True
    start_trigger_args = StartTriggerArgs(
        trigger_cls="other_provider.IdleTrigger", trigger_kwargs={}, next_method="execute_complete",
        next_kwargs=None, timeout=None,
    )

    def execute(self, context):
        raise RuntimeError("it was to begin in the triggerer")


with DAG("idle", schedule=None, max_active_runs=10000) as idle:
    for number in range(ROOTS):
        Idle(task_id=f"idle-{number}")
"""
OTHER_PROVIDER = '''
import asyncio
import time

from airflow.triggers.base import BaseTrigger


class IdleTrigger(BaseTrigger):
    """Looks at nothing every ten seconds."""

    def serialize(self):
        return "other_provider.IdleTrigger", {}

    async def run(self):
        while True:
            await asyncio.sleep(10)
        yield


class OtherTrigger(BaseTrigger):
    """Uses a thread of those that all triggers share, and notes how late it was."""

    def __init__(self, place):
        super().__init__()
        self.place = place

    def serialize(self):
        return "other_provider.OtherTrigger", {"place": self.place}

    async def run(self):
        while True:
            due_s = time.monotonic() + 0.5
            await asyncio.sleep(0.5)
            await asyncio.to_thread(lambda: None)
            with open(self.place, "a") as file:
                file.write(f"{(time.monotonic() - due_s) * 1000:.1f}\\n")
        yield
'''
OTHER_DAG = """
from airflow.sdk import DAG, BaseOperator
from airflow.triggers.base import StartTriggerArgs


class Other(BaseOperator):
    start_from_trigger = True
    start_trigger_args = StartTriggerArgs(
        trigger_cls="other_provider.OtherTrigger", trigger_kwargs={"place": "PLACE"},
        next_method="execute_complete", next_kwargs=None, timeout=None,
    )

    def execute(self, context):
        raise RuntimeError("it was to begin in the triggerer")


with DAG("other", schedule=None) as dag:
    Other(task_id="other")
"""


def main() -> None:
    """Measure beside a store that hangs, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("browsers", 60), ("tasks", 1000), ("seconds", 60)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--part", choices=("page", "triggers", "idle"), action="append")
    asked = parser.parse_args()
    parts = asked.part or ["page", "triggers"]
    with tempfile.TemporaryDirectory(dir=paths.HOME / "tmp") as place, a_store_that_hangs() as url:
        folder = Path(place)
        for number in range(3):
            SeemingJob(folder, f"job-{number}").seem_running(beats=False)
        with an_airflow(folder, url, asked.tasks) as airflow:
            if "page" in parts:
                look(airflow, asked.browsers, asked.seconds)
            if "triggers" in parts:
                wait(airflow, folder, "waits", asked.tasks, asked.seconds)
            if "idle" in parts:
                wait(airflow, folder, "idle", asked.tasks, asked.seconds)


@contextmanager
def a_store_that_hangs() -> Iterator[str]:
    """Yield the address of a server that takes every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for one in taken:
            one.close()


def an_airflow(folder: Path, url: str, tasks: int) -> Airflow:
    """Return an Airflow with one root that answers and five that hang."""
    dags, plugins = folder / "dags", folder / "plugins"
    dags.mkdir()
    plugins.mkdir()
    (plugins / "other_provider.py").write_text(OTHER_PROVIDER)
    (dags / "waits.py").write_text(WAITS.replace("ROOTS", str(ROOTS)))
    (dags / "other.py").write_text(OTHER_DAG.replace("PLACE", str(folder / "late_ms")))
    aws = {"endpoint_url": url, "region_name": "us-east-1"}
    hung = {"savepoint_root": "s3://bucket/root", "aws_conn_id": "hangs"}
    of_store = {"conn_type": "aws", "login": "a", "password": "b", "extra": aws}
    of_root = {"conn_type": "flinkstyle", "password": SIGNING_KEY, "extra": hung}
    connections = {
        "flinkstyle_default": connection(folder / "root"),
        "hangs": json.dumps(of_store),
        **{f"hung_{number}": json.dumps(of_root) for number in range(ROOTS)},
    }
    page = ", ".join(f"{conn_id}:other" for conn_id in ("flinkstyle_default", *sorted(connections)[2:]))
    env = {
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "AIRFLOW__TRIGGERER__CAPACITY": str(tasks + 10),
        "AIRFLOW__CORE__MAX_ACTIVE_TASKS_PER_DAG": str(tasks + 10),
        "AIRFLOW__CORE__MAX_ACTIVE_RUNS_PER_DAG": str(tasks + 10),
        "AIRFLOW__SCHEDULER__MAX_DAGRUNS_TO_CREATE_PER_LOOP": "100",
        "AIRFLOW__SCHEDULER__MAX_DAGRUNS_PER_LOOP_TO_SCHEDULE": "100",
    }
    return an_airflow_of(folder, connections, page, dags=dags, env=env)


# --- the API server -----------------------------------------------------------------------------


def look(airflow: Airflow, browsers: int, seconds: int) -> None:
    """Ask Airflow's own routes alone, then while so many browsers show the page."""
    caller = Caller(airflow.base_url, "admin")
    caller.until_parsed("other")
    for route in OTHER_ROUTES:
        caller.ask("GET", route)
    tell("Airflow's own routes, nobody looks", ask_routes(caller, seconds / 3))
    end_s, pages = time.monotonic() + seconds + 10, []
    with ThreadPoolExecutor(browsers) as pool:
        looking = [pool.submit(browse, caller, number, browsers, end_s) for number in range(browsers)]
        time.sleep(5)  # all have begun, and the first readings hang
        tell(f"Airflow's own routes, {browsers} browsers", ask_routes(caller, seconds))
        for one in looking:
            pages += one.result()
    of_good = [ms for conn_id, ms, status in pages if conn_id == "flinkstyle_default"]
    tell("the page's answers of the root that answers", of_good)
    tell("the page's answers of those that hang", [ms for c, ms, _ in pages if c.startswith("hung")])
    tell("the page's table", [ms for conn_id, ms, _ in pages if conn_id == ""])


def browse(caller: Caller, number: int, browsers: int, end_s: float) -> list[tuple[str, float, int]]:
    """Show the table and one job until the end; returns root, milliseconds and status of each answer."""
    found = []
    roots = ("flinkstyle_default", *(f"hung_{root}" for root in range(ROOTS)))
    conn_id = roots[number % len(roots)]
    time.sleep(number / browsers)
    while time.monotonic() < end_s:
        begun_s = time.monotonic()
        for of, path in (("", "/jobs"), (conn_id, f"/roots/{conn_id}/jobs/job-0")):
            asked_s = time.monotonic()
            try:
                status, body = caller.ask_once("GET", "/flinkstyle/api" + path)
            except OSError:
                status, body = 0, None
            found.append((of, (time.monotonic() - asked_s) * 1000, status))
            if not of and body:
                reads = any(one["loading"] or (one["reading"] and not one["error"]) for one in body["roots"])
        time.sleep(max(0.0, begun_s + (1.0 if reads else EVERY_S) - time.monotonic()))
    return found


def ask_routes(caller: Caller, seconds: float) -> list[float]:
    """Return how long each answer of Airflow's own routes took, in milliseconds, one after the other."""
    took, end_s = [], time.monotonic() + seconds
    while time.monotonic() < end_s:
        for route in OTHER_ROUTES:
            begun_s = time.monotonic()
            try:
                caller.ask("GET", route)
            except OSError as error:
                print(f"{route}: {error}")
            took.append((time.monotonic() - begun_s) * 1000)
        time.sleep(0.1)
    return took


# --- the triggerer ------------------------------------------------------------------------------


def wait(airflow: Airflow, folder: Path, dag_id: str, tasks: int, seconds: int) -> None:
    """Let a trigger of another provider work alone, then beside so many that wait for the roots, or idle."""
    caller = Caller(airflow.base_url, "admin")
    start(caller, "other")
    late = folder / "late_ms"
    wait_until("the other trigger works", late.exists)
    tell("the other trigger, alone", lateness(late, seconds / 3))
    for _ in range(tasks // ROOTS):
        start(caller, dag_id)
    wait_until("all tasks wait", lambda: deferred(caller, dag_id) >= tasks, timeout_s=600)
    for _ in range(6):
        tell("while the triggerer takes them up", lateness(late, 10))
    tell(f"the other trigger, beside {tasks} tasks ({dag_id})", lateness(late, seconds))


def start(caller: Caller, dag_id: str) -> None:
    """Unpause a DAG and trigger it."""
    caller.until_parsed(dag_id)
    caller.ask("PATCH", f"/api/v2/dags/{dag_id}", body={"is_paused": False})
    status, said = caller.ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", body={"logical_date": None})
    assert status == 200, said


def deferred(caller: Caller, dag_id: str) -> int:
    """Return how many tasks wait in the triggerer."""
    path = f"/api/v2/dags/{dag_id}/dagRuns/~/taskInstances?state=deferred&limit=1"
    return int(caller.ask("GET", path)[1]["total_entries"])


def lateness(file: Path, seconds: float) -> list[float]:
    """Return how late each use of a thread was, in milliseconds, from now on; one that still waits, too."""
    before, end_s = len(file.read_text().splitlines()), time.monotonic() + seconds
    seen, seen_s = before, time.monotonic()
    while time.monotonic() < end_s:
        time.sleep(0.2)
        if (now := len(file.read_text().splitlines())) != seen:
            seen, seen_s = now, time.monotonic()
    found = [float(line) for line in file.read_text().splitlines()[before:]]
    silent_ms = (time.monotonic() - seen_s - 0.5) * 1000
    return [*found, silent_ms] if silent_ms > 1000 else found


def tell(what: str, found_ms: list[float]) -> None:
    """Print the middle and the end of what was measured."""
    if len(found_ms) < 2:
        print(f"{what}: {found_ms}", flush=True)
        return
    quantiles = statistics.quantiles(found_ms, n=100)
    print(
        f"{what}: {len(found_ms)} times, median {quantiles[49]:.0f} ms, 95 % within {quantiles[94]:.0f} ms, "
        f"worst {max(found_ms):.0f} ms (load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)",
        flush=True,
    )


if __name__ == "__main__":
    main()
