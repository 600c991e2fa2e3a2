from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from testbed.answers import AnswerError, Answering
from testbed.hot import Judge, Tally
from testbed.ledger import Entry, Order

if TYPE_CHECKING:
    from pathlib import Path

LEDGER = [Entry(Order("c001", number, 10 * number, 0), "old", number - 1) for number in (1, 2, 3)]


def answering(tmp_path: Path, answer: str) -> Answering:
    program = f"for _ in open(0): print({answer!r}, flush=True)"
    return Answering(command=[sys.executable, "-c", program], env={}, log=tmp_path / "log")


def a_copy(tmp_path: Path, end: int) -> Path:
    copy = tmp_path / "rocksdb"
    (copy / "offsets").mkdir(parents=True)
    (copy / "offsets" / "7").write_text(f'v1\n{{}}\n{{"orders":{{"0":{end}}}}}')
    return copy


def verdict(tmp_path: Path, answer: dict[str, object], *, end: int = 2):
    with answering(tmp_path, json.dumps({"rocksdb": answer})) as starter:
        judge = Judge(starter, LEDGER, bootstrap="b", topic="orders")
        (found,) = judge.verdicts({"rocksdb": a_copy(tmp_path, end)})
    return found


def test_a_copy_with_every_order_up_to_its_offsets_is_right(tmp_path: Path):
    answer = {"batch": 7, "totals": {"c001": [2, 30, "03"]}}
    assert verdict(tmp_path, answer).result == "right"


@pytest.mark.parametrize(
    ("what", "total"),
    [("one lost", [1, 10, "01"]), ("one twice", [3, 50, "03"]), ("wrong sum", [2, 31, "03"])],
)
def test_a_copy_that_counts_anything_else_is_wrong(tmp_path: Path, what: str, total: list[object]):
    assert verdict(tmp_path, {"batch": 7, "totals": {"c001": total}}).result == "wrong", what


def test_a_copy_without_any_order_is_wrong(tmp_path: Path):
    assert verdict(tmp_path, {"batch": 7, "totals": {}}, end=0).result == "wrong"


def test_a_copy_that_spark_does_not_start_is_refused_with_its_words(tmp_path: Path):
    found = verdict(tmp_path, {"error": "metadata is missing"})
    assert (found.result, found.detail) == ("refused", "metadata is missing")


def test_orders_of_unknown_offset_cannot_be_judged(tmp_path: Path):
    doubtful = [*LEDGER, Entry(Order("c001", 4, 40, 0), "old", None)]
    with pytest.raises(RuntimeError, match="unknown"):
        Judge(answering(tmp_path, "{}"), doubtful, bootstrap="b", topic="orders")


def test_a_tally_keeps_what_was_not_right(tmp_path: Path):
    tally, other = Tally(), Tally()
    tally.add("sp-1", [verdict(tmp_path / "1", {"batch": 7, "totals": {"c001": [2, 30, "03"]}})])
    other.add("sp-2", [verdict(tmp_path / "2", {"error": "no"})])
    tally.merge(other)
    assert str(tally) == "1 queries right, 0 wrong, 1 refused"
    assert tally.bad == ["sp-2, rocksdb: refused: no"]


def test_a_program_that_answers_with_an_error_or_ends_is_an_error(tmp_path: Path):
    with answering(tmp_path, '{"error": "no JVM"}') as program, pytest.raises(AnswerError, match="no JVM"):
        program.ask({})
    ending = Answering(command=[sys.executable, "-c", "pass"], env={}, log=tmp_path / "log")
    with ending, pytest.raises((AnswerError, BrokenPipeError)):
        ending.ask({})
