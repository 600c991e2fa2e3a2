from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from testbed.keeper import Keeper
from testbed.mirror import Mirror, MirrorSettings
from testbed.process import Service
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


class Sleeper(Service):
    """The smallest component."""

    def __init__(self, folder: Path) -> None:
        super().__init__("sleeper", ["sleep", "60"], log_file=folder / "log", ready=lambda: True)

    @property
    def has_died(self) -> bool:
        return not self.is_running


def test_component_that_dies_is_started_again_and_counted(tmp_path: Path):
    sleeper, restarts = Sleeper(tmp_path), []
    with Keeper(sleeper, lambda: restarts.append(sleeper.pid), look_s=0.05):
        for count in (1, 2):
            died = sleeper.pid
            os.kill(died, signal.SIGKILL)
            deadline_s = time.monotonic() + 20
            while sleeper.pid == died or not sleeper.is_running:
                assert time.monotonic() < deadline_s
                time.sleep(0.02)
            assert len(restarts) == count
    assert not sleeper.is_running


@pytest.mark.parametrize(
    ("line", "died"),
    [
        (
            "[task-thread-MirrorSourceConnector-0] ERROR org.apache.kafka.connect.runtime.WorkerTask - "
            "ExactlyOnceWorkerSourceTask{id=MirrorSourceConnector-0} Task threw an uncaught and "
            "unrecoverable exception. Task is being killed and will not recover until manually restarted",
            True,
        ),
        ("[task-thread-MirrorSourceConnector-0] WARN Retrying", False),
    ],
)
def test_mirror_of_which_a_task_gave_up_has_died_though_its_process_runs(
    tmp_path: Path, line: str, died: bool
):
    mirror = Mirror(tmp_path, MirrorSettings(source_bootstrap="a:1", target_bootstrap="b:1", topics="t"))
    script = f'echo "{line}"; exec sleep 60'
    mirror.service = Service(
        "MirrorMaker 2",
        ["sh", "-c", script],
        log_file=tmp_path / "mirror.log",
        ready=lambda: bool(mirror.service.log_text()),
    )
    mirror.start()
    assert mirror.has_died == died
    mirror.stop()
    assert not mirror.has_died, "it was asked to stop"


def test_mirror_inside_with_is_started_again_when_it_dies(tmp_path: Path):
    mirror = Mirror(tmp_path, MirrorSettings(source_bootstrap="a:1", target_bootstrap="b:1", topics="t"))
    mirror.service = Service("mirror", ["sleep", "60"], log_file=tmp_path / "mirror.log", ready=lambda: True)
    with mirror:
        died = mirror.service.pid
        os.kill(died, signal.SIGKILL)
        wait_until("another process", lambda: mirror.service.is_running and mirror.service.pid != died)
        mirror.stop()
        time.sleep(2.5)  # longer than a look of its keeper
        assert not mirror.service.is_running
