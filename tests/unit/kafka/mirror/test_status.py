"""MirrorMaker's notes set against what both clusters hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
from airflow_flinkstyle.kafka.mirror.status import MirrorNotes, MirrorStatus, is_heartbeats, status_of
from airflow_flinkstyle.kafka.mirror.topics import Checkpoint, OffsetSync
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

MIRROR = MirrorSettings(source_alias="old", target_alias="new", replication_policy="default")
NOW_MS = 1_790_000_000_000


def a_view(topic: str, ends: Mapping[int, int]) -> ClusterView:
    logs = {
        number: LogRange(start=NextOffset(0), end=NextOffset(end), last_stable=NextOffset(end))
        for number, end in ends.items()
    }
    return ClusterView(cluster_id="c", topics={topic: TopicView(topic_id="id", partitions=logs)})


def a_sync(partition: int, upstream: int, downstream: int, *, age_s: int) -> OffsetSync:
    return OffsetSync(
        topic="t",
        partition=partition,
        upstream=upstream,
        downstream=downstream,
        noted_at_ms=NOW_MS - 1000 * age_s,
    )


def a_checkpoint(topic: str, upstream: int, downstream: int) -> Checkpoint:
    return Checkpoint(
        group="g",
        target_topic=topic,
        partition=0,
        upstream=upstream,
        downstream=downstream,
        noted_at_ms=NOW_MS,
    )


def a_status(
    *, positions: Mapping[int, int], lag: Mapping[int, int], copies: Mapping[int, int], **notes: object
) -> MirrorStatus:
    """Topic ``t`` with two partitions of ten records each."""
    found: dict[str, object] = {"syncs": {}, "checkpoints": (), "absent": (), **notes}
    return status_of(
        MIRROR,
        MirrorNotes(
            positions=Offsets({("t", number): NextOffset(at) for number, at in positions.items()}), **found
        ),  # type: ignore[arg-type]
        {("t", number): records for number, records in lag.items()},
        source=a_view("t", {0: 10, 1: 10}),
        target=a_view("old.t", copies),
        looked_at_ms=NOW_MS,
    )


def test_mirror_is_in_sync_only_if_every_partition_is():
    in_sync = a_status(positions={0: 10, 1: 10}, lag={0: 0, 1: 0}, copies={0: 12, 1: 10})
    behind = a_status(positions={0: 10, 1: 5}, lag={0: 0, 1: 5}, copies={0: 12, 1: 5})
    halved = a_status(positions={0: 10}, lag={0: 0, 1: 0}, copies={0: 12})
    assert [status.in_sync for status in (in_sync, behind, halved)] == [True, False, False]
    assert [(one.partition, one.lag_records) for one in behind.partitions if not one.in_sync] == [(1, 5)]
    assert [(one.mirrored_to, one.target_end) for one in halved.partitions] == [(10, 12), (None, None)]
    assert halved.partitions[1].target_topic == "old.t"


def test_mirror_without_a_partition_is_not_in_sync():
    """Another alias or connector has no positions: nothing would be behind."""
    nothing = ClusterView(cluster_id="c", topics={})
    notes = MirrorNotes(positions=Offsets(), syncs={}, checkpoints=(), absent=())
    assert not status_of(MIRROR, notes, {}, source=nothing, target=nothing, looked_at_ms=NOW_MS).in_sync


def test_only_mirrormakers_own_heartbeats_are_left_out():
    assert [is_heartbeats(topic) for topic in ("heartbeats", "old.heartbeats", "sensor-heartbeats")] == [
        *(True, True, False),
    ]


def test_newest_sync_is_the_last_written_and_its_age_counts_from_now():
    syncs = {("t", 0): (a_sync(0, 3, 4, age_s=90), a_sync(0, 9, 11, age_s=60)), ("t", 1): ()}
    status = a_status(positions={0: 10, 1: 10}, lag={0: 0, 1: 0}, copies={0: 12, 1: 10}, syncs=syncs)
    assert status.partitions[0].last_sync == a_sync(0, 9, 11, age_s=60)
    assert status.partitions[1].last_sync is None
    assert status.newest_sync_age_s == 60.0
    without = a_status(positions={}, lag={0: 0, 1: 0}, copies={})
    assert without.newest_sync_age_s is None


def test_groups_show_what_they_would_read_on_either_side_and_foreign_topics_are_left_out():
    checkpoints = (a_checkpoint("old.t", 8, 7), a_checkpoint("old.other", 1, 1), a_checkpoint("t", 1, 1))
    status = a_status(
        positions={0: 10, 1: 10}, lag={0: 0, 1: 0}, copies={0: 12, 1: 10}, checkpoints=checkpoints
    )
    (group,) = status.groups
    assert (group.topic, group.upstream, group.downstream) == ("t", 8, 7)
    assert (group.unread_on_source, group.unread_on_target) == (2, 5)


def test_group_whose_topic_was_created_again_has_no_number_of_unread_records():
    in_sync: dict[str, Any] = {"positions": {0: 9, 1: 9}, "lag": {0: 0, 1: 0}, "copies": {0: 12, 1: 10}}
    checkpoints = (a_checkpoint("old.t", 8, 13),)
    status = a_status(**in_sync, checkpoints=checkpoints)
    assert [(one.unread_on_source, one.unread_on_target) for one in status.groups] == [(2, None)]
    again = a_status(**in_sync, checkpoints=(a_checkpoint("old.t", 90, 7),))
    assert [(one.unread_on_source, one.unread_on_target) for one in again.groups] == [(None, 5)]
