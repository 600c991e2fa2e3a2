from __future__ import annotations

import subprocess
import sys

from benchmarks.common import MIB
from benchmarks.memory import Peak, tree_of
from benchmarks.state_transform import OURS, SPARK, STEPS, Run, report

GRANDCHILD = f"import time; block = bytearray({100 * MIB}); print('there', flush=True); time.sleep(60)"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {GRANDCHILD!r}])"


def a_run(seconds: float, mib: int = 1000) -> Run:
    return Run(seconds=seconds, by_step=dict.fromkeys(STEPS, seconds / 6), peak_rss_bytes=mib * MIB)


def test_memory_is_that_of_all_processes_that_one_has_started():
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        with Peak(running.pid) as peak:
            assert running.stdout.readline() == "there\n"
            started = {one.pid for one in tree_of(running.pid)} - {running.pid}
            while peak.rss_bytes < 100 * MIB:
                assert running.poll() is None
        assert len(started) == 1
        for pid in (*started, running.pid):
            subprocess.run(["kill", str(pid)], check=True)
    assert 100 * MIB < peak.rss_bytes < 300 * MIB


def test_ways_are_compared_round_by_round_and_memory_with_a_quarter():
    found = {SPARK: [a_run(10), a_run(20)], OURS: [a_run(24), a_run(48)]}
    kept = report(1000, found, a_run(5, mib=900))
    time, memory = kept.targets
    assert (time.found.low, time.found.high, time.met, memory.met) == (2.4, 2.4, True, True)
    assert kept.tables[0].rows[1] == (
        "`transform_state`",
        "36.0 s (24.0-48.0)",
        "2.40x (2.40-2.40)",
        "1000 MiB (1000-1000)",
    )
    assert [row[1] for row in kept.tables[1].rows] == ["6.0 s (4.0-8.0)"] * len(STEPS)
    assert not report(1000, found, a_run(5, mib=500)).targets[1].met
