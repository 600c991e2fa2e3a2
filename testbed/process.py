"""A component as a child process: started, waited for, stopped or killed, never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from testbed.waiting import scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_GUARD = Path(__file__).with_name("guard.py")
_LOG_TAIL_LINES = 25


class ServiceError(RuntimeError):
    """A component did not start or ended by itself; the end of its log is in the message."""


class Service:
    """One component's process, under a guard that ends it when this process dies.

    Attributes:
        name: For messages.
        log_file: Where its output goes; restarts append.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log_file: Path,
        ready: Callable[[], bool],
        ready_timeout_s: float = 240,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.log_file = log_file
        self._command = [str(part) for part in command]
        self._ready = ready
        self._ready_timeout_s = ready_timeout_s
        self._env = env
        self._cwd = cwd
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the component itself, not of its guard."""
        return self._pid

    @property
    def is_running(self) -> bool:
        """True from ``start`` until the process has ended, for whatever reason."""
        return self._guard is not None and self._guard.poll() is None

    def start(self) -> None:
        """Start the process and return once it is ready.

        Raises:
            ServiceError: If it ended or was not ready in time; it is stopped then.
        """
        if self.is_running:
            raise ServiceError(f"{self.name} runs already, as process {self.pid}. Stop it first.")
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.stop(grace_s=1)
            raise

    def launch(self) -> None:
        """Start the process without waiting until it is ready; ``wait_ready`` does that."""
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        told, tell = os.pipe()
        guard = (sys.executable, "-I", "-S", _GUARD, "--owner-pipe", "--pid-fd", str(tell), "--")
        try:
            with self.log_file.open("ab") as log:
                self._guard = subprocess.Popen(  # noqa: S603  # starting components is this module's purpose
                    [*guard, *self._command],
                    stdin=subprocess.PIPE,  # never written to: its end tells the guard that we are dead
                    stdout=log,
                    stderr=log,
                    env=dict(self._env) if self._env is not None else None,
                    cwd=self._cwd,
                    pass_fds=(tell,),
                    start_new_session=True,
                )
        finally:
            os.close(tell)
        with open(told, "rb") as answer:  # noqa: PTH123  # a descriptor, not a path
            self._pid = int(answer.read() or 0)

    def wait_ready(self) -> None:
        """Return once the component answers.

        Raises:
            ServiceError: If it ended or was not ready in time.
        """
        self.wait_ready_with(self._ready)

    def wait_ready_with(self, ready: Callable[[], bool]) -> None:
        """Wait for another sign than the usual one, with the same time-out and error."""
        begun_s = time.monotonic()
        while True:
            if not self.is_running:
                raise ServiceError(f"{self.name} was expected to become ready, it ended. {self._explain()}")
            if ready():
                return
            if time.monotonic() - begun_s > scaled(self._ready_timeout_s):
                raise ServiceError(
                    f"{self.name} was expected to be ready within {self._ready_timeout_s} s, it was not. "
                    f"{self._explain()}"
                )
            time.sleep(0.2)

    def stop(self, *, grace_s: float = 15) -> None:
        """End the process and its session: SIGTERM, and SIGKILL after ``grace_s``."""
        if self._guard is None:
            return
        if self.is_running:
            self._guard.terminate()
            try:
                self._guard.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._kill_group()
        self._collect()

    def kill(self) -> None:
        """End the process with SIGKILL, as a crash would."""
        if self.is_running:
            self._kill_group()
        self._collect()

    def freeze(self) -> None:
        """Stop the process's clock with SIGSTOP; ``thaw`` lets it go on."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def log_text(self) -> str:
        """Return everything the component has written so far."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _collect(self) -> None:
        """Wait for the guard, which has yet to end what the component left in its session."""
        if self._guard is not None:
            self._guard.wait(60)
            if self._guard.stdin is not None:
                self._guard.stdin.close()
            self._guard = None

    def _explain(self) -> str:
        tail = "\n".join(self.log_text().splitlines()[-_LOG_TAIL_LINES:])
        return f"It is stopped; its whole log is {self.log_file}. The end of the log:\n{tail}"
