"""Another savepoint's offsets as a start position."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.start.kinds import AtOffsets, LogIdentity
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.savepoint_start import offsets_of
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest, QuerySnapshot
from airflow_flinkstyle.types import BatchId, NextOffset
from tests.manifests import a_manifest


def a_position(topic: str, offset: int, *, cluster_id: str = "c") -> KafkaPosition:
    return KafkaPosition(
        cluster_id=cluster_id,
        topic_ids={topic: f"id-{topic}"},
        offsets=Offsets.of({topic: {0: NextOffset(offset)}}),
        log_range={},
    )


def a_savepoint(**sources: KafkaPosition) -> Manifest:
    """One query per source, named as given."""
    queries = tuple(
        QuerySnapshot(
            name=name,
            query_id=name,
            batch_id=BatchId(1),
            checkpoint_location="/checkpoint",
            planned_offsets=None,
            pinned_confs={},
            kafka={"0": position},
            files=(),
        )
        for name, position in sources.items()
    )
    return a_manifest(*queries)


def test_offsets_of_a_savepoint_know_their_logs():
    savepoint = a_savepoint(a=a_position("x", 5), b=a_position("y", 6), same=a_position("x", 5))
    logs = {"x": LogIdentity("c", "id-x"), "y": LogIdentity("c", "id-y")}
    assert offsets_of(savepoint) == AtOffsets(Offsets({("x", 0): 5, ("y", 0): 6}), "savepoint:sp-1", logs)
    assert offsets_of(savepoint, "b/0") == AtOffsets(
        Offsets({("y", 0): 6}), "savepoint:sp-1/b/0", {"y": logs["y"]}
    )


@pytest.mark.parametrize("other", [a_position("x", 7), a_position("x", 5, cluster_id="elsewhere")])
def test_sources_that_disagree_must_be_told_apart(other: KafkaPosition):
    savepoint = a_savepoint(a=a_position("x", 5), b=other)
    with pytest.raises(BadInputError, match="should agree on"):
        offsets_of(savepoint)
    assert offsets_of(savepoint, "a/0").offsets == {("x", 0): 5}


@pytest.mark.parametrize("source", ["c/0", "a/1", "a"])
def test_source_that_a_savepoint_lacks_is_refused_with_those_it_has(source: str):
    with pytest.raises(BadInputError, match="a/0"):
        offsets_of(a_savepoint(a=a_position("x", 5)), source)


def test_savepoint_without_kafka_sources_has_no_offsets():
    with pytest.raises(BadInputError, match="any"):
        offsets_of(a_savepoint())
