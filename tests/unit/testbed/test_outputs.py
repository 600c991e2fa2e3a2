from __future__ import annotations

from testbed.judge import Total
from testbed.ledger import Entry, Order
from testbed.outputs import OutputJudgement, Written, judge_outputs

LEDGER = tuple(Entry(Order("c001", number, 10, 1), "old", number) for number in (1, 2, 3))
STATE = {"c001": Total(orders=3, amount=30, numbers=frozenset({1, 2, 3}))}


def written(at_ms: int = 0, **value: int) -> Written:
    return Written(customer="c001", value=value, at_ms=at_ms, place="here")


def judged(
    numbers: tuple[int, ...], orders: tuple[int, ...] = (1, 3), ledger: tuple[Entry, ...] = LEDGER
) -> OutputJudgement:
    return judge_outputs(
        ledger,
        STATE,
        receipts=[written(number=number) for number in numbers],
        totals=[written(orders=count, amount=10 * count) for count in orders],
    )


def test_a_receipt_per_order_and_growing_totals_are_right():
    assert judged((1, 3, 2)).right


def test_a_lost_receipt_and_a_doubled_one_do_not_cancel_out():
    judgement = judged((1, 3, 3))
    assert judgement.lost == (("c001", 2),)
    assert judgement.twice == ("receipt for ('c001', 3) once more at here, 0 ms",)
    assert not judgement.right


def test_a_total_written_twice_is_seen():
    assert len(judged((1, 2, 3), (1, 1, 3)).twice) == 1


def test_a_last_total_that_is_not_the_state_is_stale():
    assert judged((1, 2, 3), (1, 2)).stale == ("c001",)


def test_a_receipt_for_what_nobody_sent_is_unknown():
    assert judged((1, 2, 3, 4)).unknown == (("c001", 4),)


def test_an_order_in_doubt_may_have_a_receipt_or_none():
    doubtful = (*LEDGER, Entry(Order("c001", 4, 10, 1), "old", None))
    assert judged((1, 2, 3), ledger=doubtful).right
    assert judged((1, 2, 3, 4), ledger=doubtful).right


def test_totals_of_a_sink_that_moved_are_looked_at_in_the_order_of_their_times():
    there, again = written(5, orders=3, amount=30), written(1, orders=1, amount=10)
    receipts = [written(number=number) for number in (1, 2, 3)]
    assert judge_outputs(LEDGER, STATE, receipts=receipts, totals=[there, again]).right
    doubled = [there, again, written(9, orders=2, amount=20)]
    assert len(judge_outputs(LEDGER, STATE, receipts=receipts, totals=doubled).twice) == 1
