"""Runs a command and sees to it that nothing of it stays behind, whatever happens to the caller.

Used as a program, with only the standard library::

    python guard.py [--owner-pipe] [--pid-fd N] -- command ...

- The command leads a process group in the guard's own session; SIGTERM and SIGINT are passed on.
- When the command ends, or the guard is told to stop, the rest of its session is ended: TERM, then
  KILL. A process that made a session of its own, such as a detached driver, is let live.
- When the caller dies, even by SIGKILL, every descendant is ended, detached ones too. The caller's
  death shows as the end of ``--owner-pipe`` (standard input) or as a changed parent.
- Without ``--owner-pipe`` (the command of a whole `make` target) every descendant is ended at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

GRACE_S = 10.0
"""How long a process may take to end after SIGTERM."""
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main() -> int:
    """Run the command, wait for its end or the caller's, clean up, return its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--owner-pipe", action="store_true")
    parser.add_argument("--pid-fd", type=int)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    owner = os.getppid()
    # Orphans of the command become the guard's children, so they can be found and reaped.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)  # until there is whom to pass them on to

    def in_child() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    child = subprocess.Popen(  # noqa: S603  # running it is the guard's purpose
        options.command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=in_child
    )
    for number in _PASSED_ON:
        signal.signal(number, lambda got, _frame: _signal_group(child.pid, got))
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if options.pid_fd is not None:
        os.write(options.pid_fd, f"{child.pid}\n".encode())
        os.close(options.pid_fd)
    owner_lives = _wait(child, owner, owner_pipe=options.owner_pipe)
    end_all(_session_members if options.owner_pipe and owner_lives else _descendants)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _wait(child: subprocess.Popen[bytes], owner: int, *, owner_pipe: bool) -> bool:
    """Return True once the command has ended, False if the caller died first."""
    pipe = [sys.stdin.fileno()] if owner_pipe else []
    exited = os.pidfd_open(child.pid)
    while child.poll() is None:
        ready, _, _ = select.select([exited, *pipe], [], [], 1.0)
        if os.getppid() != owner or any(fd in ready for fd in pipe):
            return child.poll() is not None
    return True


def end_all(find: Callable[[], set[int]]) -> None:
    """End the processes that ``find`` finds, again and again until it finds none."""
    deadline_s = time.monotonic() + GRACE_S
    number = signal.SIGTERM
    told: set[int] = set()
    while found := find():
        if time.monotonic() > deadline_s:
            number, told = signal.SIGKILL, set()
        for pid in found - told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        told |= found
        time.sleep(0.05)


def _session_members() -> set[int]:
    me = os.getpid()
    return {pid for pid, _, session in _processes() if session == me and pid != me}


def _descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent, _ in _processes():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    queue = [os.getpid()]
    while queue:
        for pid in children.get(queue.pop(), []):
            found.add(pid)
            queue.append(pid)
    return found


def _processes() -> list[tuple[int, int, int]]:
    """Return (pid, parent, session) of every live process, and reap the guard's dead children."""
    _reap()
    rows = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The command name stands in brackets and may hold anything, brackets too.
                state, parent, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if state != "Z":
                    rows.append((int(entry.name), int(parent), int(session)))
    return rows


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
