"""A machine whose clocks are set otherwise: the time of day, and how long it has been up."""

from __future__ import annotations

import os
import time

AHEAD_S = "LAB_CLOCK_AHEAD_S"
"""Environment variable: by how many seconds."""


def set_clocks() -> None:
    """Have this process's clocks show what its worker's do."""
    ahead_s = float(os.environ[AHEAD_S])
    time_ns, of_day, gettime = time.time_ns, time.time, time.clock_gettime
    time.time_ns = lambda: time_ns() + int(ahead_s * 1e9)
    time.time = lambda: of_day() + ahead_s
    time.clock_gettime = lambda clock: gettime(clock) + ahead_s
