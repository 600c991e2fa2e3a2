"""What a downtime consists of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_flinkstyle.jobs.cutover.downtime import batch_ms, of_cutover
from airflow_flinkstyle.jobs.journal import CutoverJournal
from testbed.keys import SIGNER
from testbed.memory_store import MemoryStore
from tests.unit.jobs.upgrade.paces import a_beat, a_pace


def a_journal(monkeypatch: pytest.MonkeyPatch, *, stop_at_ms: int) -> CutoverJournal:
    journal = CutoverJournal(MemoryStore(), "orders", "u1", ("stop",), signer=SIGNER)
    journal.begin(lambda: 0)
    monkeypatch.setattr("airflow_flinkstyle.jobs.journal.now_ms", lambda: stop_at_ms)
    journal.close(journal.open("stop", {}), {})
    return journal


@pytest.mark.parametrize(
    ("stop_at_ms", "shares"),
    [(10_400, (0.4, 1.1, 1.5)), (9_900, (0.0, 1.5, 1.5))],
    ids=["between two batches", "in the last batch"],
)
def test_downtime_is_shared_between_the_trigger_us_and_spark(
    monkeypatch: pytest.MonkeyPatch, stop_at_ms: int, shares: tuple[float, ...]
):
    old, new = a_beat(), a_beat()
    last = replace(old.queries["orders"], batch_committed_at_ms=10_000)
    first = replace(new.queries["orders"], started_at_ms=11_500)
    found = of_cutover(
        a_journal(monkeypatch, stop_at_ms=stop_at_ms),
        replace(old, queries={"orders": last}),
        replace(new, queries={"orders": first}),
        began="stop",
        seen={"first_commit_at_ms": 13_000, "first_batch_ms": {"addBatch": 900}},
    )
    assert found is not None
    assert (found.before_s, found.ours_s, found.spark_s) == shares
    assert found.total_s == 3.0 == sum(shares)
    assert "1.50 s until its first commit (addBatch 900 ms)" in found.as_markdown()


def test_job_that_had_nothing_to_read_has_no_downtime(monkeypatch: pytest.MonkeyPatch):
    journal = a_journal(monkeypatch, stop_at_ms=1)
    beat = a_beat()
    assert of_cutover(journal, beat, beat, began="stop", seen={"first_commit_at_ms": None}) is None
    assert of_cutover(journal, None, beat, began="stop", seen={"first_commit_at_ms": 5}) is None


def test_first_batch_is_told_by_its_number():
    pace = replace(a_pace(8), parts_ms={"addBatch": 70})
    assert batch_ms(a_beat(pace), {"orders": 7}) == {"addBatch": 70}
    assert batch_ms(a_beat(pace), {"orders": 6}) == {}, "Spark has told of a later one since"
    assert batch_ms(a_beat(), {"orders": 7}) == {}
