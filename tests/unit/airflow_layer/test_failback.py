"""The way back from a finished migration, without brokers."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks import approval, migration
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.jobs.answers.rules import mirror_settings
from airflow_flinkstyle.jobs.migration.approved import Approved
from airflow_flinkstyle.jobs.migration.fail_back import (
    FailBack,
    FinishedMigration,
    fill_back,
    last_migration,
    mirror_begins,
    require_there,
    topics_back,
)
from airflow_flinkstyle.jobs.migration.form import MigrationForm
from airflow_flinkstyle.jobs.migration.producers import StoreProducerSwitch
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.mirror.found import UNNAMED
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.verdict import Chosen, Exact, Verdict
from airflow_flinkstyle.rewrite.plan import OffsetRewritePlan
from airflow_flinkstyle.rewrite.rows import PartitionMove
from airflow_flinkstyle.types import BatchId, NextOffset
from testbed.keys import SIGNER
from tests.unit.airflow_layer.conftest import WorldHook

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow
FOLDER = Path(__file__).resolve().parents[3] / "dags"


def a_move(topic: str, target_topic: str, after: Verdict | None = None) -> PartitionMove:
    return PartitionMove(
        query="totals",
        source="0",
        topic=topic,
        target_topic=target_topic,
        partition=0,
        before=NextOffset(9),
        after=after or Exact(NextOffset(17)),
    )


def a_plan(*moves: PartitionMove) -> OffsetRewritePlan:
    log = LogRange(start=NextOffset(3), end=NextOffset(20), last_stable=NextOffset(20))
    topics = {move.target_topic: TopicView(topic_id="t", partitions={0: log}) for move in moves}
    return OffsetRewritePlan(
        savepoint_id="sp-1",
        job="shop",
        batches={"totals": BatchId(7)},
        target=ClusterView(cluster_id="new", topics=topics),
        moves=moves,
        source_cluster_id="old",
    )


def test_renamed_topics_get_their_names_back():
    plan = a_plan(a_move("orders", "old.orders"), a_move("items", "old.items"))
    assert topics_back(plan) == {"old.orders": "orders", "old.items": "items"}


@pytest.mark.parametrize(
    "moves",
    [
        (a_move("a + b", "both"),),
        (a_move("a", "one"), a_move("a", "two")),
        (a_move("a", "both"), a_move("b", "both")),
    ],
)
def test_merged_and_split_topics_cannot_be_taken_back_one_by_one(moves: tuple[PartitionMove, ...]):
    with pytest.raises(BadInputError, match="one by one"):
        topics_back(a_plan(*moves))


def test_mirror_back_begins_at_the_end_that_was_proved_and_nowhere_else():
    picked = Chosen(NextOffset(0), None, None)
    plan = a_plan(a_move("orders", "orders"), a_move("items", "items", picked))
    assert mirror_begins(plan) == {("orders", 0): 20}


def test_many_topics_are_counted_in_the_approval():
    rename = {f"old.t{number:02d}": f"t{number:02d}" for number in range(60)}
    text = FailBack(migration_id="m", rename=rename, noted={}).as_markdown()
    assert "old.t00 -> t00" in text
    assert "and 10 more" in text


def a_form(world: World, **fields: Any) -> MigrationForm:
    return MigrationForm(job=world.job, source_kafka_conn_id="a", target_kafka_conn_id="b", **fields)


@pytest.fixture(autouse=True)
def clusters(connections: SimpleNamespace) -> None:
    for name in ("a", "b"):
        connections.set(name, "kafka", {"bootstrap.servers": f"{name}:9092"})


def test_producers_are_released_to_the_cluster_that_the_job_goes_back_to(world: World):
    hook, told = StreamingJobHook(), StoreProducerSwitch(world.store, f"{world.job}/producers.json")
    back = migration.producer_switch(hook, approval.read(hook, a_form(world, back=True)))
    for token, (said, meant) in enumerate(
        [("hold", "hold"), ("release_new", "release_old"), ("release_old", "release_new")]
    ):
        back.apply(said, token)  # type: ignore[arg-type]
        assert (told.read(), back.read()) == (meant, said)
    assert migration.producer_switch(hook, approval.read(hook, a_form(world))).read() == "release_new"


def test_only_a_migration_that_has_finished_can_be_reversed(world: World):
    with pytest.raises(BadInputError, match="found none"):
        last_migration(world.store, world.job, signer=SIGNER)
    world.start()
    quick = {"steady_window_s": 0.01, "hold_timeout_s": 0.2, "first_commit_timeout_s": 0.2}
    hook = WorldHook(world)
    report = migration.cutover(hook, approval.read(hook, a_form(world, timeouts=quick)), "m1").run()
    found = last_migration(world.store, world.job, signer=SIGNER)
    assert (found.migration_id, found.plan) == ("m1", report.plan)
    with pytest.raises(BadInputError, match="m2"):
        last_migration(world.store, world.job, "m2", signer=SIGNER)
    with pytest.raises(BadInputError, match="found none"):  # cleared after it had moved
        last_migration(world.store, world.job, signer=SIGNER, besides="m1")


def test_newest_migration_is_that_of_the_newest_generation_whatever_the_clocks_say(world: World):
    world.start()
    quick = {"steady_window_s": 0.01, "hold_timeout_s": 0.2, "first_commit_timeout_s": 0.2}
    hook = WorldHook(world)
    migration.cutover(hook, approval.read(hook, a_form(world, timeouts=quick)), "m1").run()
    for key in [info.key for info in world.store.list(f"{world.job}/migrations/m1")]:
        if key.endswith("-attempt.json"):
            continue
        values = json.loads(world.store.read(key))
        values["result_at_ms"] = 4_000_000_000_000
        if key.endswith("-takeover.json"):
            values["result"]["generation"] = 1
        world.store.write(key.replace("m1", "m0"), json.dumps(values).encode())
    assert last_migration(world.store, world.job, signer=SIGNER).migration_id == "m1"


def test_finished_migration_answers_what_the_form_of_the_way_back_leaves_open(world: World):
    world.start()
    hook, mirror = WorldHook(world), {"source_alias": "dc1", "target_alias": "dc2"}
    quick = {"steady_window_s": 0.01, "hold_timeout_s": 0.2, "first_commit_timeout_s": 0.2}
    there = a_form(world, timeouts=quick, mirror=mirror, isolation="read_committed")
    asked = Approved(migration=approval.read(hook, there), told=there.told())
    approval.store(hook, asked, "m1")
    migration.cutover(hook, asked.migration, "m1").run()
    finished = last_migration(world.store, world.job, signer=SIGNER)

    form = fill_back(MigrationForm(job=world.job, mirror={"replication_policy": None}), finished)
    assert (form.source_kafka_conn_id, form.target_kafka_conn_id) == ("b", "a")
    assert form.isolation == "read_committed"
    assert form.mirror == {"source_alias": "dc2", "target_alias": "dc1"}
    assert MigrationForm.of(world.job, form.answers()) == form
    named = fill_back(replace(form, source_kafka_conn_id="c", mirror={"source_alias": "x"}), finished)
    assert (named.source_kafka_conn_id, named.mirror["source_alias"]) == ("c", "x")

    unnamed = replace(asked.migration, mirror=replace(asked.migration.mirror, target_alias=UNNAMED))
    form = fill_back(MigrationForm(job=world.job), replace(finished, approved=unnamed))
    assert form.mirror == {"target_alias": "dc1"}, "a person must say what that cluster is called"
    assert fill_back(a_form(world), replace(finished, approved=None)) == a_form(world)

    def mirror_after(*, keeps_offsets: bool = False) -> object:
        mirror = MirrorSettings(source_alias="source", target_alias="target", keeps_offsets=keeps_offsets)
        approved = replace(asked.migration, mirror=mirror)
        return fill_back(MigrationForm(job=world.job), replace(finished, approved=approved)).mirror

    assert mirror_after() == {"source_alias": "target", "target_alias": "source"}, "real names, of many"
    assert mirror_after(keeps_offsets=True) == {}, "nobody named a mirror back"


def test_migration_whose_job_reads_another_cluster_by_now_is_not_reversed(world: World):
    world.start()
    plan = a_plan(a_move("orders", "orders"))
    with pytest.raises(BadInputError, match=f"{plan.target_cluster_id}, where migration m1 .* found old"):
        require_there(world.board, FinishedMigration(migration_id="m1", plan=plan, fence=None))
    there = replace(plan, target=replace(plan.target, cluster_id="old"))
    require_there(world.board, FinishedMigration(migration_id="m1", plan=there, fence=None))


def test_forms_answers_and_the_topics_to_read_reach_the_window():
    dag = runpy.run_path(str(FOLDER / "fail_back.py"))["dag"]
    params = {**{name: dag.params[name] for name in dag.params if name != "job"}, "job": "orders"}
    told = {
        "source_kafka_conn_id": "kafka_new",
        "target_kafka_conn_id": "kafka_old",
        "mirror": {"source_alias": "new", "target_alias": "old"},
        "rename": {"old.orders": "orders"},
        "back": True,
    }
    begun = {"migration_id": "m1", "migration": told}
    pulled = SimpleNamespace(xcom_pull=lambda task_ids, key=None: begun if task_ids == "begin" else "sp-1")
    tasks = {name: dag.get_task(name) for name in ("begin", "migrate", "plan")}
    for task in tasks.values():
        task.render_template_fields({"params": params, "ti": pulled})
    begin, form = tasks["begin"], tasks["migrate"].form()
    assert (begin.migration_id, begin.topics, begin.mirror_timeout_s) == (None, "original", 90)
    assert (begin.form().rename, begin.form().source_kafka_conn_id) == (None, None)
    assert (form.rename, form.back, form.way) == ({"old.orders": "orders"}, True, "proved")
    assert (form.source_kafka_conn_id, form.target_kafka_conn_id) == ("kafka_new", "kafka_old")
    assert mirror_settings(form.mirror).positions_topic == "mm2-offsets.new.internal"
    assert tasks["plan"].form() == form
