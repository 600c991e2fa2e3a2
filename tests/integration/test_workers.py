"""One job asked from three workers with names, processes and clocks of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from tests.bad_minutes.job import TOPIC, base, read_ledger
from tests.bad_minutes.judge import counted, order_of_drivers
from tests.manifests import manifests_of
from tests.workers.clocks import AHEAD_S
from tests.workers.driver import FOLDER
from tests.workers.worker import JOB

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
_OWN_NAMESPACES = ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]


class Worker:
    """One worker's process; when it is killed, all of its processes are, as in a pod."""

    def __init__(self, folder: Path, name: str, ahead_s: float) -> None:
        env = {**os.environ, FOLDER: str(folder), AHEAD_S: str(ahead_s), "PYTHONPATH": str(ROOT)}
        program = f"hostname {name} && exec {sys.executable} -m tests.workers.worker"
        self.process = subprocess.Popen(
            [*_OWN_NAMESPACES, "sh", "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=ROOT,
        )  # fmt: skip

    def ask(self, task: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([task, arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:  # noqa: ANN401
        """Return what the task came to; None if the worker died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def do(self, task: str, **arguments: Any) -> Any:  # noqa: ANN401
        self.ask(task, **arguments)
        found = self.answer()
        assert found is not None
        assert not isinstance(found, dict) or "error" not in found, found
        return found

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class Site:
    """A folder that all workers see, and workers by name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        submit = folder / "spark" / "bin" / "spark-submit"
        submit.parent.mkdir(parents=True)
        submit.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tests.workers.driver "$@"\n'
        )
        submit.chmod(0o755)
        store = LocalStore(folder / "root")
        self.board, self.repository = JobBoard(store, JOB), SavepointRepository(store, JOB)
        self.workers: dict[str, Worker] = {}

    def worker(self, name: str, ahead_s: float) -> Worker:
        self.workers[name] = Worker(self.folder, name, ahead_s)
        return self.workers[name]

    def judge(self) -> None:
        """Every record was counted once, by one driver after another; every savepoint is whole."""
        ledger = read_ledger(self.folder / "ledger.jsonl")
        saved = {manifest.savepoint_id: manifest for manifest in manifests_of(self.repository)}
        for manifest in saved.values():
            verify_savepoint(manifest, self.repository, level="full")
        current = self.board.current()
        assert current is not None
        last = self.board.heartbeat(current.value.generation)
        assert last is not None
        position = saved[last.value.savepoint_id or ""].queries[0].kafka["0"]
        assert list(order_of_drivers(ledger)) == []
        assert list(counted(ledger, position.offsets[TOPIC, 0] - base(position.cluster_id))) == []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    probe = subprocess.run(
        [*_OWN_NAMESPACES, "hostname", "probe"], capture_output=True, text=True, check=False
    )
    if probe.returncode != 0:
        pytest.skip(f"workers with namespaces of their own need root and unshare: {probe.stderr}")
    made = Site(tmp_path)
    yield made
    for worker in made.workers.values():
        worker.kill()


def test_three_workers_with_clocks_ten_minutes_apart_operate_one_job(site: Site):
    one, two, three = site.worker("one", 0), site.worker("two", 600), site.worker("three", -600)

    first = one.do("start", key="start")
    assert two.do("start", key="start") == first == {"generation": 1, "incarnation": 1}  # a retry elsewhere
    early = three.do("take", key="early")

    one.kill()  # and the driver with it, as a pod that goes
    for worker in (two, three):
        worker.ask("running")
    again = {"generation": 1, "incarnation": 2}
    assert [two.answer(), three.answer()] == [again, again]
    assert len(site.board.incarnations(1)) == 2

    late = two.do("take", key="late")
    assert {worker.do("newest") for worker in (two, three)} == {late["savepoint_id"]}
    assert abs(late["taken_at_ms"] - early["taken_at_ms"]) > 300_000  # by clocks that differ

    four = site.worker("four", 600)
    four.ask("migrate", dies=True)
    assert four.answer() is None  # held, and the driver that waits died with it
    assert three.do("migrate", dies=False) == "moved"
    assert two.do("running")["generation"] == 2

    stopped = two.do("stop", key="end")
    assert stopped["savepoint_id"] == three.do("newest")
    site.judge()
