"""What is read of one job for the page, and what it costs."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Literal

import pytest

from airflow_flinkstyle.hooks.metrics import measure
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.journal import APPROVED, DECIDED, PhaseRecord
from airflow_flinkstyle.jobs.status import Sightings
from airflow_flinkstyle.jobs.stopped.offline_lock import lock_key
from airflow_flinkstyle.jobs.view import LOG_FOLLOWS, JobView
from airflow_flinkstyle.links.address import web_address
from airflow_flinkstyle.plugin.roots import MemoStore
from airflow_flinkstyle.plugin.views import savepoint_reader
from airflow_flinkstyle.plugin.views.comparisons import comparison_document
from airflow_flinkstyle.plugin.views.documents import journal_document
from airflow_flinkstyle.plugin.views.job_reader import JobReader
from airflow_flinkstyle.plugin.views.lineage import MOST_SAVEPOINTS, lineage
from airflow_flinkstyle.plugin.views.savepoint_reader import MANIFESTS_A_READING
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.history import History, totals
from airflow_flinkstyle.protocol.line import BEGINNING, Turn
from airflow_flinkstyle.protocol.query_records import Pace, SourcePace
from airflow_flinkstyle.savepoint.files.verified import record_damaged
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.meter import Meter, MeteredStore
from airflow_flinkstyle.types import BatchId, Generation
from tests.comparisons import a_comparison
from tests.seeming_jobs import SeemingJob

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow
ASKED = {"dag_id": "start_job", "run_id": "manual__1", "task_id": "start"}


@pytest.fixture
def job(tmp_path: Path) -> SeemingJob:
    """Two runs: the first failed after three drivers, the second began from ``sp-1``."""
    job = SeemingJob(tmp_path)
    for number, golden in enumerate(("4.2.0/stateless", "4.2.0/dedup"), 1):
        job.take(f"sp-{number}", golden, minute=number)
    job.seem_running(
        state="failed", error=("SCRIPT_FAILED", "disk full"), drivers=3, asked_by=ASKED, said_after_min=1
    )
    job.seem_running(generation=2, from_savepoint="sp-1", ui_url="http://worker:4040", beats=False)
    return job


def reader_of(job: SeemingJob, meter: Meter | None = None) -> JobReader:
    store: Any = LocalStore(job.folder / "root")
    return JobReader(MeteredStore(store, meter) if meter else store, job.job, Sightings())  # type: ignore[arg-type]


def test_runs_say_who_asked_and_when_drivers_were_started_again(job: SeemingJob):
    second, first = reader_of(job).detail()["runs"]
    assert (first["asked_by"], second["asked_by"]) == (ASKED, None)
    assert first["restarted_at_ms"] == [job.begun_at_ms + 60_000, job.begun_at_ms + 120_000]
    assert second["from_savepoint"] == "sp-1"
    assert second["adopts_checkpoint_of"] is None


def a_pace(begun_at_ms: int) -> Pace:
    return Pace(
        batch_id=BatchId(4),
        begun_at_ms=begun_at_ms,
        batch_ms=1500,
        rows=300,
        input_rows_per_s=20.5,
        processed_rows_per_s=200.0,
        watermark_ms=None,
        state_rows=77,
        sources=(SourcePace(description="KafkaV2", lag_records=12),),
    )


@pytest.mark.parametrize(("state", "rates"), [("running", (20.5, 200.0)), ("failed", (0, 0))])
def test_job_that_does_not_run_has_no_rates(
    tmp_path: Path, state: Literal["running", "failed"], rates: tuple[float, float]
):
    job = SeemingJob(tmp_path)
    job.seem_running(state=state, pace=a_pace(job.begun_at_ms), beats=False)
    row = reader_of(job).row(0.0)
    assert row["state"] == state
    assert (row["input_rows_per_s"], row["processed_rows_per_s"]) == rates
    assert row["lag_records"] == 12, "what it has not read is still unread"


@pytest.mark.parametrize(("silent_ms", "is_idle"), [(0, False), (120_000, True)])
def test_table_plot_and_metrics_agree_whether_a_job_is_idle(tmp_path: Path, silent_ms: int, is_idle: bool):
    job = SeemingJob(tmp_path)
    pace = a_pace(job.begun_at_ms - silent_ms)
    job.seem_running(pace=pace, beats=False)
    reader = reader_of(job)
    point = totals([pace], now_ms=job.begun_at_ms)
    assert point is not None
    job.board.write_history(History().with_samples([point]), seen="")
    row, (plotted,) = reader.row(0.0), reader.detail()["history"]["60"]
    names = ("input_rows_per_s", "processed_rows_per_s", "batch_ms", "lag_records")
    assert {name: row[name] for name in names} == {name: plotted[name] for name in names}
    assert (row["batch_ms"], row["lag_records"]) == (0 if is_idle else 1500, 12)
    view = JobView(board=job.board, repository=job.repository, deployment=DetachedDeployment())
    measured = {one.name: one.value for one in measure(job.job, view.status(), None, now_ms=job.begun_at_ms)}
    assert measured["input_rows_per_s"] == row["input_rows_per_s"]


def test_header_runs_and_graph_say_the_same_of_a_driver_that_was_killed(tmp_path: Path):
    job = SeemingJob(tmp_path)
    job.seem_running(beats=False, lease_s=0.1)
    job.seem_running(generation=2, beats=False, lease_s=0.1)
    reader = reader_of(job)
    reader.detail()
    time.sleep(0.3)  # no heartbeat for the lease
    detail = reader.detail()
    assert detail["state"] == reader.row(0.0)["state"] == "dead"
    assert [run["state"] for run in detail["runs"]] == ["dead", "dead"]
    assert {node["id"]: node["state"] for node in detail["lineage"]["nodes"]} == {
        "run/1": "dead",
        "run/2": "dead",
    }


def test_generation_under_which_a_caller_saved_the_stopped_job_is_not_shown(tmp_path: Path):
    job = SeemingJob(tmp_path)
    job.seem_running(state="closed")
    job.claim_key = lock_key("rotation")
    job.seem_running(generation=2, state="closed")
    reader = reader_of(job)
    detail = reader.detail()
    assert (detail["generation"], [run["generation"] for run in detail["runs"]]) == (1, [1])
    assert (detail["state"], detail["started_by"]) == ("closed", "test")
    assert "generation 1 has closed" in detail["reason"]


def test_job_that_failed_and_was_saved_since_is_shown_as_failed(tmp_path: Path):
    job = SeemingJob(tmp_path)
    job.seem_running(state="failed", error=("SCRIPT_FAILED", "disk full"))
    job.claim_key = lock_key("rotation")
    job.seem_running(generation=2, state="closed")
    detail = reader_of(job).detail()
    assert (detail["generation"], detail["state"]) == (1, "failed")
    assert [one["state"] for one in detail["runs"]] == ["failed"]
    assert detail["trouble"][0]["text"] == "SCRIPT_FAILED: disk full"


def test_plan_that_waits_for_a_person_is_not_called_approved():
    planned = PhaseRecord(phase=APPROVED, attempt=0, intent={}, intent_at_ms=1)
    shown = journal_document("m1", [planned], ended=False)
    assert (shown["phase"], [one["phase"] for one in shown["phases"]]) == ("waits for approval", ["planned"])
    decided = PhaseRecord(
        phase=DECIDED, attempt=0, intent={}, intent_at_ms=2, result={"then": "window"}, result_at_ms=2
    )
    assert journal_document("m1", [planned, decided], ended=False)["phase"] == "answered"


def test_log_in_the_failure_of_a_cutover_is_not_shown():
    failure = f"The driver of generation 2 failed.{LOG_FOLLOWS}\norder 17 of customer c1\n"
    verify = PhaseRecord(phase="verify", attempt=1, intent={}, intent_at_ms=1, result={"failure": failure})
    back = PhaseRecord(phase="rollback", attempt=1, intent={"failure": failure}, intent_at_ms=2)
    shown = journal_document("u1", [verify, back], ended=True)
    assert shown["failure"] == "The driver of generation 2 failed."
    assert "customer" not in str(shown)


def test_comparison_is_shown_with_its_run_without_the_jobs_data(job: SeemingJob):
    job.seem_compared(3, a_comparison())
    reader = reader_of(job)
    detail = reader.detail()
    shown = detail["runs"][0]["comparison"]
    assert [run["comparison"] is None for run in detail["runs"]] == [False, True, True]
    assert (shown["verdict"], shown["asks_again"], shown["new"]) == ("differs", True, 3)
    lines, _ = shown["queries"]
    assert (lines["name"], lines["verdict"], lines["found"]["changed"]) == ("lines", "differs", 2)
    assert "price differs in 2" in lines["notes"]
    assert 'price":1' not in json.dumps(shown), "rows take the right to read logs"
    assert '"k"' not in json.dumps(shown), "and so do keys of the state"
    whole = comparison_document(a_comparison(), rows=True)["queries"][0]["found"]
    assert (whole["samples"][0]["kind"], len(whole["states"][0]["samples"])) == ("changed", 1)
    assert detail["generation"] == 2, "the job runs on"


def test_upgrade_says_what_was_compared_before_it():
    begun = PhaseRecord(
        phase="standby", attempt=1, intent={"comparison": {"summary": "differs: 2 changed"}}, intent_at_ms=1
    )
    assert journal_document("u1", [begun], ended=False)["compared"] == "differs: 2 changed"


def test_failures_restarts_and_damage_are_on_the_timeline(job: SeemingJob):
    record_damaged(job.repository, "sp-2", "quick", "a file is missing")
    trouble = reader_of(job).detail()["trouble"]
    assert sorted(one["at_ms"] for one in trouble) == [one["at_ms"] for one in reversed(trouble)]
    assert [(one["kind"], one["generation"]) for one in trouble if one["kind"] != "damaged"] == [
        ("restarted", 1),
        ("failed", 1),
        ("restarted", 1),
    ]
    assert "sp-2" in next(one["text"] for one in trouble if one["kind"] == "damaged")
    assert any("disk full" in one["text"] for one in trouble)


def test_graph_leads_from_a_run_to_its_savepoints_and_from_one_to_the_next_run(job: SeemingJob):
    graph = reader_of(job).detail()["lineage"]
    edges = {(edge["source"], edge["target"]): edge["kind"] for edge in graph["edges"]}
    assert edges == {
        ("run/1", "savepoint/sp-1"): "took",
        ("run/1", "savepoint/sp-2"): "took",
        ("savepoint/sp-1", "run/2"): "started",
    }
    assert {node["id"] for node in graph["nodes"]} == {"run/1", "run/2", "savepoint/sp-1", "savepoint/sp-2"}


def a_savepoint(name: str, **more: Any) -> dict[str, Any]:
    blank = {
        "parent": None,
        "generation": 1,
        "taken_at_ms": 1,
        "damaged": None,
        "verified": None,
        "beside": None,
    }
    return {"savepoint_id": name, **blank, **more}


def a_run(number: int, **more: Any) -> dict[str, Any]:
    blank = {"from_savepoint": None, "adopts_checkpoint_of": None, "claimed_at_ms": 1}
    return {"generation": number, "state": "closed", **blank, **more}


def test_graph_keeps_an_old_savepoint_that_a_run_began_from_and_counts_what_it_leaves_out():
    savepoints = [a_savepoint(f"sp-{number}") for number in range(MOST_SAVEPOINTS + 10)]
    savepoints += [a_savepoint("old", parent="older"), a_savepoint("older")]
    graph = lineage([a_run(2, from_savepoint="old")], savepoints)
    assert graph["left_out"] == 10
    assert {"source": "savepoint/older", "target": "savepoint/old", "kind": "rewritten"} in graph["edges"]
    assert {"source": "savepoint/old", "target": "run/2", "kind": "started"} in graph["edges"]


def test_savepoint_that_the_job_has_left_is_behind_the_others_and_never_the_newest(job: SeemingJob):
    turn = Turn(generation=Generation(3), parent=BEGINNING)
    job.seem_running(generation=3, turns=(turn,), state="closed")
    reader = reader_of(job)
    assert {one["beside"] for one in reader.listed()} == {"abandoned: generation 3 started from scratch"}
    assert reader.row(0.0)["newest_savepoint"] is None
    states = {node["state"] for node in reader.detail()["lineage"]["nodes"] if "savepoint/" in node["id"]}
    assert states == {"abandoned"}


def test_graph_has_no_edge_to_what_is_gone():
    graph = lineage([a_run(3, from_savepoint="gone"), a_run(2, adopts_checkpoint_of=1)], [])
    assert graph["edges"] == []
    assert len(graph["nodes"]) == 2


def test_graph_shows_a_run_that_continues_a_checkpoint():
    graph = lineage([a_run(2, adopts_checkpoint_of=1), a_run(1)], [])
    assert graph["edges"] == [{"source": "run/1", "target": "run/2", "kind": "continued"}]


def test_new_bytes_are_those_that_the_savepoint_before_did_not_have(job: SeemingJob):
    job.take("sp-3", "4.2.0/dedup", minute=3)
    found = {one["savepoint_id"]: one for one in reader_of(job).savepoints.listed()}
    assert found["sp-3"]["new_bytes"] == 0  # the same files again
    assert 0 < found["sp-2"]["new_bytes"] <= found["sp-2"]["size_bytes"]
    assert found["sp-1"]["new_bytes"] is None  # there is none before it


def test_new_bytes_cost_few_manifests_a_look_and_are_known_after_some(tmp_path: Path):
    job = SeemingJob(tmp_path)
    for number in range(25):
        job.take(f"sp-{number:02d}", "4.2.0/stateless", minute=number)
    meter = Meter()
    reader = reader_of(job, meter)
    reader.savepoints.listed(more=0)
    unknown = []
    for _ in range(4):
        before = meter.requests
        found = reader.savepoints.listed()
        unknown.append(sum(one["new_bytes"] is None for one in found))
        assert meter.requests - before <= MANIFESTS_A_READING + 8
    assert unknown == [25 - 9, 25 - 18, 1, 1]


def test_new_bytes_of_very_large_savepoints_are_left_out(job: SeemingJob, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(savepoint_reader, "MOST_FILES", 1)
    assert {one["new_bytes"] for one in reader_of(job).savepoints.listed()} == {None}


def test_spark_ui_is_told_while_the_driver_lives(tmp_path: Path):
    job = SeemingJob(tmp_path)
    job.seem_running(ui_url="http://worker:4040")
    assert reader_of(job).detail()["spark_ui"] == "http://worker:4040"
    job.seem_running(generation=2, state="closed", ui_url="http://worker:4040")
    assert reader_of(job).detail()["spark_ui"] is None


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "//evil.example", "http://[", "worker:4040", "", None]
)
def test_only_http_becomes_a_link(url: str | None):
    assert web_address(url) is None


def test_agent_of_another_protocol_is_a_sentence_and_hides_nothing_else(job: SeemingJob):
    file = job.folder / "root" / "orders" / "runs" / "000002" / "heartbeat.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "version": 2}))
    reader = reader_of(job)
    detail = reader.detail()
    assert detail["state"] == "unknown"
    assert "speaks protocol 2, this package speaks 1" in detail["reason"]
    assert "Install the same airflow-flinkstyle version" in detail["error"]["remedy"]
    assert [run["state"] for run in detail["runs"]] == ["unreadable", "failed"]
    assert detail["savepoints_total"] == 2
    assert reader.row(0.0)["error"]["code"] == "PROTOCOL_VERSION"


class Away(LocalStore):
    """A store that fails from some moment on."""

    is_away = False

    def get(self, key: str, *, unless: str | None = None) -> Any:  # noqa: ANN401 - as the store
        if self.is_away:
            raise StoreUnavailableError("The store was expected to answer.", "Nothing.", "Wait.")
        return super().get(key, unless=unless)


def test_store_that_is_away_is_no_job_that_cannot_be_read(job: SeemingJob):
    store = Away(job.folder / "root")
    reader = JobReader(store, "orders", Sightings())
    store.is_away = True
    with pytest.raises(StoreUnavailableError):
        reader.detail()


def test_detail_reads_what_has_ended_once(job: SeemingJob):
    job.seem_running(generation=3, state="closed")
    meter = Meter()
    reader = reader_of(job, meter)
    reader.detail()
    first = meter.requests
    reader.detail()
    assert meter.requests - first < first - 3
    assert meter.requests - first <= 32


def test_memo_reads_each_object_and_listing_once(job: SeemingJob):
    meter = Meter()
    store: Any = MemoStore(MeteredStore(LocalStore(job.folder / "root"), meter))  # type: ignore[arg-type]
    board = JobBoard(store, "orders")
    told = [(board.generations(), board.claim(1), board.heartbeat(2)) for _ in range(3)]
    assert told[0] == told[2]
    assert meter.requests == 3
    slot = board.heartbeat(2)
    assert store.get("orders/runs/000002/heartbeat.json", unless=slot.version) is None
    assert store.get("orders/nothing") is None
    assert store.uri.endswith("root")


def test_savepoint_that_a_run_needs_says_so(job: SeemingJob):
    found = {one["savepoint_id"]: one["in_use"] for one in reader_of(job).listed()}
    (by,) = {one.claim_key for one in [job.board.claim(2)] if one}
    assert found == {"sp-1": f"generation 2 ({by}) started from it", "sp-2": None}
