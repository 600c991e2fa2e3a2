from __future__ import annotations

from dataclasses import replace

from tests.bad_minutes.job import Line
from tests.bad_minutes.judge import counted, order_of_drivers

FIRST = Line(generation=1, incarnation=1, batch=0, begin=0, end=10)
SECOND = replace(FIRST, batch=1, begin=10, end=15)
THIRD = replace(FIRST, generation=2, batch=2, begin=15, end=40)


def test_records_that_are_there_once_are_right_though_a_batch_was_written_again():
    assert list(counted([FIRST, SECOND, replace(SECOND, incarnation=2), THIRD], 40)) == []


def test_lost_and_doubled_records_are_found():
    assert list(counted([FIRST, THIRD], 40))
    assert list(counted([FIRST, SECOND, replace(SECOND, incarnation=2, end=20), THIRD], 40))
    assert list(counted([FIRST, SECOND], 40))


def test_driver_that_writes_behind_a_later_one_is_found():
    assert list(order_of_drivers([FIRST, SECOND, THIRD])) == []
    assert list(order_of_drivers([FIRST, THIRD, SECOND]))
    assert list(order_of_drivers([FIRST, replace(SECOND, incarnation=2), FIRST]))
