"""What changes while positions are proved, and what that makes of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.translation.cluster_snapshot import ClusterSnapshot, moved_between
from airflow_flinkstyle.kafka.translation.request import ProofRequest
from airflow_flinkstyle.kafka.verdict import Bounded, Exact, Refused
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from airflow_flinkstyle.kafka.verdict import Verdict

TP = ("t", 0)
REQUEST = ProofRequest(positions=Offsets({TP: 40}))


def a_view(start: int, end: int) -> ClusterView:
    log = LogRange(start=NextOffset(start), end=NextOffset(end), last_stable=NextOffset(end))
    return ClusterView(cluster_id="c", topics={"t": TopicView(topic_id="id", partitions={0: log})})


def a_snapshot(
    *, source: tuple[int, int] = (0, 50), target: tuple[int, int] = (0, 60), at: int = 49
) -> ClusterSnapshot:
    return ClusterSnapshot(source=a_view(*source), target=a_view(*target), mirrored=Offsets({TP: at}))


def moved(verdict: Verdict, after: ClusterSnapshot) -> Refused | None:
    return moved_between(REQUEST, a_snapshot(), after, {TP: verdict}).get(TP)


@pytest.mark.parametrize("verdict", [Exact(NextOffset(30)), Bounded(NextOffset(30), {"duplicate": 2})])
def test_position_that_the_target_deleted_while_it_was_proved_is_not_answered(verdict: Verdict):
    refused = moved(verdict, a_snapshot(target=(31, 60)))
    assert refused is not None
    assert "begins at 31" in refused.reason
    assert "found at 30" in refused.reason
    assert moved(verdict, a_snapshot(target=(30, 60))) is None, "all that is unread is still there"


def test_what_the_source_deletes_once_it_is_compared_changes_no_answer():
    assert moved(Exact(NextOffset(30)), a_snapshot(source=(45, 50))) is None


def test_refusal_is_looked_at_again_if_a_log_was_deleted_from_meanwhile():
    refused = Refused("deleted while they were compared", None)
    assert moved(refused, a_snapshot(source=(10, 50))) == refused
    assert moved(refused, a_snapshot(target=(10, 60))) == refused
    assert moved(refused, a_snapshot()) is None


@pytest.mark.parametrize("after", [a_snapshot(source=(0, 51)), a_snapshot(target=(0, 61)), a_snapshot(at=48)])
def test_end_or_mirror_that_moved_makes_every_answer_void(after: ClusterSnapshot):
    refused = moved(Exact(NextOffset(30)), after)
    assert refused is not None
    assert "a producer is still at work" in refused.reason
