"""Run a command and write what it used to a file: ``python -I -S child.py RESULT -- command ...``.

A program of its own, because a process's peak memory starts with that of whoever forked it: behind this
small one the command is charged for itself only.
"""

from __future__ import annotations

import json
import os
import sys
import time

KIB = 1024


def main() -> int:
    """Return the command's exit code."""
    result, separator, *command = sys.argv[1:]
    if separator != "--" or not command:
        raise SystemExit(__doc__)
    began_s = time.monotonic()
    pid = os.spawnvp(os.P_NOWAIT, command[0], command)  # noqa: S606  (no shell is wanted)
    _, status, used = os.wait4(pid, 0)
    wall_s = time.monotonic() - began_s
    usage = {
        "wall_s": wall_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_rss_bytes": used.ru_maxrss * KIB,
    }
    with open(result, "w", encoding="utf-8") as file:  # noqa: PTH123  (as little imported as can be)
        json.dump(usage, file)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main())
