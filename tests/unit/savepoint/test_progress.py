from __future__ import annotations

import pytest

from airflow_flinkstyle.savepoint.progress import FileProgress, PaceMeter, TransferPace, progress_line

MIB = 1 << 20


def observed(*moments: tuple[float, int], total: int = 100) -> TransferPace:
    meter = PaceMeter()
    paces = [meter.observe(at_s, bytes_done=done, bytes_total=total) for at_s, done in moments]
    return paces[-1]


def test_first_moment_says_nothing():
    assert observed((5, 0)) == TransferPace(bytes_per_s=None, left_s=None)


def test_rate_and_rest_follow_from_two_moments():
    assert observed((0, 0), (2, 20)) == TransferPace(bytes_per_s=10, left_s=8)


def test_only_the_last_seconds_count():
    slow_then_fast = [(second, second) for second in range(30)] + [(30 + s, 30 + 5 * s) for s in range(12)]
    assert observed(*slow_then_fast).bytes_per_s == 5


def test_nothing_is_left_at_the_end_and_no_end_is_in_sight_while_nothing_moves():
    assert observed((0, 0), (1, 100)).left_s == 0
    assert observed((0, 7), (1, 7)) == TransferPace(bytes_per_s=0, left_s=None)
    assert observed((0, 100), (1, 100)).left_s == 0


@pytest.mark.parametrize("again", [(3.0, 10), (1.0, 60)])
def test_work_that_starts_over_and_a_clock_that_goes_back_begin_anew(again: tuple[float, int]):
    assert observed((0, 0), (2, 50), again) == TransferPace(bytes_per_s=None, left_s=None)


def test_line_tells_files_bytes_rate_and_time_left():
    amount = FileProgress(files_done=3, files_total=40, bytes_done=5 * MIB, bytes_total=20 * MIB)
    assert progress_line(amount, TransferPace(bytes_per_s=2.5 * MIB, left_s=6)) == (
        "3 of 40 files, 5.0 of 20.0 MiB, 2.5 MiB/s, 6 s left"
    )
    assert (
        progress_line(amount, TransferPace(bytes_per_s=None, left_s=None)) == "3 of 40 files, 5.0 of 20.0 MiB"
    )
