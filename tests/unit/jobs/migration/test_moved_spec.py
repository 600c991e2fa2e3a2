from __future__ import annotations

from airflow_flinkstyle.jobs.migration.moved_spec import moved_spec, renamed_again
from airflow_flinkstyle.jobs.spec import JobSpec
from airflow_flinkstyle.protocol.records import KafkaOverride

SPEC = JobSpec(name="orders", script="orders.py", checkpoint_root="/checkpoints")
SERVERS = "kafka.bootstrap.servers"


def move(spec: JobSpec, old: str, new: str, script: str | None = None) -> JobSpec:
    return moved_spec(spec, old_servers=old, script_servers=script or old, options={SERVERS: new})


def test_moving_a_job_sets_the_servers_where_the_script_names_the_old_ones():
    (rule,) = move(SPEC, "a:1", "b:2").overrides
    assert (rule.role, rule.servers, rule.options) == ("source", "a:1", {SERVERS: "b:2"})


def test_moving_again_changes_nothing():
    moved = move(SPEC, "a:1", "b:2")
    assert move(moved, "a:1", "b:2") == moved


def test_second_migration_still_matches_what_the_script_writes():
    (rule,) = move(move(SPEC, "a:1", "b:2"), "b:2", "c:3").overrides
    assert (rule.servers, rule.options) == ("a:1", {SERVERS: "c:3"})


def test_script_may_write_the_servers_otherwise_than_the_connection():
    (rule,) = move(SPEC, "10.0.0.1:9092", "b:2", script="kafka:9092").overrides
    assert rule.servers == "kafka:9092"


def moved(spec: JobSpec, old: str, new: str, rename: dict[str, str]) -> JobSpec:
    return moved_spec(spec, old_servers=old, script_servers="a:1", options={SERVERS: new}, rename=rename)


def test_job_that_moves_and_comes_back_reads_what_its_script_says() -> None:
    there = moved(SPEC, "a:1", "b:1", {"orders": "old.orders"})
    assert there.overrides == (
        KafkaOverride(
            role="source", servers="a:1", options={SERVERS: "b:1"}, rename={"orders": "old.orders"}
        ),
    )
    back = moved(there, "b:1", "a:1", {"old.orders": "orders"})
    assert back.overrides == (KafkaOverride(role="source", servers="a:1", options={SERVERS: "a:1"}),)
    on = moved(there, "b:1", "c:1", {"old.orders": "b.old.orders"})
    assert on.overrides[0].rename == {"orders": "b.old.orders"}
    assert moved(there, "b:1", "c:1", {}).overrides[0].rename == {"orders": "old.orders"}


def test_topics_renamed_again_may_be_split_and_merged() -> None:
    assert renamed_again({"a": "x,y"}, {"x": "z", "y": "z"}) == {"a": "z"}
    assert renamed_again({"a": "x", "b": "b"}, {"x": "y,w", "b": "b"}) == {"a": "y,w", "b": "b"}
    assert renamed_again({}, {"a": "a"}) == {}
