"""The offsets of another savepoint as a start position. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.start.kinds import AtOffsets, LogIdentity
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.errors import NOTHING_WRITTEN
from airflow_flinkstyle.rewrite.route import sources_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest
    from airflow_flinkstyle.types import NextOffset, TopicPartition

_K = TypeVar("_K")
_V = TypeVar("_V")


def offsets_of(manifest: Manifest, source: str = "") -> AtOffsets:
    """Return where a savepoint is, with the logs that its offsets count in.

    Args:
        manifest: The savepoint.
        source: ``query/source``; all its sources by default.

    Raises:
        BadInputError: If there is no such source, or sources disagree on a partition: none is preferred.
    """
    known = {str(ref): position for ref, position in sources_of(manifest).items()}
    chosen = {name: position for name, position in known.items() if source in ("", name)}
    if not chosen:
        raise BadInputError(
            f"Savepoint {manifest.savepoint_id} was expected to have the source {source or '(any)'}, "
            f"found {sorted(known)}.",
            state_after=NOTHING_WRITTEN,
            remedy="Write savepoint:ID/QUERY/SOURCE with one of these.",
        )
    found: dict[TopicPartition, NextOffset] = {}
    logs: dict[str, LogIdentity] = {}
    for position in chosen.values():
        found = _merged(found, position.offsets, manifest, chosen)
        logs = _merged(logs, _logs(position), manifest, chosen)
    origin = "/".join(part for part in (f"savepoint:{manifest.savepoint_id}", source) if part)
    return AtOffsets(Offsets(found), origin=origin, logs=logs)


def _logs(position: KafkaPosition) -> dict[str, LogIdentity]:
    return {
        topic: LogIdentity(cluster_id=position.cluster_id, topic_id=topic_id)
        for topic, topic_id in position.topic_ids.items()
    }


def _merged(
    one: Mapping[_K, _V], other: Mapping[_K, _V], manifest: Manifest, names: Iterable[str]
) -> dict[_K, _V]:
    """Return both, which must not contradict each other."""
    conflicts = [key for key in one.keys() & other.keys() if one[key] != other[key]]
    if conflicts:
        raise BadInputError(
            f"The sources {', '.join(sorted(names))} of savepoint {manifest.savepoint_id} should agree on "
            f"{conflicts[0]}, but one has {one[conflicts[0]]} and another {other[conflicts[0]]}.",
            state_after=NOTHING_WRITTEN,
            remedy="Write savepoint:ID/QUERY/SOURCE with one of these.",
        )
    return {**one, **other}
