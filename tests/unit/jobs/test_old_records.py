"""Records that nobody asks for any more go with the prune; what a retry may ask for stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.retention import KEPT_MS, prune_job, prune_records
from airflow_flinkstyle.protocol.comparison_records import Comparison
from airflow_flinkstyle.protocol.records import Current, End, Heartbeat, Progress, Request
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.types import Generation, Incarnation
from testbed.keys import SIGNER
from tests.unit.jobs.records import Job, a_heartbeat

NOW_MS = 100 * KEPT_MS
OLD_MS, YOUNG_MS = NOW_MS - KEPT_MS - 1, NOW_MS - KEPT_MS + 1


@pytest.fixture
def job() -> Job:
    """Generations 1 and 2 have ended, and 3 runs."""
    return Job(2)


def report(job: Job, request_id: str, at_ms: int) -> None:
    end = End(request_id=request_id, outcome="done", savepoint_id=None, detail="Done.", ended_at_ms=at_ms)
    shown = Progress(
        request_id=request_id, files_done=1, files_total=1, bytes_done=1, bytes_total=1, at_ms=at_ms
    )
    job.board.write_progress(job.newest, shown)
    job.board.create_end(job.newest, end)


def test_old_reports_go_and_young_ones_stay(job: Job) -> None:
    report(job, "old", OLD_MS)
    report(job, "young", YOUNG_MS)
    prune_records(job.board, now_ms=NOW_MS)
    left = [info.key for info in job.store.list("orders/reports/")]
    assert left == ["orders/reports/000003/young.end.json", "orders/reports/000003/young.progress.json"]


def test_comparison_whose_rows_nobody_looks_at_any_more_goes(job: Job) -> None:
    for generation, at_ms in ((1, OLD_MS), (2, YOUNG_MS)):
        found = Comparison(
            incarnation=Incarnation(1), savepoint_id="sp", old=Generation(1), new=Generation(2), queries={},
            seconds=1.0, ended_at_ms=at_ms,
        )  # fmt: skip
        job.board.write_comparison(Generation(generation), found)
    prune_records(job.board, now_ms=NOW_MS)
    assert [job.board.comparison(Generation(one)) is None for one in (1, 2)] == [True, False]


def test_report_that_cannot_be_read_is_left_alone_and_the_others_go(job: Job) -> None:
    job.store.write("orders/reports/000003/odd.end.json", b"{")
    prune_records(job.board, now_ms=NOW_MS)
    assert [info.key for info in job.store.list("orders/reports/")] == ["orders/reports/000003/odd.end.json"]


def test_report_of_the_request_in_the_slot_stays_or_it_would_be_acted_on_again(job: Job) -> None:
    report(job, "asked", OLD_MS)
    request = Request(
        request_id="asked", incarnation=Incarnation(2), command="savepoint", state="accepted",
        savepoint_id="sp", sent_at_ms=1,
    )  # fmt: skip
    job.board.put_request(job.newest, request, seen=None)
    prune_records(job.board, now_ms=NOW_MS)
    assert job.board.end(job.newest, "asked") is not None
    assert job.board.end(job.newest, "r1") is None


def test_nothing_goes_that_a_migration_which_has_not_ended_may_ask_for(job: Job) -> None:
    report(job, "old", OLD_MS)
    journal = CutoverJournal(job.store, "orders", "move-1", ("stop", "running"), signer=SIGNER)
    journal.begin(lambda: 1)
    phase = journal.open("stop", {})
    begun = replace(phase.record, intent_at_ms=OLD_MS - 10).to_bytes()
    job.store.replace(phase.key, begun, expected=phase.version)
    prune_records(job.board, now_ms=NOW_MS)
    assert job.board.end(job.newest, "old") is not None
    assert job.board.end(job.newest, "r1") is None, "it ended before the migration began"


def test_processes_of_runs_before_the_current_one_go_and_what_starts_decide_by_stays(job: Job) -> None:
    current = job.board.current()
    later = Generation(4)
    job.claim(later)
    job.board.beat(later, a_heartbeat("running", 1), seen=None)
    job.board.take_current(Current(generation=later, incarnation=Incarnation(1)), seen=current)
    prune_records(job.board, now_ms=NOW_MS)
    left = [info.key.removeprefix("orders/runs/") for info in job.store.list("orders/runs/")]
    kept = ("claim.json", "heartbeat.json", "takeover-order.json")
    assert left == [f"00000{generation}/{name}" for generation in (1, 2, 3, 4) for name in kept]


def test_processes_of_the_current_run_and_of_one_that_ended_lately_stay(job: Job) -> None:
    before = [info.key for info in job.store.list("orders/runs/")]
    prune_records(job.board, now_ms=NOW_MS)
    assert [info.key for info in job.store.list("orders/runs/")] == before


def test_prune_of_savepoints_prunes_records_unless_it_only_shows(job: Job) -> None:
    repository = SavepointRepository(job.store, "orders")
    prune_job(job.board, repository, RetentionPolicy(), holder="test", dry_run=True)
    assert job.board.end(job.newest, "r1") is not None
    prune_job(job.board, repository, RetentionPolicy(), holder="test")
    assert job.board.end(job.newest, "r1") is None


def test_poll_is_as_before_once_records_are_pruned(job: Job) -> None:
    before, _ = job.poll()
    prune_records(job.board, now_ms=NOW_MS)
    after, _ = job.poll()
    assert (after.run.heartbeat, after.run.incarnation) == (before.run.heartbeat, before.run.incarnation)
    assert isinstance(after.run.heartbeat, Heartbeat)
