"""The ring of a job's pace: bounded, coarser with age, whatever is added in which order."""

from __future__ import annotations

from dataclasses import replace

from airflow_flinkstyle.protocol.history import RINGS, History, Sample, totals
from airflow_flinkstyle.protocol.query_records import Pace, SourcePace
from airflow_flinkstyle.types import BatchId

DAY_S = 86400
MOST_BYTES = 64 << 10
"""As the protocol promises it."""
NOON_S = 1_790_000_000 - 1_790_000_000 % DAY_S


def a_sample(at_s: int, *, rate: float = 10.0, batch_ms: int = 200, lag: int | None = 5) -> Sample:
    return Sample(
        at_s=at_s, input_rows_per_s=rate, processed_rows_per_s=rate, batch_ms=batch_ms, lag_records=lag
    )


def a_pace(at_ms: int, *, lag: int | None = 5) -> Pace:
    return Pace(
        batch_id=BatchId(1),
        begun_at_ms=at_ms,
        batch_ms=200,
        rows=10,
        input_rows_per_s=10.0,
        processed_rows_per_s=50.0,
        watermark_ms=None,
        state_rows=0,
        sources=(SourcePace(description="KafkaV2", lag_records=lag),),
    )


def test_a_point_is_the_mean_rate_the_longest_batch_and_the_highest_lag():
    parts = [a_sample(NOON_S, rate=10, batch_ms=900, lag=1), a_sample(NOON_S + 59, rate=20, lag=7)]
    (minute,) = History().with_samples(parts).samples()[60]
    assert minute == replace(a_sample(NOON_S, rate=15.0, batch_ms=900, lag=7), samples=2)


def test_samples_added_later_or_by_another_driver_join_the_same_points():
    early, late = [a_sample(NOON_S + at) for at in (0, 15)], [a_sample(NOON_S + at) for at in (30, 45)]
    at_once = History().with_samples([*early, *late])
    in_parts = History.from_bytes(History().with_samples(late).to_bytes()).with_samples(early)
    assert in_parts == at_once
    assert at_once.samples()[60][0].samples == 4


def test_history_of_years_stays_within_its_size_whatever_the_numbers():
    most = 10**30
    history = History()
    for day in range(400):
        at_s = NOON_S + day * DAY_S
        history = history.with_samples(
            a_sample(at_s + minute * 60, rate=float(most), batch_ms=most, lag=most) for minute in range(200)
        )
    data = history.to_bytes()
    assert len(data) <= MOST_BYTES
    assert History.from_bytes(data) == history
    assert [len(ring.points) for ring in history.rings] == [most for _, most in RINGS]


def test_the_newest_points_stay():
    history = History().with_samples(a_sample(NOON_S + minute * 60) for minute in range(500))
    assert history.samples()[60][-1].at_s == NOON_S + 499 * 60
    assert history.samples()[3600][0].at_s == NOON_S


def test_a_query_that_tells_of_no_batch_any_more_has_no_rates_and_its_last_lag():
    pace = a_pace(NOON_S * 1000)
    busy = totals([pace, None], now_ms=NOON_S * 1000 + 500)
    idle = totals([pace], now_ms=NOON_S * 1000 + 120_000)
    assert busy is not None
    assert idle is not None
    assert (busy.input_rows_per_s, busy.batch_ms, busy.lag_records) == (10.0, 200, 5)
    assert (idle.input_rows_per_s, idle.batch_ms, idle.lag_records) == (0.0, 0, 5)
    assert totals([None], now_ms=0) is None
