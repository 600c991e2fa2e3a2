"""``flinkstyle job``, on the records that a driver leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_flinkstyle.cli.factories import MAY_END_VARIABLE, client_of
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.errors import DiesWithStarterError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.protocol.query_records import CommittedGroup, Pace, SourcePace
from airflow_flinkstyle.typed_json import encode
from airflow_flinkstyle.types import BatchId

Root = Any


def test_only_jobs_are_listed_and_each_says_what_it_does(root: Root):
    root.take("sp-1", "4.2.0/stateless")
    (root.folder / "root" / "cuts").mkdir()
    (root.folder / "root" / "cuts" / "c-1.json").write_text("{}")
    running = type(root)(root.folder, job="running")
    running.seem_running()
    found = {job["job"]: job["status"] for job in root.json("job", "list")["jobs"]}
    assert found == {"orders": "never_started", "running": "running"}


UNKNOWN = [("job", "list"), ("job", "status"), ("savepoint", "list"), ("savepoint", "prune", "--dry-run")]


@pytest.mark.parametrize("command", UNKNOWN, ids=" ".join)
def test_job_or_root_that_nobody_knows_is_an_error(root: Root, command: tuple[str, ...]):
    refused = root.run(*command, code=1)
    assert refused.stderr.startswith("JOB_UNKNOWN: ")
    assert refused.stdout == ""
    type(root)(root.folder, job="payments").seem_running()
    if command != ("job", "list"):
        assert "found the jobs payments." in root.run(*command, code=1).stderr


def test_status_gives_batches_and_where_the_checkpoints_are(root: Root):
    root.seem_running()
    found = root.json("job", "status")
    assert found["batches"] == {"totals": 4}
    assert (found["generation"], found["incarnation"]) == (1, 1)
    assert found["checkpoint_location"] == str(root.folder / "checkpoints")
    assert "totals@4" in root.run("job", "status").stdout


def test_status_names_a_query_that_failed_while_the_script_awaits_another(root: Root):
    root.seem_running(failed=True)
    assert root.json("job", "status")["failed_queries"] == ["totals"]
    shown = " ".join(root.run("job", "status").stdout.split())
    assert "an error has ended totals: see the driver's log" in shown


def test_status_tells_what_was_committed_for_consumer_groups(root: Root):
    group = CommittedGroup(
        group="billing",
        batch_id=BatchId(3),
        offsets=Offsets.of({"orders": {0: 7}}),
        lag={"orders": 1200},
        commits_succeeded=3,
        commits_failed=1,
        commits_superseded=2,
        failure="GROUP_IN_USE: Somebody else commits.",
    )
    root.seem_running(groups={"0": group})
    assert root.json("job", "status")["groups"] == {
        "totals": {"0": {**encode(group), "offsets": {"orders": {"0": 7}}}}
    }
    shown = root.run("job", "status").stdout
    assert "group billing  totals, source 0: batch 3; lag orders 1,200; 3 commits succeeded" in shown
    assert "GROUP_IN_USE: Somebody else commits." in shown


def test_status_tells_how_fast_a_query_is(root: Root):
    pace = Pace(
        batch_id=BatchId(4),
        begun_at_ms=1_790_000_000_000,
        batch_ms=1420,
        rows=10,
        input_rows_per_s=1200.5,
        processed_rows_per_s=None,
        watermark_ms=None,
        state_rows=7000,
        sources=(SourcePace(description="KafkaV2[Subscribe[orders]]", lag_records=38),),
    )
    root.seem_running(pace=pace)
    assert root.json("job", "status")["paces"] == {"totals": encode(pace)}
    shown = " ".join(root.run("job", "status").stdout.split())
    assert (
        "1,200.5 rows/s in, unknown processed, batch 4 of 1,420 ms, 7,000 rows of state, 38 records behind"
        in shown
    )


def test_stop_asks_first_and_a_no_or_no_answer_stops_nothing(root: Root):
    root.seem_running()
    for answer in ("n\n", ""):
        root.run("job", "stop", code=130, answer=answer)
    assert root.board.request(1) is None


def test_stop_of_a_job_that_never_ran_is_refused(root: Root):
    assert "\nJOB_UNKNOWN: " in root.run("job", "stop", "--yes", code=1).stderr
    error = json.loads(root.run("job", "stop", "--yes", "--json", code=1).stderr)["error"]
    assert error["code"] == "JOB_UNKNOWN"


def test_the_mode_of_a_stop_is_asked_of_the_driver(root: Root):
    root.seem_running()
    root.run("job", "stop", "--yes", "--drain", "--timeout", "0", code=1)
    asked = root.board.request(1).value
    assert (asked.command, asked.alignment, asked.drain) == ("stop_with_savepoint", "aligned", True)


def test_a_cut_that_is_not_done_in_time_is_taken_back_from_every_job(root: Root):
    other = type(root)(root.folder, job="sums")
    root.seem_running()
    other.seem_running()
    failed = root.run("savepoint", "cut", "orders", "sums", "--timeout", "0", code=1)
    assert failed.stderr.startswith("CUT_FAILED: ")
    for one in (root, other):
        assert one.board.request(1).value.state == "cancelled"


def test_stopping_several_jobs_asks_first(root: Root):
    root.seem_running()
    root.run("savepoint", "cut", "orders", "--stop", code=130, answer="n\n")
    assert root.board.request(1) is None


def test_job_that_closed_is_told_in_words(root: Root):
    root.seem_running(state="closed")
    assert "generation 1 has closed at batch 4 of totals" in root.run("job", "list").stdout


DECLARE = ("job", "declare-dead", "--generation", "1")


def test_driver_is_declared_dead_with_a_reason_that_is_kept_with_who_gave_it(root: Root):
    root.seem_running(lease_s=1.0, beats=False)
    root.run(*DECLARE, code=2, answer="y\n")  # without a reason
    root.run(*DECLARE, "--reason", "rack 4 burnt", code=130, answer="n\n")
    assert root.board.newest_submit(1) == 0
    found = root.json(*DECLARE, "--reason", "rack 4 burnt", "--yes")
    assert found["status"] == "dead"
    assert "was declared dead: rack 4 burnt (" in found["detail"]
    recorded = root.board.submit(1).value
    assert (recorded.state, recorded.detail.startswith("rack 4 burnt (")) == ("dead", True)


def test_driver_that_writes_heartbeats_is_not_declared_dead(root: Root):
    root.seem_running()
    failed = root.run(*DECLARE, "--reason", "I think so", "--yes", code=1)
    assert failed.stderr.startswith("STILL_BEATING: The driver of generation 1 of job orders was expected")
    assert root.board.newest_submit(1) == 0


def test_status_of_a_driver_that_fell_silent_elsewhere_is_dead_after_its_lease(root: Root):
    root.seem_running(lease_s=0.5, beats=False)
    assert root.json("job", "status")["status"] == "dead"
    assert "not changed for" in root.run("job", "status").stdout


def test_command_starts_drivers_that_may_end_with_it_only_where_a_person_accepts_that(
    root: Root, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AIRFLOW_IS_K8S_EXECUTOR_POD", "1")  # a pod that ends with its one task
    with pytest.raises(DiesWithStarterError) as refused:
        client_of(root.uri, "orders").view.deployment.require_able()
    assert f"{MAY_END_VARIABLE}=true for a command" in refused.value.remedy
    monkeypatch.setenv(MAY_END_VARIABLE, "true")
    client_of(root.uri, "orders").view.deployment.require_able()
    monkeypatch.setenv(MAY_END_VARIABLE, "perhaps")
    with pytest.raises(BadInputError, match=MAY_END_VARIABLE):
        client_of(root.uri, "orders")
