"""How far a batch has read, of several sources of one group."""

from __future__ import annotations

from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.sinks.source_offsets import read_by_all


def test_group_is_committed_no_further_than_every_source_of_a_topic_has_read() -> None:
    # A topic that a query joins with itself: each source has a pace of its own.
    ahead, behind = (
        Offsets({("orders", 0): 9, ("orders", 1): 4}),
        Offsets({("orders", 0): 5, ("refunds", 0): 2}),
    )
    expected = {("orders", 0): 5, ("orders", 1): 4, ("refunds", 0): 2}
    assert dict(read_by_all([ahead, behind])) == dict(read_by_all([behind, ahead])) == expected
    assert not read_by_all([])
