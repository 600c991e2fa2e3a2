"""Pages as a reader follows them: every command of two pages of ``docs/`` shows what the page says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from testbed import paths
from testbed.page_steps import Step, shows, steps
from testbed.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]

DOCS = paths.ROOT / "docs"
FOREIGN = ("AIRFLOW", "MAKE", "MFLAGS", "PYTEST", "FLINKSTYLE", "AWS_")
"""Variables of pytest, make and Airflow that a reader's terminal does not have."""


class Terminal:
    """A reader's terminal: a shell that keeps its variables from command to command."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self.shell = begin(["/bin/bash"], log)

    def run(self, command: str) -> str:
        """Return what the command prints; its failure is an error."""
        assert self.shell.stdin is not None
        before = len(self._log.read_text())
        self.shell.stdin.write(f"{{ {command}\n}} </dev/null; echo __ended__ $?\n".encode())
        self.shell.stdin.flush()
        wait_until(command, lambda: "__ended__ " in self._log.read_text()[before:])
        said, _, code = self._log.read_text()[before:].partition("__ended__ ")
        assert code.strip() == "0", f"{command}\n{said}"
        return said


def begin(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, so that a signal to its group is Ctrl-C."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=paths.ROOT,
            env={**env, "COLUMNS": "140"},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes], signal_number: int) -> None:
    """Send a signal to all that the terminal runs, and wait for its end."""
    if process.poll() is None:
        os.killpg(process.pid, signal_number)
    assert process.stdin is not None
    process.stdin.close()
    process.wait(PATIENCE_S)


def follow(terminal: Terminal, step: Step) -> None:
    """Run a step as a reader does, and compare what it shows."""
    if step.repeat:
        what = f"{step.command} shows {step.shown[0]}"
        wait_until(what, lambda: shows(terminal.run(step.command), step.shown[0]))
        return
    said = terminal.run(step.command)
    for shown in step.shown[:1]:
        assert shows(said, shown), f"{step.command} was expected to show\n{shown}\nit showed\n{said}"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "terminal.log")
    yield terminal
    end(terminal.shell, signal.SIGKILL)


def walk(page: str, log: Path, terminal: Terminal) -> list[Step]:
    """Follow a page, whose first command runs until Ctrl-C in a terminal of its own; return its steps."""
    found = steps((DOCS / page).read_text())
    first, *others = found
    demo = begin(first.command.split(), log)
    try:
        wait_until(first.command, lambda: shows(log.read_text(), first.shown[0]) or demo.poll() is not None)
        assert demo.poll() is None, log.read_text()
        for step in others:
            follow(terminal, step)
    finally:
        end(demo, signal.SIGINT)  # Ctrl-C, and its verdict
    return found


def test_every_command_of_the_tutorial_shows_what_the_page_says(tmp_path: Path, terminal: Terminal):
    log = tmp_path / "demo.log"
    last = walk("tutorial.md", log, terminal)[-1]
    verdict = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text())
    assert shows(verdict, last.shown[-1]), verdict


def test_new_user_adopts_a_job_and_gives_it_back_as_the_page_says(tmp_path: Path, terminal: Terminal):
    try:
        walk("adopt-a-job.md", tmp_path / "demo.log", terminal)
    finally:  # a walk that failed midway may have left a driver
        terminal.run("flinkstyle job stop --yes --no-savepoint || true")
