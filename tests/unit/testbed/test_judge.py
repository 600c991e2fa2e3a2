from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.judge import Total, judge, numbers_of
from testbed.ledger import Entry, LedgerWriter, Order, read_ledger
from testbed.producer import OrderBook

if TYPE_CHECKING:
    from pathlib import Path

LEDGER = tuple(Entry(Order("c001", number, 10 * number, 1), "old", number) for number in (1, 2, 3))
ALL_ONCE = Total(orders=3, amount=60, numbers=frozenset({1, 2, 3}))


def test_each_order_once_is_right():
    judgement = judge(LEDGER, {"c001": ALL_ONCE})
    assert judgement.right
    assert (judgement.acknowledged, judgement.counted) == (3, 3)


def test_a_lost_order_and_a_doubled_one_do_not_cancel_out():
    lost_2_doubled_3 = Total(orders=3, amount=10 + 30 + 30, numbers=frozenset({1, 3}))
    judgement = judge(LEDGER, {"c001": lost_2_doubled_3})
    assert judgement.lost == (("c001", 2),)
    assert judgement.twice_count == 1
    assert not judgement.right


def test_a_customer_without_state_has_lost_everything():
    assert len(judge(LEDGER, {}).lost) == 3


def test_an_order_nobody_sent_is_wrong():
    judgement = judge(LEDGER, {"c001": replace(ALL_ONCE, orders=4, numbers=frozenset({1, 2, 3, 9}))})
    assert judgement.unknown == (("c001", 9),)
    assert not judgement.right


def test_a_wrong_sum_with_the_right_orders_is_wrong():
    assert judge(LEDGER, {"c001": replace(ALL_ONCE, amount=61)}).wrong_amounts == ("c001",)


def test_an_order_in_doubt_may_be_counted_or_not():
    ledger = (*LEDGER, Entry(Order("c001", 4, 40, 1), "old", None))
    assert judge(ledger, {"c001": ALL_ONCE}).right
    counted = Total(orders=4, amount=100, numbers=frozenset({1, 2, 3, 4}))
    assert judge(ledger, {"c001": counted}).right


def test_numbers_of_a_bitmap_count_from_one():
    bitmap = bytearray(4096)
    bitmap[0], bitmap[1], bitmap[4095] = 0b11, 0b1, 0b1000_0000
    assert numbers_of(bytes(bitmap)) == {1, 2, 9, 32768}


def test_a_ledger_reads_back_without_the_line_being_written(tmp_path: Path):
    path = tmp_path / "ledger"
    writer = LedgerWriter(path)
    for entry in LEDGER:
        writer.append(entry)
    writer.close()
    with path.open("a") as file:
        file.write('["c001",4')
    assert tuple(read_ledger(path)) == LEDGER


def test_the_order_book_numbers_each_customer_without_gaps():
    book = OrderBook(customers=8, partitions=4)
    orders = [book.next(only=0) for _ in range(3)]
    orders += [book.next(without=frozenset({0})) for _ in range(12)]
    orders += [book.next() for _ in range(20)]
    for customer in {order.customer for order in orders}:
        mine = [order.number for order in orders if order.customer == customer]
        assert mine == list(range(1, len(mine) + 1))
    assert {order.partition for order in orders[:3]} == {0}
    assert 0 not in {order.partition for order in orders[3:15]}
