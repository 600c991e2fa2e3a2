"""What was approved is what is applied: whatever becomes of files, the form, the DAG and connections."""

from __future__ import annotations

import json
import logging
import re
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.hooks.keys import run_key
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.migration.approved import Approved
from airflow_flinkstyle.jobs.migration.cutover import PHASES
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch, TokenCounter
from airflow_flinkstyle.kafka.start.kinds import AtOffsets
from airflow_flinkstyle.operators import (
    MigrateStreamingJobOperator,
    PlanMigrationOperator,
    PreflightMigrationOperator,
    SettleMigrationOperator,
    TakeSavepointOperator,
    VerifyMigrationOperator,
)
from airflow_flinkstyle.operators.migrate import MigrationOperator
from testbed.keys import SIGNER
from tests.unit.airflow_layer.conftest import WorldHook, a_context, with_hook
from tests.unit.jobs.cutovers import DyingStore, Killed

if TYPE_CHECKING:
    from airflow_flinkstyle.jobs.migration.approved import Migration
    from tests.unit.airflow_layer.conftest import Operator
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow
DAGS = Path(__file__).resolve().parents[3] / "dags"


class Stage:
    """A running job, a hot savepoint, a form whose start stands in a file; and what each task worked with."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.file = world, folder / "starts.json"
        self.hook = WorldHook(world)
        self.place(17)
        self.answers: dict[str, Any] = {
            "source_kafka_conn_id": "old",
            "target_kafka_conn_id": "new",
            "sources": {"orders/0": {"way": "new_identity", "start": f"file:{self.file}"}},
            "timeouts": {"steady_window_s": 0.01, "hold_timeout_s": 0.2, "first_commit_timeout_s": 2},
        }
        world.start()
        self.hot = TakeSavepointOperator(task_id="hot", job=world.job).execute(a_context("hot"))

    def place(self, offset: int) -> None:
        self.file.write_text(json.dumps({"orders": {"0": offset}}))

    def task(self, operator: type[Operator], /, hook: WorldHook | None = None, **more: Any) -> Operator:
        """Return a task that is told the form's answers, or others in ``told``."""
        told = {**self.answers, **more.pop("told", {})}
        return with_hook(
            operator, hook or self.hook, task_id="task", job=self.world.job, migration=told, **more
        )

    def plan(self, **changed: Any) -> str:
        context = a_context("plan")
        self.task(PlanMigrationOperator, savepoint_id=self.hot, told=changed).execute(context)
        shown: str = context["ti"].xcoms["markdown"]
        return shown

    def migrate(self, *, dies_in: str | None = None, **changed: Any) -> dict[str, Any]:
        """Run the window; it may die once it has journalled that it begins a phase."""
        hook = self.hook
        if dies_in:
            hook = WorldHook(self.world, DyingStore(self.world.store, after=True, only=f"-{dies_in}.json"))
        operator = MigrateStreamingJobOperator
        return self.task(operator, hook, hot_savepoint_id=self.hot, told=changed).execute(
            a_context("migrate")
        )

    def settle(self, **changed: Any) -> dict[str, Any]:
        return self.task(SettleMigrationOperator, told=changed).execute(a_context("settle"))

    @property
    def seen(self) -> list[Migration]:
        """What each task worked with."""
        return self.hook.seen

    @property
    def journal(self) -> CutoverJournal:
        return CutoverJournal(self.world.store, self.world.job, run_key(a_context()), PHASES, signer=SIGNER)

    def producers(self) -> str | None:
        return StoreProducerSwitch(self.world.store, f"{self.world.job}/producers.json").read()


@pytest.fixture
def stage(world: World, connections: SimpleNamespace, tmp_path: Path) -> Stage:
    for name in ("old", "new"):
        connections.set(name, "kafka", {"bootstrap.servers": f"{name}:9092"})
    return Stage(world, tmp_path)


def starts(moving: Migration) -> dict[tuple[str, int], int]:
    rules = moving.strategies.sources["orders/0"].start
    assert rules is not None
    assert isinstance(rules.default, AtOffsets)
    return dict(rules.default.offsets)


def test_file_that_is_edited_after_the_approval_changes_nothing(stage: Stage):
    stage.task(PreflightMigrationOperator).execute(a_context("pre_flight"))
    shown = stage.plan()
    stage.place(99)
    stage.migrate()
    stage.task(VerifyMigrationOperator, timeout_s=5).execute(a_context("verify"))
    stage.settle()
    assert {json.dumps(starts(one)[("orders", 0)]) for one in stage.seen} == {"17"}
    approved = Approved.from_fields(stage.journal.approved() or {})
    assert all(one == approved.migration for one in stage.seen)
    assert f"`{approved.digest}`" in shown
    assert f"file:{stage.file} (1 partitions, as read before the approval)" in shown
    assert "cluster new" in shown


@pytest.mark.parametrize(("dies_in", "where"), [("stop", "old"), ("release", "new")])
def test_file_that_vanished_before_the_last_task_keeps_no_producers_held(
    stage: Stage, dies_in: str, where: str
):
    stage.plan()
    stage.file.unlink()
    with pytest.raises(Killed):
        stage.migrate(dies_in=dies_in)
    assert stage.producers() == "hold"
    assert stage.settle()["where"] == where
    assert stage.producers() == f"release_{where}"
    stage.world.logs.produce(3)
    stage.world.judge()


def test_task_that_is_told_something_else_is_refused_by_name_before_the_window(stage: Stage):
    stage.plan()
    other = {"sources": {"orders/0": {"way": "new_identity", "start": "latest"}}, "allow": "exact,bounded"}
    with pytest.raises(
        AirflowFailException, match=r"NOT_AS_APPROVED.*allow: approved .*sources: "
    ) as refused:
        stage.migrate(**other)
    assert "found 'exact,bounded'" in str(refused.value)
    with pytest.raises(AirflowFailException, match="NOT_AS_APPROVED"):
        stage.plan(**other)
    with pytest.raises(AirflowFailException, match="NOT_AS_APPROVED"):
        stage.task(PreflightMigrationOperator, told=other).execute(a_context())
    assert not stage.journal.has_begun
    assert stage.settle(**other)["where"] == "untouched"
    assert stage.producers() is None
    assert stage.migrate()["generation"] == 2, "what was approved still can be applied"


def test_window_that_has_begun_is_completed_as_approved_whatever_its_retry_is_told(
    stage: Stage, caplog: pytest.LogCaptureFixture
):
    stage.plan()
    with pytest.raises(Killed):
        stage.migrate(dies_in="release")
    edited = {"sources": None, "timeouts": {"hold": "nonsense"}, "fence": "acl"}
    with caplog.at_level(logging.WARNING):
        assert stage.migrate(**edited)["generation"] == 2
        assert stage.settle(**edited)["where"] == "new"
    assert re.search(r"what was approved .* is applied\. fence: approved 'passive', found 'acl'", caplog.text)
    assert stage.producers() == "release_new"
    assert len(set(map(id, stage.seen))) > 1
    assert all(one == stage.seen[0] for one in stage.seen)


def test_window_whose_approval_is_gone_is_not_settled_by_what_a_form_says(stage: Stage):
    stage.plan()
    with pytest.raises(Killed):
        stage.migrate(dies_in="release")
    (key,) = (info.key for info in stage.world.store.list() if info.key.endswith("/0-approved.json"))
    stage.world.store.delete(key)
    with pytest.raises(AirflowFailException, match="MESSAGE_FORMAT: An approved migration of format 1"):
        stage.settle()


def test_connection_that_leads_to_another_cluster_by_now_is_refused_before_the_window(stage: Stage):
    stage.plan()
    stage.world.logs.new_cluster_id = "another"
    with pytest.raises(AirflowFailException, match=r"CLUSTER_MISMATCH.*Connection new, as approved"):
        stage.migrate()
    assert not stage.journal.has_begun


def test_connection_that_is_gone_is_tried_without_a_login_and_fails_no_task_by_itself(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    stage.plan()
    monkeypatch.delenv("AIRFLOW_CONN_OLD")
    moving = Approved.from_fields(stage.journal.approved() or {}).migration
    found = StreamingJobHook().live_kafka(moving)
    assert (found.old.name, found.old.bootstrap_servers) == ("old", "old:9092")


def test_tasks_of_the_dag_are_told_the_same_once_the_form_is_filled_in(
    stage: Stage,
):
    dag = runpy.run_path(str(DAGS / "migrate_kafka_cluster.py"))["dag"]
    names = ("source_kafka_conn_id", "target_kafka_conn_id", "sources")
    answers = {**{name: stage.answers[name] for name in names}, **stage.answers["timeouts"]}
    answers |= {"job": stage.world.job, "source_alias": "none", "target_alias": "none"}
    del answers["steady_window_s"]  # no field of the form
    params = {**{name: dag.params[name] for name in dag.params if name not in answers}, **answers}
    pulled = SimpleNamespace(xcom_pull=lambda task_ids, key=None: stage.hot)
    tasks = [task for task in dag.tasks if isinstance(task, MigrationOperator)]
    for task in tasks:
        task.render_template_fields({"params": params, "ti": pulled})
    assert len(tasks) == 5
    assert all(task.form().told() == tasks[0].form().told() for task in tasks)
    stage.answers = dict(tasks[0].migration)
    stage.plan()
    stage.file.unlink()
    assert stage.migrate()["generation"] == 2
    assert stage.settle()["where"] == "new"
    assert starts(stage.seen[-1]) == {("orders", 0): 17}


def test_plan_with_a_refusal_stores_nothing_and_the_corrected_file_is_read_anew(stage: Stage):
    stage.world.logs.refuse = True
    with pytest.raises(AirflowFailException, match="MOVES_REFUSED"):
        stage.plan()
    assert stage.journal.approved() is None
    stage.world.logs.refuse = False
    stage.place(23)
    stage.plan()
    assert starts(Approved.from_fields(stage.journal.approved() or {}).migration) == {("orders", 0): 23}


def test_plan_that_is_tried_again_shows_what_was_stored(stage: Stage):
    first = stage.plan()
    stage.place(99)
    assert stage.plan() == first


def test_window_without_a_plan_task_stores_what_it_begins_with(stage: Stage):
    switch = StoreProducerSwitch(stage.world.store, f"{stage.world.job}/producers.json")
    tokens = TokenCounter(stage.world.store, stage.world.job)
    switch.apply("hold", tokens.next())  # another migration
    with pytest.raises(AirflowFailException, match="Producers are held already"):
        stage.migrate()
    switch.apply("release_old", tokens.next())
    assert stage.journal.approved() is None, "a file that is corrected now is read"
    stage.place(23)
    stage.migrate()
    stage.file.unlink()
    assert stage.settle()["where"] == "new"
    assert starts(stage.seen[-1]) == {("orders", 0): 23}


def test_nothing_is_read_of_the_form_by_a_last_task_whose_window_never_began(stage: Stage):
    stage.file.unlink()
    assert stage.settle(timeouts={"hold": "nonsense"})["where"] == "untouched"
    with pytest.raises(AirflowFailException, match="MIGRATION_ENDED"):
        stage.task(VerifyMigrationOperator).execute(a_context("verify"))


def test_secret_among_the_options_is_refused_and_never_stored(stage: Stage):
    login = {"kafka.sasl.jaas.config": 'x required password="hidden-59";'}
    with pytest.raises(AirflowFailException, match=r"kafka\.sasl\.jaas\.config"):
        stage.plan(kafka_options=login)
    assert not any(b"hidden-59" in stage.world.store.read(info.key) for info in stage.world.store.list())
