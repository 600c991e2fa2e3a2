"""Each reason for which a version does not keep up, and what cannot be judged."""

from __future__ import annotations

from dataclasses import replace

from airflow_flinkstyle.jobs.upgrade.health import Bounds, Rates, behind, rate_before, slower, unknown
from airflow_flinkstyle.protocol.history import History, Sample
from tests.unit.jobs.upgrade.paces import KAFKA, a_beat, a_pace


def test_lag_is_known_from_progress_where_no_offsets_are_committed():
    bounds = Bounds(max_lag=10)
    found = list(behind(a_beat(a_pace(lag=5)), a_beat(a_pace(lag=11)), bounds))
    assert found == [
        f"Query orders is 11 records behind in source 0 ({KAFKA}), at most 10 were allowed.",
    ]
    assert list(behind(a_beat(a_pace(lag=12)), a_beat(a_pace(lag=11)), bounds)) == [], "it catches up"
    assert list(behind(a_beat(a_pace(lag=0)), a_beat(a_pace(lag=10)), bounds)) == []
    assert list(behind(a_beat(a_pace(lag=0)), a_beat(a_pace(lag=99)), Bounds())) == []


def test_lag_is_told_by_topic_where_offsets_are_committed():
    now = a_beat(a_pace(lag=99), topics={"orders": 11})
    assert list(behind(a_beat(topics={"orders": 0}), now, Bounds(max_lag=10))) == [
        "Query orders is 11 records behind in orders, at most 10 were allowed."
    ]


def test_job_that_reads_less_and_falls_behind_is_slower():
    before, bounds = 500.0, Bounds(min_rate=0.5)
    first, now = a_beat(a_pace(lag=10)), a_beat(a_pace(lag=2000), at_ms=10_000)
    assert list(slower(first, now, rate=120.0, before=before, bounds=bounds)) == [
        "It reads 120 rows per second, where the version before read 500, and has fallen from 10 to 2000 "
        "records behind."
    ]
    assert list(slower(first, now, rate=250.0, before=before, bounds=bounds)) == [], "half of it is enough"
    assert list(slower(now, first, rate=120.0, before=before, bounds=bounds)) == [], "there was no more"
    assert list(slower(first, now, rate=1.0, before=before, bounds=Bounds(min_rate=None))) == []


def test_job_that_reads_less_because_less_arrives_is_not_slower_for_a_few_records():
    bounds, first = Bounds(min_rate=0.5), a_beat(a_pace(lag=0))
    now = a_beat(a_pace(lag=12), at_ms=300_000)
    assert list(slower(first, now, rate=120.0, before=500.0, bounds=bounds)) == [], "120.04 a second arrived"
    now = a_beat(a_pace(lag=39_001), at_ms=300_000)
    assert len(list(slower(first, now, rate=120.0, before=500.0, bounds=bounds))) == 1, "250 a second arrived"


def test_what_only_kafka_tells_is_said_not_to_be_judged():
    rates = a_beat(a_pace(lag=None))
    assert list(unknown(rates, rate=1.0, before=1.0, bounds=Bounds(max_lag=1))) == [
        "How far orders is behind: only Kafka reports that.",
        "The rate of orders: only Kafka reports whether there was more to read.",
    ]
    kafka = a_beat(a_pace())
    assert list(unknown(kafka, rate=1.0, before=1.0, bounds=Bounds(max_lag=1))) == []
    assert list(unknown(kafka, rate=1.0, before=None, bounds=Bounds())) == [
        "Its rate: the version before has reported none."
    ]
    assert list(unknown(kafka, rate=None, before=1.0, bounds=Bounds())) == [
        "Its rate: it has run no batch that began in this time."
    ]


def test_rate_is_the_mean_of_the_batches_that_began_while_it_was_observed():
    rates = Rates(2000)
    assert rates.rows_per_s() is None
    for batch, rate in ((1, 9000.0), (2, 100.0), (2, 100.0), (3, 300.0), (4, None)):
        rates.add(a_beat(a_pace(batch, rate=rate)))
    assert rates.rows_per_s() == 200.0


def test_rate_before_is_that_of_the_last_minutes_before_the_stop():
    closed = a_beat(a_pace(rate=70.0), at_ms=1_000_000)
    assert rate_before(closed, None) == 70.0
    sample = Sample(at_s=0, input_rows_per_s=0, processed_rows_per_s=0, batch_ms=0, lag_records=None)
    points = {100: 5.0, 360: 100.0, 900: 300.0, 960: 9000.0, 1020: 1.0}
    history = History().with_samples(
        replace(sample, at_s=at_s, input_rows_per_s=rate) for at_s, rate in points.items()
    )
    assert rate_before(closed, history) == 200.0, "the minute of the stop is of both versions"
    assert rate_before(closed, History()) == 70.0
