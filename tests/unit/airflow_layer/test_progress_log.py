from __future__ import annotations

import pytest

from airflow_flinkstyle.hooks.progress import ProgressLog
from airflow_flinkstyle.protocol.records import Progress

pytestmark = pytest.mark.airflow
MIB = 1 << 20


def at(second: float, mib: int) -> Progress:
    return Progress(
        request_id="rq-1",
        files_done=mib,
        files_total=40,
        bytes_done=mib * MIB,
        bytes_total=40 * MIB,
        at_ms=int(second * 1000),
    )


def test_log_says_how_far_a_savepoint_is_every_few_seconds_and_nothing_twice():
    lines: list[str] = []
    log = ProgressLog(lines.append)
    log.reported(None)
    for second in (100, 101, 101, 103, 106, 106):
        log.reported(at(second, second - 100))
    log.reported(at(50, 0))  # the next driver, by another clock
    assert lines == [
        "0 of 40 files, 0.0 of 40.0 MiB",
        "6 of 40 files, 6.0 of 40.0 MiB, 1.0 MiB/s, 34 s left",
        "0 of 40 files, 0.0 of 40.0 MiB",
    ]
