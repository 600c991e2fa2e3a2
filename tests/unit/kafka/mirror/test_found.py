"""How MirrorMaker calls two clusters, by the names of its topics."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.kafka.mirror import found
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings

THERE = {
    *("orders", "mm2-offsets.dc-1.internal", "mm2-configs.dc-1.internal", "dc-1.checkpoints.internal"),
    *("mm2-offsets.eu.west.internal", "heartbeats", "__consumer_offsets"),
}


def test_aliases_are_read_off_the_topics_that_mirrormaker_names():
    assert found.aliases(found._POSITIONS, THERE) == ("dc-1", "eu.west")
    assert found.aliases(found._CHECKPOINTS, THERE) == ("dc-1",)
    assert found.aliases(found._SYNCS, {"mm2-offset-syncs.dc2.internal", "orders"}) == ("dc2",)
    assert found.aliases(found._SYNCS, THERE) == ()


def test_topics_are_named_as_the_settings_name_them():
    settings = MirrorSettings(source_alias="a.b", target_alias="c")
    assert found.aliases(found._POSITIONS, [settings.positions_topic]) == ("a.b",)
    assert found.aliases(found._CHECKPOINTS, [settings.checkpoints_topic]) == ("a.b",)
    assert found.aliases(found._SYNCS, [settings.syncs_topic]) == ("c",)


@pytest.mark.parametrize(
    ("there", "policy"),
    [
        ({"orders"}, "identity"),
        ({"a.orders"}, "default"),
        ({"a.orders", "orders"}, "identity"),
        ({"b.orders"}, "identity"),
        (set(), "identity"),
    ],
)
def test_policy_is_told_by_the_names_of_the_copies(there: set[str], policy: str):
    assert found.policy_of(["orders"], there, ["a"]) == policy
