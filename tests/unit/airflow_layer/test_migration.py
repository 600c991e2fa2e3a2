from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks import migration
from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.assets import MIGRATIONS, migration_asset
from airflow_flinkstyle.jobs.journal import read_phases
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.operators import (
    ApproveMigrationOperator,
    MigrateStreamingJobOperator,
    PreflightMigrationOperator,
    SettleMigrationOperator,
    SettleStreamingJobOperator,
    TakeSavepointOperator,
    VerifyMigrationOperator,
    WatchStreamingJobOperator,
)
from testbed.keys import SIGNING_KEY
from tests.unit.airflow_layer.conftest import WorldHook, a_context, with_hook
from tests.unit.jobs.cutovers import DyingStore, Killed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import SimpleNamespace

    from tests.unit.airflow_layer.conftest import Operator
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


@pytest.fixture
def hook(world: World, connections: SimpleNamespace) -> WorldHook:
    """Two Kafka logs in memory behind the hook, and a running job that reads the old one."""
    for name in ("old", "new"):
        connections.set(name, "kafka", {"bootstrap.servers": f"{name}:9092"})
    return WorldHook(world)


def a_task(
    operator: type[Operator], hook: WorldHook, *, told: Mapping[str, Any] | None = None, **more: Any
) -> Operator:
    migration = {
        "source_kafka_conn_id": "old",
        "target_kafka_conn_id": "new",
        "mirror": {"source_alias": "old", "target_alias": "new"},
        "timeouts": {"steady_window_s": 0.01, "hold_timeout_s": 0.2, "first_commit_timeout_s": 2},
    }
    task = {"task_id": "task", "job": hook.world.job, "migration": {**migration, **(told or {})}}
    return with_hook(operator, hook, **task, **more)


def test_migration_moves_the_job_and_every_task_after_it_agrees(world: World, hook: WorldHook):
    world.start()
    hot = TakeSavepointOperator(task_id="hot", job=world.job).execute(a_context("hot"))
    world.logs.produce(7)
    context = a_context("migrate")
    operator = a_task(MigrateStreamingJobOperator, hook, hot_savepoint_id=hot)
    report = operator.execute(context)
    assert world.board.current().value.generation == report["generation"]
    assert world.board.claim(report["generation"]).prepare_savepoint_id == hot
    assert "| orders |" in context["ti"].xcoms["markdown"]
    assert report["rewritten_id"] in context["ti"].xcoms["_link_SavepointLink"]
    (event,) = context["outlet_events"][MIGRATIONS].asset_alias_events
    assert event.dest_asset_key.to_asset() == migration_asset(world.job)
    assert (event.extra["target_cluster_id"], event.extra["savepoint_id"]) == ("new", report["rewritten_id"])
    assert StoreProducerSwitch(world.store, f"{world.job}/producers.json").read() == "release_new"
    assert operator.execute(context)["generation"] == report["generation"], "a retry finds it done"

    settled = a_task(SettleMigrationOperator, hook).execute(a_context("settle"))
    assert settled["where"] == "new"
    world.logs.produce(3)
    world.judge()
    verified = a_task(VerifyMigrationOperator, hook, timeout_s=5)
    assert verified.execute(a_context("verify"))["cluster_id"] == "new"


@pytest.mark.parametrize("answer", ["Approve", "Reject"])
def test_who_approved_is_kept_and_in_the_report(world: World, hook: WorldHook, answer: str):
    world.start()
    approve = ApproveMigrationOperator(task_id="approve", subject="Move it?", job=world.job)
    event = {
        "chosen_options": [answer],
        "params_input": {},
        "responded_at": datetime(2026, 11, 21, 12, tzinfo=UTC),
        "responded_by_user": {"id": "7", "name": "ann"},
    }
    approve.execute_complete(a_context("approve"), event)
    journals = read_phases(world.store, world.job)
    ((decided,),) = journals.values()
    assert dict(decided.intent) == {"by": "ann", "at": "2026-11-21T12:00:00+00:00", "choice": answer}
    if answer == "Approve":
        context = a_context("migrate")
        a_task(MigrateStreamingJobOperator, hook).execute(context)
        assert "Approved by ann at 2026-11-21T12:00:00+00:00." in context["ti"].xcoms["markdown"]


def test_refused_translation_goes_back_and_fails_the_task(world: World, hook: WorldHook):
    world.start()
    world.logs.refuse = True
    with pytest.raises(AirflowFailException, match="ROLLED_BACK"):
        a_task(MigrateStreamingJobOperator, hook).execute(a_context("migrate"))
    with pytest.raises(AirflowFailException, match="MIGRATION_ENDED"):
        a_task(VerifyMigrationOperator, hook).execute(a_context("verify"))
    settled = a_task(SettleMigrationOperator, hook).execute(a_context("settle"))
    assert settled["where"] == "old"
    world.logs.produce(3)
    world.judge()


def test_old_cluster_that_is_gone_after_the_takeover_keeps_no_producers_held(world: World, hook: WorldHook):
    world.start()
    dying = WorldHook(world, DyingStore(world.store, only="-release.json"))
    migrate = a_task(MigrateStreamingJobOperator, dying)
    with pytest.raises(Killed):
        migrate.execute(a_context("migrate"))
    world.logs.gone.add("old")
    settled = a_task(SettleMigrationOperator, hook).execute(a_context("settle"))
    assert settled["where"] == "new"
    assert StoreProducerSwitch(world.store, f"{world.job}/producers.json").read() == "release_new"


def test_settling_a_migration_that_never_began_touches_nothing(world: World, hook: WorldHook):
    world.start()
    settled = a_task(SettleMigrationOperator, hook).execute(a_context("settle"))
    assert settled["where"] == "untouched"
    assert StoreProducerSwitch(world.store, f"{world.job}/producers.json").read() is None


@pytest.mark.parametrize("how", ["watch", "settle"])
def test_migration_whose_run_is_gone_is_settled_by_who_looks_after_the_job(
    world: World, hook: WorldHook, how: str, monkeypatch: pytest.MonkeyPatch
):
    world.start()
    dying = WorldHook(world, DyingStore(world.store, only="-translate.json"))
    with pytest.raises(Killed):
        a_task(MigrateStreamingJobOperator, dying).execute(a_context("migrate"))
    assert StoreProducerSwitch(world.store, f"{world.job}/producers.json").is_held()
    if how == "watch":
        monkeypatch.setattr(migration, "is_abandoned", lambda *_: True)  # it would look for two minutes
        with_hook(WatchStreamingJobOperator, hook, task_id="orders", job=world.job).execute(
            a_context("orders")
        )
    else:
        settle = with_hook(SettleStreamingJobOperator, hook, task_id="settle", job=world.job, now="True")
        (settled,) = settle.execute(a_context("settle"))
        assert settled["where"] == "old"
        assert settled["what"].endswith("(in phase stop)")
        assert settle.execute(a_context("settle")) == []
    assert StoreProducerSwitch(world.store, f"{world.job}/producers.json").read() == "release_old"
    world.logs.produce(3)
    world.judge()
    late = a_task(MigrateStreamingJobOperator, hook)
    with pytest.raises(AirflowFailException, match="MIGRATION_ENDED"):
        late.execute(a_context("migrate"))


def test_preflight_shows_what_it_found_and_refuses(world: World, hook: WorldHook):
    world.start()
    world.logs.new_cluster_id = "old"
    context = a_context("pre_flight")
    with pytest.raises(AirflowFailException, match="two clusters were expected"):
        a_task(PreflightMigrationOperator, hook).execute(context)
    assert (
        "| clusters | refusal | Both connections lead to cluster old; two clusters were expected. |"
        in context["ti"].xcoms["markdown"]
    )


def test_window_looks_once_more_because_approvals_take_time(world: World, hook: WorldHook):
    world.start()
    StoreProducerSwitch(world.store, f"{world.job}/producers.json").apply("hold", 1)  # another migration
    with pytest.raises(AirflowFailException, match="Producers are held already"):
        a_task(MigrateStreamingJobOperator, hook).execute(a_context("migrate"))
    settled = a_task(SettleMigrationOperator, hook).execute(a_context("settle"))
    assert settled["where"] == "untouched"


@pytest.mark.parametrize(
    ("timeouts", "words"),
    [
        ({"hold": 3}, "BAD_INPUT.*time-outs among .*first_commit_timeout_s.*found hold"),
        ({"hold_timeout_s": "a minute"}, "BAD_INPUT.*time-out hold_timeout_s to be a number.*'a minute'"),
        ({"hold_timeout_s": "nan"}, "BAD_INPUT.*time-out hold_timeout_s to be a number of seconds above 0"),
    ],
)
def test_timeout_that_is_misspelt_or_no_number_of_seconds_is_refused(
    world: World, hook: WorldHook, timeouts: dict[str, object], words: str
):
    world.start()
    with pytest.raises(AirflowFailException, match=words):
        a_task(MigrateStreamingJobOperator, hook, told={"timeouts": timeouts}).execute(a_context("migrate"))


def test_job_that_never_ran_cannot_be_migrated(world: World, hook: WorldHook):
    with pytest.raises(AirflowFailException, match="JOB_UNKNOWN"):
        a_task(MigrateStreamingJobOperator, hook).execute(a_context("migrate"))


def test_answer_that_the_form_has_no_field_for_is_refused_before_the_window(world: World, hook: WorldHook):
    world.start()
    unknown = a_task(PreflightMigrationOperator, hook, told={"source_topics": "orders"})
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*any of allow.*found source_topics='orders'"):
        unknown.execute(a_context("check"))
    unnamed = a_task(PreflightMigrationOperator, hook, told={"target_kafka_conn_id": ""})
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*two connections; found 'old' and ''"):
        unnamed.execute(a_context("check"))


def test_migration_that_is_told_the_target_only_finds_the_rest_and_moves(
    world: World, hook: WorldHook, connections: SimpleNamespace
):
    extra = {**connections.extra, "savepoint_root": "s3://savepoints/jobs", "kafka_connections": "new,old"}
    connections.set("flinkstyle_default", "flinkstyle", extra, password=SIGNING_KEY)
    world.start()
    told = {"source_kafka_conn_id": None, "mirror": None, "way": "proved"}
    report = a_task(MigrateStreamingJobOperator, hook, told=told).execute(a_context("migrate"))
    moving = hook.seen[-1]
    assert (moving.source.conn_id, moving.target.conn_id, moving.script_servers) == ("old", "new", "old:9092")
    assert (moving.isolation, moving.mirror.source_alias, moving.mirror.target_alias) == (
        *("read_committed", "old", "new"),
    )
    assert world.board.current().value.generation == report["generation"]


def test_cluster_to_leave_that_nothing_leads_to_is_asked_for(world: World, hook: WorldHook):
    world.start()
    unnamed = a_task(PreflightMigrationOperator, hook, told={"source_kafka_conn_id": ""})
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*source_kafka_conn_id.*kafka_connections"):
        unnamed.execute(a_context("check"))


def test_answers_that_are_no_mapping_are_refused(world: World, hook: WorldHook):
    world.start()
    task = {"task_id": "check", "job": world.job, "migration": "{'source_kafka_conn_id': 'old'}"}
    with pytest.raises(AirflowFailException, match=r"BAD_INPUT.*found migration="):
        with_hook(PreflightMigrationOperator, hook, **task).execute(a_context("check"))


def test_answer_without_a_field_stops_no_window_that_has_begun(world: World, hook: WorldHook):
    world.start()
    dying = WorldHook(world, DyingStore(world.store, only="-release.json"))
    with pytest.raises(Killed):
        a_task(MigrateStreamingJobOperator, dying).execute(a_context("migrate"))
    settle = a_task(SettleMigrationOperator, hook, told={"source_topics": "orders"})
    assert settle.execute(a_context("settle"))["where"] == "new"
