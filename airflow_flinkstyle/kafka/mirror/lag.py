"""How far MirrorMaker 2 has mirrored, by its own positions.

How far it has replicated is the one thing the records themselves cannot prove: that nothing is still missing
at the end.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_flinkstyle.clock import CLOCK
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import NOTHING_CHANGED, MirrorPositionMissingError, name_partitions
from airflow_flinkstyle.kafka.mirror.topics import read_positions
from airflow_flinkstyle.kafka.reading import ReadRange, count_records
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from airflow_flinkstyle.kafka.cluster import ClusterView
    from airflow_flinkstyle.kafka.mirror.settings import MirrorSettings
    from airflow_flinkstyle.kafka.settings import KafkaCluster
    from airflow_flinkstyle.types import TopicPartition

log = logging.getLogger(__name__)

POLL_S = 0.5
"""Between two reads of the mirror's positions."""
_COUNTED = 10_000
"""Offsets above the mirrored position that are read to count records without markers; more are not read."""

_SHOWN = 50
"""Partitions that a message names before it only counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """Every source record is on the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorBehind:
    """MirrorMaker did not catch up in time."""

    lag: Mapping[TopicPartition, int]
    """Source records above the mirrored position, only partitions with any; capped when large."""
    waited_s: float

    def describe(self) -> str:
        """Return the lag in one sentence, the worst partitions first."""
        worst = sorted(self.lag.items(), key=lambda item: (-item[1], item[0]))
        shown = ", ".join(f"{topic}-{number}: {lag}" for (topic, number), lag in worst[:_SHOWN])
        more = f" and {len(worst) - _SHOWN} partitions more" if len(worst) > _SHOWN else ""
        return (
            f"MirrorMaker is {sum(self.lag.values())} records behind after {self.waited_s:.0f} s "
            f"({shown}{more})."
        )


def mirrored_positions(target: KafkaCluster, mirror: MirrorSettings, topics: Collection[str]) -> Offsets:
    """Return the next source offset that the mirror has not replicated, per source partition.

    Raises:
        MirrorPositionMissingError: If MirrorMaker's offsets topic does not exist.
        MessageFormatError: If a record in it cannot be understood.
    """
    if mirror.keeps_offsets:
        names = {mirror.target_topic(topic): topic for topic in topics}
        view = describe(target, names)
        return Offsets(
            {
                (names[name], number): NextOffset(log.end)
                for name, topic in view.topics.items()
                for number, log in topic.partitions.items()
            }
        )
    return read_positions(target, mirror).in_topics(topics)


def mirror_lag(
    source: KafkaCluster,
    target: KafkaCluster,
    mirror: MirrorSettings,
    view: ClusterView,
) -> dict[TopicPartition, int]:
    """Return per source partition how many records the mirror has not replicated.

    Args:
        source: The cluster that is mirrored.
        target: The cluster that holds the copy and MirrorMaker's positions.
        mirror: MirrorMaker's settings.
        view: The source as it is now.

    Raises:
        MirrorPositionMissingError: If a partition that holds records has no position.
    """
    positions = mirrored_positions(target, mirror, view.topics)
    lag = lag_above(source, mirror, view, positions)
    missing = [tp for tp, records in lag.items() if records and tp not in positions]
    if missing:
        raise MirrorPositionMissingError(
            missing_position(mirror, target, missing),
            state_after=NOTHING_CHANGED,
            remedy="Check that MirrorMaker mirrors these topics (its `topics` pattern), and the mirror's "
            "source_alias and connector_name; a new partition appears after refresh.topics.interval.seconds.",
        )
    return lag


def missing_position(
    mirror: MirrorSettings, target: KafkaCluster, partitions: Collection[TopicPartition]
) -> str:
    """Return the sentence about partitions that MirrorMaker has no position for."""
    return (
        f"Connector {mirror.connector_name} was expected to have a position for "
        f"{name_partitions(partitions)} of {mirror.source_alias} in topic {mirror.positions_topic} on "
        f"{target}, but has none, although there are records."
    )


def lag_above(
    source: KafkaCluster,
    mirror: MirrorSettings,
    view: ClusterView,
    positions: Mapping[TopicPartition, NextOffset],
    partitions: Collection[TopicPartition] | None = None,
) -> dict[TopicPartition, int]:
    """Return per partition how many source records there are from the given mirrored positions on.

    A position beyond the source's end is one in another log: the topic was created again, and nothing of it
    is known to be mirrored.
    """
    lag: dict[TopicPartition, int] = {}
    unsure: dict[TopicPartition, ReadRange] = {}
    wanted = view.partitions if partitions is None else partitions
    foreign = _of_another_log(source, view, positions, wanted)
    for tp in wanted:
        log_range = view.log_range(tp)
        if log_range is None:
            continue
        low = max(log_range.start, 0 if tp in foreign else positions.get(tp, 0))
        above = log_range.end - low
        if above > _COUNTED:
            lag[tp] = above
        elif above > 0:
            # Offsets above the position may be transaction markers only: count records.
            unsure[tp] = ReadRange(low=low, high=_readable_end(log_range.end, log_range.last_stable, mirror))
        else:
            lag[tp] = 0
    lag.update(count_records(source, unsure, mirror.isolation))
    for tp in unsure:
        open_end = view.log_range(tp)
        if open_end and open_end.last_stable < open_end.end:
            lag[tp] = max(1, lag[tp])  # an open transaction may still commit records
    return lag


def _of_another_log(
    source: KafkaCluster,
    view: ClusterView,
    positions: Mapping[TopicPartition, NextOffset],
    partitions: Collection[TopicPartition],
) -> set[TopicPartition]:
    """Return the partitions whose position is beyond the source's end even in a newer view than the given."""
    beyond = {tp for tp in partitions if _is_beyond(view, tp, positions)}
    if not beyond:
        return beyond
    now = describe(source, sorted({topic for topic, _ in beyond}))
    return {tp for tp in beyond if _is_beyond(now, tp, positions)}


def _is_beyond(view: ClusterView, tp: TopicPartition, positions: Mapping[TopicPartition, NextOffset]) -> bool:
    log_range = view.log_range(tp)
    return log_range is not None and positions.get(tp, 0) > log_range.end


def _readable_end(end: int, last_stable: int, mirror: MirrorSettings) -> int:
    return last_stable if mirror.isolation == "read_committed" else end


def wait_caught_up(
    source: KafkaCluster,
    target: KafkaCluster,
    mirror: MirrorSettings,
    topics: Collection[str],
    *,
    timeout_s: float,
) -> CaughtUp | MirrorBehind:
    """Wait until MirrorMaker has mirrored every source record of the topics.

    Producers must be held; its position follows its copies only after
    ``<target alias>.offset.flush.interval.ms``.

    Raises:
        MirrorPositionMissingError: If a position is still missing when the time is over.
    """
    began_s, wait = CLOCK.now_s, CLOCK.wait(timeout_s, every_s=POLL_S)
    while True:
        missing: MirrorPositionMissingError | None = None
        lag: dict[TopicPartition, int] = {}
        try:
            lag = mirror_lag(source, target, mirror, describe(source, topics))
        except MirrorPositionMissingError as error:
            missing = error
        if missing is None and not any(lag.values()):
            return CaughtUp()
        log.debug("MirrorMaker is not in sync yet: %s", missing or lag)
        if not wait.again():
            if missing is not None:
                raise missing
            return MirrorBehind(lag={tp: n for tp, n in lag.items() if n}, waited_s=CLOCK.now_s - began_s)
