"""kill -9 where it hurts: the driver during a savepoint, the window's process at every journal write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES
from testbed import paths
from testbed.waiting import PATIENCE_S, wait_until
from tests.nightly import matrix_but

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.request_slot import PendingRequest
    from testbed.judge import StateReader
    from testbed.scenario import OrdersScenario

pytestmark = pytest.mark.e2e


@pytest.mark.nightly
def test_kill_9_of_the_driver_during_a_savepoint_leaves_none_and_the_job_resumes(
    scenario: OrdersScenario, reader: StateReader
):
    scenario.start_producer()
    scenario.start()
    scenario.wait_commits(5)
    pending = kill_during_savepoint(scenario)
    assert scenario.client.view.repository.find(pending.savepoint_id) is None
    assert scenario.board.end(pending.generation, pending.request_id) is None

    savepoint_id = scenario.hot_savepoint(key=pending.request_key)  # asks the dead driver's successor anew
    assert savepoint_id != pending.savepoint_id
    assert scenario.client.view.repository.find(pending.savepoint_id) is None
    assert scenario.running().heartbeat.incarnation == 2
    scenario.wait_commits(2)
    judgement = scenario.judge(reader, scenario.old)
    assert judgement.right, judgement


def kill_during_savepoint(scenario: OrdersScenario) -> PendingRequest:
    """Let the driver run in slices; kill it once there are files of a savepoint that is not complete."""
    (driver,) = {
        int(native_id["pid"]) for native_id in scenario.native_ids(scenario.running().run.generation)
    }
    for attempt in range(20):
        files = blobs(scenario)
        pending = scenario.client.requests.request_savepoint(f"killed-{attempt}")
        while True:
            os.killpg(driver, signal.SIGSTOP)
            time.sleep(0.02)
            if scenario.client.view.repository.find(pending.savepoint_id) is not None:
                break  # it was too fast for us
            if blobs(scenario) > files:
                os.killpg(driver, signal.SIGKILL)
                return pending
            os.killpg(driver, signal.SIGCONT)
            time.sleep(0.005)
        os.killpg(driver, signal.SIGCONT)
        scenario.client.requests.wait(pending, timeout_s=PATIENCE_S)
    raise AssertionError("every savepoint was complete before the driver could be killed")


def blobs(scenario: OrdersScenario) -> int:
    return sum(1 for _ in scenario.board.store.list(f"{scenario.spec.name}/blobs/"))


@pytest.mark.nightly
@pytest.mark.parametrize("kind", matrix_but("upgrade".__eq__, ["migration", "upgrade"]))
def test_a_cutover_killed_at_every_journal_write_is_completed_by_its_retries(
    scenario: OrdersScenario, reader: StateReader, kind: str
):
    """Killed behind each intent, before each result (the action is done), and behind each result."""
    scenario.start_producer()
    scenario.start()
    killed_at = scenario.folder / "killed-at"
    settings = {
        "kind": kind,
        "folder": str(scenario.folder),
        "old": scenario.old.port,
        "new": scenario.new.port,
        "topic": scenario.topic,
        "killed_at": str(killed_at),
    }
    program = [sys.executable, str(Path(__file__).parent / "window.py"), json.dumps(settings)]
    done = subprocess.run(program, cwd=paths.ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    phases = {*(PHASES if kind == "migration" else UPGRADE_PHASES)} - {"rollback", "observe"}
    expected = {f"{phase} {point}" for phase in phases for point in ("intent", "unrecorded", "result")}
    assert set(killed_at.read_text().splitlines()) == {"attempt", *expected}

    if kind == "migration":
        wait_until("orders go to new", lambda: scenario.producer_is_at() == "new")
    scenario.wait_commits(2)
    judgement = scenario.judge(reader, scenario.new if kind == "migration" else scenario.old)
    assert judgement.right, judgement
