"""kill -9 where it hurts: the driver during a savepoint, the window's process at every journal write."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.cutover import PHASES
from testbed import paths
from testbed.scenario import wait_until

if TYPE_CHECKING:
    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = pytest.mark.e2e
ATTEMPTS = 60


def test_kill_9_of_the_driver_during_a_savepoint_leaves_none_and_the_job_resumes(
    scenario: OrdersScenario, reader: StateReader
):
    scenario.start_producer()
    scenario.start()
    scenario.wait_commits(5)
    key = kill_during_savepoint(scenario)
    assert not scenario.client.repository.ids()

    savepoint_id = scenario.hot_savepoint(key=key)  # asks the dead driver's successor anew
    assert scenario.client.repository.ids() == (savepoint_id,)
    assert scenario.running().heartbeat.incarnation == 2
    scenario.wait_commits(2)
    judgement = scenario.judge(reader, scenario.old)
    assert judgement.right, judgement


def kill_during_savepoint(scenario: OrdersScenario) -> str:
    """Kill the driver when the first of the savepoint's files stands in the store; returns the request's key."""
    store, job = scenario.board.store, scenario.spec.name
    driver = scenario.native_ids(scenario.running().run.generation)[0]
    pending = scenario.client.request_savepoint("killed")
    deadline = time.monotonic() + 30
    while not any(store.list(f"{job}/blobs/")):
        assert time.monotonic() < deadline, "the take never began"
    scenario.client.deployment.end(driver)
    assert scenario.board.end(pending.generation, pending.request_id) is None
    return "killed"


def test_a_window_killed_at_every_journal_write_is_completed_by_its_retries(
    scenario: OrdersScenario, reader: StateReader
):
    """Killed behind each intent, before each result (the action is done), and behind each result."""
    scenario.start_producer()
    scenario.start()
    killed_at = scenario.folder / "killed-at"
    settings = {
        "folder": str(scenario.folder),
        "old": scenario.old.port,
        "new": scenario.new.port,
        "topic": scenario.topic,
        "killed_at": str(killed_at),
    }
    program = [sys.executable, str(Path(__file__).parent / "window.py"), json.dumps(settings)]
    for _ in range(ATTEMPTS):
        done = subprocess.run(program, cwd=paths.ROOT, capture_output=True, text=True, timeout=240)
        if done.returncode != -signal.SIGKILL:
            break
    assert done.returncode == 0, done.stderr
    phases = [phase for phase in PHASES if phase != "back"]
    expected = {f"{phase} {point}" for phase in phases for point in ("intent", "unrecorded", "result")}
    assert set(killed_at.read_text().splitlines()) == {"attempt", *expected}

    wait_until("orders go to new", lambda: scenario.producer_is_at() == "new", timeout_s=20)
    scenario.wait_commits(2)
    judgement = scenario.judge(reader, scenario.new)
    assert judgement.right, judgement
