from __future__ import annotations

import json
import re

import pytest

from airflow_flinkstyle.agent.core.errors import UNSUPPORTED_MODE
from airflow_flinkstyle.agent.core.stream_options import StreamOptions
from airflow_flinkstyle.agent.spark.wrapping import overrides_for, renamed_topics
from airflow_flinkstyle.protocol.records import KafkaOverride
from testbed.refusals import refuses

PREFIXED = {"orders": "old.orders", "items": "old.items"}


def test_subscribed_topics_are_renamed_split_and_merged_each_once() -> None:
    subscribed = {"subscribe": "orders, items"}
    assert renamed_topics(subscribed, PREFIXED) == {"subscribe": "old.orders,old.items"}
    split = {"orders": "orders-eu,orders-us", "items": "items"}
    assert renamed_topics(subscribed, split) == {"subscribe": "orders-eu,orders-us,items"}
    merged = dict.fromkeys(("orders", "items"), "all")
    assert renamed_topics(subscribed, merged) == {"subscribe": "all"}


def test_each_source_is_renamed_by_what_it_reads_itself() -> None:
    assert renamed_topics({"subscribe": "items"}, PREFIXED) == {"subscribe": "old.items"}
    assert renamed_topics({"subscribe": "other"}, PREFIXED) == {}
    assert renamed_topics({"subscribe": "orders"}, {}) == {}


def test_assigned_partitions_go_with_their_topic() -> None:
    found = renamed_topics({"assign": '{"orders": [0, 2], "other": [1]}'}, PREFIXED)
    assert json.loads(found["assign"]) == {"old.orders": [0, 2], "other": [1]}


@pytest.mark.parametrize("rename", [{"orders": "a,b"}, {"orders": "all", "items": "all"}])
def test_assigned_partitions_of_split_or_merged_topics_are_refused(rename: dict[str, str]) -> None:
    with refuses(UNSUPPORTED_MODE, match="split or merged"):
        renamed_topics({"assign": '{"orders": [0], "items": [0]}'}, rename)


def test_pattern_with_one_prefix_before_all_topics_also_finds_topics_to_come() -> None:
    found = renamed_topics({"subscribepattern": "orders|items.*"}, PREFIXED)["subscribePattern"]
    matching = [t for t in ("old.orders", "old.items-2", "orders", "oldXorders") if re.fullmatch(found, t)]
    assert matching == ["old.orders", "old.items-2"]


def test_pattern_over_topics_renamed_one_by_one_becomes_their_new_names() -> None:
    rename = {"orders": "sales.eu", "orders-2": "orders-2", "items": "things"}
    found = renamed_topics({"subscribepattern": "orders.*"}, rename)["subscribePattern"]
    topics = ("sales.eu", "orders-2", "orders", "things", "salesXeu")
    assert [t for t in topics if re.fullmatch(found, t)] == ["sales.eu", "orders-2"]


def test_pattern_stays_where_no_topic_it_matches_is_renamed() -> None:
    rename = {"orders": "sales", "items": "items"}
    assert renamed_topics({"subscribepattern": "items.*"}, rename) == {}


def test_rule_renames_what_the_script_reads_and_its_options_win() -> None:
    rule = KafkaOverride(
        role="source", servers="s", options={"kafka.bootstrap.servers": "t"}, rename=PREFIXED
    )
    seen = StreamOptions()
    seen.format = "kafka"
    seen.set_options({"kafka.bootstrap.servers": "s", "subscribe": "orders"})
    found = overrides_for([rule], "source", seen)
    assert found == {"kafka.bootstrap.servers": "t", "subscribe": "old.orders"}
    chosen = KafkaOverride(role="source", servers="s", options={"subscribe": "x"}, rename=PREFIXED)
    assert overrides_for([chosen], "source", seen) == {"subscribe": "x"}
