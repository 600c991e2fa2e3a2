from __future__ import annotations

from typing import Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.migration import moved_spec, renamed_again
from airflow_flinkstyle.hooks.ways import way_rules
from airflow_flinkstyle.jobs.spec import JobSpec
from airflow_flinkstyle.kafka.start.kinds import AtOffsets, Latest
from airflow_flinkstyle.protocol.records import KafkaOverride

pytestmark = pytest.mark.airflow

SERVERS = "kafka.bootstrap.servers"
SPEC = JobSpec(name="orders", script="orders.py", checkpoint_root="/checkpoints")


def moved(spec: JobSpec, old: str, new: str, rename: dict[str, str]) -> JobSpec:
    return moved_spec(spec, old_servers=old, script_servers="a:1", options={SERVERS: new}, rename=rename)


def test_sources_left_out_follow_the_default_and_the_others_only_differ_where_they_say() -> None:
    rules = way_rules(way="new_identity", start="latest", sources={"totals/1": {"way": "proved"}})
    assert rules.default.way == "new_identity"
    assert rules.sources["totals/1"].way == "proved"
    assert rules.sources["totals/1"].start == rules.default.start
    assert rules.default.start is not None
    assert rules.default.start.default == Latest()


def test_start_may_be_the_offsets_of_a_savepoint() -> None:
    known = AtOffsets({("a", 0): 3}, origin="savepoint:sp-1")
    rules = way_rules(way="new_identity", start="savepoint:sp-1", savepoint=lambda _text: known)
    assert rules.default.start is not None
    assert rules.default.start.default == known


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"way": "guess"}, "a way among proved, new_identity, producers_first"),
        ({"topology": "any"}, "a topology among refuse, repartitioned"),
        ({"start": "somewhere"}, "start position"),
        ({"sources": {"totals/0": {"offset": 3}}}, "for source totals/0"),
        ({"sources": {"totals/0": {"way": "guess"}}}, "a way among"),
    ],
)
def test_rules_that_cannot_be_understood_say_what_was_expected(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        way_rules(**wrong)


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
