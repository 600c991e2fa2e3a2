"""The dry run says beforehand what a start then does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.jobs.start.dry import (
    DryStart,
    NotJudged,
    Passes,
    Refuses,
    StartCheck,
    check_positions,
    dry_start,
)
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.stopped.saving import take_stopped
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.protocol.query_records import Sinks
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, QuerySnapshot
from airflow_flinkstyle.types import BatchId
from testbed.ports import free_port
from tests.manifests import a_manifest

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.client import JobClient
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.types import Rewind
    from tests.unit.jobs.conftest import Mood, World


def hot(world: World) -> tuple[JobClient, Manifest]:
    """Take a savepoint, let the job commit one more batch, and stop it."""
    client = world.start()
    saved = take(client)
    world.logs.produce(5)
    world.until(lambda: len(world.logs.counted) == 15)
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    return client, saved


def take(client: JobClient) -> Manifest:
    _, end = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=10)
    return client.view.repository.read(end.savepoint_id)


def verdict(checks: tuple[StartCheck, ...], about: str) -> Any:  # noqa: ANN401  # any of the three
    (found,) = [check.verdict for check in checks if check.about.startswith(about)]
    return found


def starts(world: World, client: JobClient, savepoint_id: str, rewind: Rewind) -> str | None:
    """Start for real; the code of the refusal, None if the job starts."""
    origin = FromSavepoint(savepoint_id=savepoint_id, rewind=rewind)
    try:
        handle = client.starts.start(world.spec(), world.target(), claim_key=rewind, origin=origin)
    except FlinkstyleError as error:
        return error.code
    client.drivers.wait_running(handle.generation, timeout_s=10)
    return None


def refusal(found: DryStart, rewind: Rewind) -> str | None:
    """Return what the dry run says would refuse the start."""
    codes = [c.verdict.code for c in (*found.checks, *found.ways[rewind]) if isinstance(c.verdict, Refuses)]
    return codes[0] if codes else None


@pytest.mark.parametrize("rewind", ["continue", "fork", "re-emit"])
def test_dry_run_of_an_older_savepoint_says_what_the_start_does(world: World, rewind: Rewind):
    client, saved = hot(world)
    found = dry_start(client.view, saved)
    assert found.since == {"orders": 1}
    assert refusal(found, rewind) == starts(world, client, saved.savepoint_id, rewind)
    assert refusal(found, "continue") == "REWIND"


def test_dry_run_of_the_newest_savepoint_lets_it_continue(world: World):
    client = world.start()
    client.requests.stop("stop", savepoint=False, timeout_s=10)
    saved = take_stopped(client.view, "cold")
    found = dry_start(client.view, saved)
    assert (found.since, refusal(found, "continue")) == ({"orders": 0}, None)
    assert starts(world, client, saved.savepoint_id, "continue") is None


def test_dry_run_writes_nothing(world: World):
    client, saved = hot(world)
    before = {info.key: info.version for info in world.store.list()}
    dry_start(client.view, saved)
    assert {info.key: info.version for info in world.store.list()} == before


def test_job_that_runs_would_refuse_the_start_and_is_told_the_way_back(world: World):
    client = world.start()
    found = dry_start(client.view, take(client))
    running = verdict(found.checks, "the job")
    assert running.code == "JOB_RUNNING" == starts(world, client, "any", "fork")
    assert "roll_back" in running.remedy


def test_sink_that_remembers_batches_would_refuse_to_emit_again(world: World):
    client, saved = hot(world)
    saved = replace(saved, queries=tuple(replace(query, sink="parquet") for query in saved.queries))
    found = dry_start(client.view, saved)
    assert verdict(found.ways["re-emit"], "sink parquet").code == "SINK_SKIPS"
    assert isinstance(verdict(found.ways["fork"], "sink parquet"), Passes)


def test_function_that_may_remember_batches_is_left_to_the_driver(world: World, mood: type[Mood]):
    world.moods["v1.py"] = mood(sink="foreachBatch")
    client, saved = hot(world)
    found = dry_start(client.view, saved)
    assert isinstance(verdict(found.ways["re-emit"], "sink foreachBatch"), NotJudged)
    assert isinstance(verdict(found.ways["fork"], "sink foreachBatch"), Passes)


def test_settings_and_version_of_the_last_run_are_compared(world: World):
    client, saved = hot(world)
    assert isinstance(verdict(dry_start(client.view, saved).checks, "Spark"), Passes)
    newer = verdict(dry_start(client.view, replace(saved, spark_version="4.3.0")).checks, "Spark")
    assert newer.code == "SPARK_INCOMPATIBLE"
    assert "4.3.0" in newer.problem


def test_nothing_is_said_of_what_no_record_tells(world: World):
    saved = a_manifest(a_query(sink="foreachBatch"))
    found = dry_start(world.client().view, saved)
    assert found.since == {"a": None}
    assert isinstance(verdict(found.checks, "Spark"), NotJudged)
    assert isinstance(verdict(found.checks, "the script"), NotJudged)
    assert isinstance(verdict(found.ways["fork"], "sink"), NotJudged)
    ran_elsewhere = dry_start(world.client().view, a_manifest(a_query(sink="foreachBatch", sinks=Sinks())))
    assert verdict(ran_elsewhere.ways["fork"], "sink").code == "SINK_SKIPS"
    assert not any(isinstance(check.verdict, Refuses) for check in found.checks)
    files = dry_start(world.client().view, a_manifest(a_query(sink="parquet")))
    assert isinstance(verdict(files.ways["fork"], "sink"), NotJudged)


def a_query(**changes: Any) -> QuerySnapshot:
    values: dict[str, Any] = {
        "name": "a", "query_id": "qa", "batch_id": BatchId(4), "checkpoint_location": "x",
        "planned_offsets": None, "pinned_confs": {}, "kafka": {}, "files": (),
    }  # fmt: skip
    return QuerySnapshot(**{**values, **changes})


def away() -> KafkaCluster:
    """A cluster that does not answer."""
    servers = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    return KafkaCluster(name="old", config=servers, request_timeout_s=1.0)


def test_positions_are_not_judged_without_a_cluster_that_answers():
    position = KafkaPosition(cluster_id="c-1", topic_ids={}, offsets={("orders", 0): 3}, log_range={})
    manifest = a_manifest(a_query(kafka={"0": position}))
    (nobody,) = check_positions(manifest, [])
    assert "c-1; no connection was asked" in nobody.verdict.why
    (silent,) = check_positions(manifest, [away()])
    assert isinstance(silent.verdict, NotJudged)
    assert "old" in silent.verdict.why


def test_savepoint_without_kafka_asks_no_cluster():
    assert list(check_positions(a_manifest(a_query()), [away()])) == []
