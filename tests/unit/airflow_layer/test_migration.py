from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_flinkstyle.hooks import approval, migration
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.jobs.migration.preflight import Finding, Preflight
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.kafka.errors import ClusterUnreachableError
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.operators import (
    MigrateStreamingJobOperator,
    PreflightMigrationOperator,
    SettleMigrationOperator,
    TakeSavepointOperator,
    VerifyMigrationOperator,
)
from airflow_flinkstyle.rewrite.rules import PROVED
from tests.unit.airflow_layer.conftest import a_context
from tests.unit.jobs.cutovers import DyingStore, Killed

if TYPE_CHECKING:
    from types import SimpleNamespace

    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def arguments(world: World) -> dict[str, Any]:
    return {
        "job": world.job,
        "source_kafka_conn_id": "old",
        "target_kafka_conn_id": "new",
        "mirror": {"source_alias": "old", "target_alias": "new"},
        "timeouts": {"steady_window_s": 0.01, "hold_timeout_s": 0.2, "first_commit_timeout_s": 2},
    }


@pytest.fixture
def findings(world: World, connections: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """Two Kafka logs in memory behind the hook, and a pre-flight that finds what the test says."""
    logs, found = world.logs, []
    logs.old = KafkaCluster(name="old", config={"bootstrap.servers": "old:9092"})
    logs.new = KafkaCluster(name="new", config={"bootstrap.servers": "new:9092"})
    logs.target_topics = sorted
    logs.strategies = PROVED
    for name in ("old", "new"):
        connections.set(name, "kafka", {"bootstrap.servers": f"{name}:9092"})
    for room in (migration, approval):
        monkeypatch.setattr(room, "live_kafka", lambda hook, moving: logs)
    monkeypatch.setattr(migration, "run_preflight", lambda *a, **k: Preflight(findings=tuple(found)))
    return found


def test_migration_moves_the_job_and_every_task_after_it_agrees(world: World, findings: list[Finding]):
    world.start()
    hot = TakeSavepointOperator(task_id="hot", job=world.job).execute(a_context("hot"))
    world.logs.produce(7)
    context = a_context("migrate")
    operator = MigrateStreamingJobOperator(task_id="migrate", hot_savepoint_id=hot, **arguments(world))
    report = operator.execute(context)
    assert world.board.current().value.generation == report["generation"]
    assert world.board.claim(report["generation"]).prepare_savepoint_id == hot
    assert "| orders |" in context["ti"].xcoms["markdown"]
    assert report["rewritten_id"] in context["ti"].xcoms["_link_SavepointLink"]
    assert StoreProducerSwitch(world.store, f"{world.job}/producers.json").read() == "release_new"
    assert operator.execute(context)["generation"] == report["generation"], "a retry finds it done"

    settled = SettleMigrationOperator(task_id="settle", **arguments(world)).execute(a_context("settle"))
    assert settled["where"] == "new"
    world.logs.produce(3)
    world.judge()
    verified = VerifyMigrationOperator(task_id="verify", timeout_s=5, **arguments(world))
    assert verified.execute(a_context("verify"))["cluster_id"] == "new"


def test_refused_translation_goes_back_and_fails_the_task(world: World, findings: list[Finding]):
    world.start()
    world.logs.refuse = True
    with pytest.raises(AirflowFailException, match="ROLLED_BACK"):
        MigrateStreamingJobOperator(task_id="migrate", **arguments(world)).execute(a_context("migrate"))
    with pytest.raises(AirflowFailException, match="MIGRATION_ENDED"):
        VerifyMigrationOperator(task_id="verify", **arguments(world)).execute(a_context("verify"))
    settled = SettleMigrationOperator(task_id="settle", **arguments(world)).execute(a_context("settle"))
    assert settled["where"] == "old"
    world.logs.produce(3)
    world.judge()


def test_old_cluster_that_is_gone_after_the_takeover_keeps_no_producers_held(
    world: World, findings: list[Finding], monkeypatch: pytest.MonkeyPatch
):
    world.start()
    migrate = MigrateStreamingJobOperator(task_id="migrate", **arguments(world))
    with monkeypatch.context() as dying:
        dying.setattr(StreamingJobHook, "store", DyingStore(world.store, only="-release.json"))
        with pytest.raises(Killed):
            migrate.execute(a_context("migrate"))

    def gone(_: object) -> str:
        raise ClusterUnreachableError("Cluster old was expected to answer.", "Nothing.", "Start it.")

    monkeypatch.setattr(type(world.logs), "old_cluster_id", property(gone))
    settled = SettleMigrationOperator(task_id="settle", **arguments(world)).execute(a_context("settle"))
    assert settled["where"] == "new"
    assert StoreProducerSwitch(world.store, f"{world.job}/producers.json").read() == "release_new"


def test_settling_a_migration_that_never_began_touches_nothing(world: World, findings: list[Finding]):
    world.start()
    settled = SettleMigrationOperator(task_id="settle", **arguments(world)).execute(a_context("settle"))
    assert settled["where"] == "untouched"
    assert StoreProducerSwitch(world.store, f"{world.job}/producers.json").read() is None


def test_preflight_shows_what_it_found_and_refuses(world: World, findings: list[Finding]):
    world.start()
    findings.append(Finding(check="clusters", level="refusal", detail="both are the same"))
    context = a_context("pre_flight")
    with pytest.raises(AirflowFailException, match="both are the same"):
        PreflightMigrationOperator(task_id="pre_flight", **arguments(world)).execute(context)
    assert "| clusters | refusal | both are the same |" in context["ti"].xcoms["markdown"]


def test_window_looks_once_more_because_approvals_take_time(world: World, findings: list[Finding]):
    world.start()
    findings.append(Finding(check="retention", level="refusal", detail="deletes mirrored records"))
    with pytest.raises(AirflowFailException, match="deletes mirrored records"):
        MigrateStreamingJobOperator(task_id="migrate", **arguments(world)).execute(a_context("migrate"))
    settled = SettleMigrationOperator(task_id="settle", **arguments(world)).execute(a_context("settle"))
    assert settled["where"] == "untouched"


@pytest.mark.parametrize(
    ("timeouts", "words"),
    [
        ({"hold": 3}, "BAD_INPUT.*'hold'"),
        ({"hold_timeout_s": "a minute"}, "BAD_INPUT.*time-out hold_timeout_s to be a number.*'a minute'"),
        ({"hold_timeout_s": "nan"}, "BAD_INPUT.*time-out hold_timeout_s to be a number of seconds above 0"),
    ],
)
def test_timeout_that_is_misspelt_or_no_number_of_seconds_is_refused(
    world: World, findings: list[Finding], timeouts: dict[str, object], words: str
):
    world.start()
    wrong = {**arguments(world), "timeouts": timeouts}
    with pytest.raises(AirflowFailException, match=words):
        MigrateStreamingJobOperator(task_id="migrate", **wrong).execute(a_context("migrate"))


def test_job_that_never_ran_cannot_be_migrated(world: World, findings: list[Finding]):
    with pytest.raises(AirflowFailException, match="JOB_NOT_RUNNING"):
        MigrateStreamingJobOperator(task_id="migrate", **arguments(world)).execute(a_context("migrate"))
