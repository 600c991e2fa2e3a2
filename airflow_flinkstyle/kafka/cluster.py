"""What a cluster is and holds now: identity, topic ids, log ranges, topic settings."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import NOTHING_CHANGED, TopicMissingError
from airflow_flinkstyle.kafka.patience import patient
from airflow_flinkstyle.kafka.settings import SETTLING, admin_client
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.typed_json import stored
from airflow_flinkstyle.types import KafkaId, NextOffset, TopicPartition, known_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from concurrent.futures import Future

    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec

    from airflow_flinkstyle.kafka.settings import KafkaCluster

_LEADER_WAIT_S = 5.0
_NO_LEADER_YET = SETTLING | {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_ID"}


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """The offsets of one partition."""

    start: NextOffset
    """Offset of the oldest record that still exists."""
    end: NextOffset
    """High watermark: the offset that the next record gets."""
    last_stable: NextOffset
    """Offset of the first open transaction, or ``end`` if none is open."""


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic."""

    topic_id: KafkaId | None
    """Given by the cluster when the topic was created; another id means another log. None if it has none.

    Written as Kafka's own tools print it (URL-safe Base64).
    """
    partitions: Mapping[int, LogRange]


@stored
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster's identity and the topics asked for, at one moment."""

    cluster_id: KafkaId | None
    """None if the cluster has none, as Event Hubs."""
    topics: Mapping[str, TopicView]

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """Every live partition of the topics."""
        return frozenset((topic, p) for topic, view in self.topics.items() for p in view.partitions)

    @property
    def starts(self) -> Offsets:
        """Where each log begins."""
        return self._offsets(lambda log: log.start)

    @property
    def ends(self) -> Offsets:
        """Where each log ends."""
        return self._offsets(lambda log: log.end)

    def _offsets(self, of: Callable[[LogRange], NextOffset]) -> Offsets:
        return Offsets.of(
            {
                topic: {number: of(log) for number, log in view.partitions.items()}
                for topic, view in self.topics.items()
            }
        )

    def only(self, topics: Collection[str]) -> ClusterView:
        """Return the view with these topics only; those it lacks stay absent."""
        kept = {topic: view for topic, view in self.topics.items() if topic in topics}
        return ClusterView(cluster_id=self.cluster_id, topics=kept)

    def log_range(self, partition: TopicPartition) -> LogRange | None:
        """Return a partition's offsets, or None if it does not exist."""
        topic, number = partition
        view = self.topics.get(topic)
        return view.partitions.get(number) if view else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic that decide whether positions can be translated and survive."""

    compacted: bool
    """``cleanup.policy`` contains ``compact``."""
    deletes: bool
    """``cleanup.policy`` contains ``delete``."""
    retention_ms: int
    """-1 is for ever."""
    retention_bytes: int
    """Per partition; -1 is unlimited."""
    log_append_time: bool
    """The broker overwrites timestamps, so a record's timestamp is no part of its identity."""


@patient
def describe(cluster: KafkaCluster, topics: Collection[str]) -> ClusterView:
    """Return the cluster's id and, for each topic, its id and the offsets of every partition.

    Raises:
        TopicMissingError: Naming all topics that do not exist.
        ClusterUnreachableError: If no broker answers in time.
    """
    with admin_client(cluster) as admin:
        described = _describe_topics(cluster, admin, topics)
        wanted = [(t, p.id) for t, description in described.items() for p in description.partitions]
        ranges = _ranges_once_led(cluster, admin, wanted)
        return ClusterView(
            cluster_id=_cluster_id(cluster, admin, described),
            topics={
                topic: TopicView(
                    topic_id=known_id(_as_kafka_prints(str(description.topic_id))),
                    partitions={p.id: ranges[topic, p.id] for p in description.partitions},
                )
                for topic, description in described.items()
            },
        )


@patient
def log_ends(cluster: KafkaCluster, topic: str) -> dict[int, int]:
    """Return where each partition of a topic ends, open transactions included; -1 if it does not answer.

    Raises:
        TopicMissingError: If there is no such topic.
        ClusterUnreachableError: If no broker answers in time.
    """
    from confluent_kafka import IsolationLevel, KafkaException
    from confluent_kafka.admin import OffsetSpec

    with admin_client(cluster) as admin:
        described = _describe_topics(cluster, admin, [topic])[topic]
        specs = {(topic, partition.id): OffsetSpec.latest() for partition in described.partitions}
        futures = _request_offsets(cluster, admin, specs, IsolationLevel.READ_UNCOMMITTED)
        ends = dict.fromkeys((number for _, number in specs), -1)
        for (_, number), future in futures.items():
            with suppress(KafkaException):  # it has no leader now
                ends[number] = future.result(cluster.request_timeout_s).offset
        return ends


@patient
def existing_topics(cluster: KafkaCluster) -> frozenset[str]:
    """Return the names of all topics that the credentials may describe."""
    with admin_client(cluster) as admin:
        return frozenset(admin.list_topics(timeout=cluster.request_timeout_s).topics)


def _describe_topics(cluster: KafkaCluster, admin: AdminClient, topics: Collection[str]) -> dict[str, Any]:
    from confluent_kafka import KafkaException, TopicCollection

    if not topics:
        return {}
    names = sorted(set(topics))
    futures = admin.describe_topics(TopicCollection(names), request_timeout=cluster.request_timeout_s)
    described, missing = {}, []
    for topic, future in futures.items():
        try:
            described[topic] = future.result(cluster.request_timeout_s)
        except KafkaException as error:
            if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                raise
            missing.append(topic)
    if missing:
        raise TopicMissingError.on(str(cluster), missing)
    return described


def _cluster_id(cluster: KafkaCluster, admin: AdminClient, topics: Collection[str]) -> str | None:
    """Return the cluster's id; None if it has none.

    Not by ``describe_cluster``: that of confluent-kafka ends the process (SIGSEGV) where there is no id. One
    of the topics is named, if there is one, so that not all of a large cluster are listed.
    """
    any_topic = next(iter(topics), None)
    named = {"topic": any_topic} if any_topic is not None else {}
    return known_id(admin.list_topics(timeout=cluster.request_timeout_s, **named).cluster_id)


def _as_kafka_prints(topic_id: str) -> str:
    return topic_id.translate(str.maketrans("+/", "-_")).rstrip("=")


def _ranges_once_led(
    cluster: KafkaCluster, admin: AdminClient, partitions: list[TopicPartition]
) -> dict[TopicPartition, LogRange]:
    """List the offsets; partitions of a topic just created get their leaders within a moment."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _LEADER_WAIT_S
    while True:
        try:
            return _list_ranges(cluster, admin, partitions)
        except KafkaException as error:
            if error.args[0].name() not in _NO_LEADER_YET or time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _list_ranges(
    cluster: KafkaCluster, admin: AdminClient, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogRange]:
    """Return the offsets of the partitions: three requests, however many partitions there are."""
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import OffsetSpec

    wanted = list(partitions)
    # The start is asked last: it only grows, and an old one would pass a deleted position.
    earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()
    stable = _list_offsets(cluster, admin, wanted, latest, IsolationLevel.READ_COMMITTED)
    ends = _list_offsets(cluster, admin, wanted, latest, IsolationLevel.READ_UNCOMMITTED)
    starts = _list_offsets(cluster, admin, wanted, earliest, IsolationLevel.READ_UNCOMMITTED)
    return {tp: LogRange(start=starts[tp], end=ends[tp], last_stable=stable[tp]) for tp in wanted}


@patient
def first_offsets_since(
    cluster: KafkaCluster, since_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, NextOffset | None]:
    """Return per partition the first offset, in the log's order, whose timestamp is no less, or None.

    At that offset may be a transaction's marker or an aborted record.
    """
    from confluent_kafka import IsolationLevel
    from confluent_kafka.admin import OffsetSpec

    if not since_ms:
        return {}
    specs = {tp: OffsetSpec.for_timestamp(max(0, ms)) for tp, ms in since_ms.items()}
    with admin_client(cluster) as admin:
        answers = _offset_answers(cluster, admin, specs, IsolationLevel.READ_UNCOMMITTED)
    return {tp: NextOffset(answer.offset) if answer.offset >= 0 else None for tp, answer in answers.items()}


def _list_offsets(
    cluster: KafkaCluster,
    admin: AdminClient,
    partitions: list[TopicPartition],
    spec: OffsetSpec,
    isolation: IsolationLevel,
) -> dict[TopicPartition, NextOffset]:
    answers = _offset_answers(cluster, admin, dict.fromkeys(partitions, spec), isolation)
    return {tp: NextOffset(answer.offset) for tp, answer in answers.items()}


def _offset_answers(
    cluster: KafkaCluster,
    admin: AdminClient,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
) -> dict[TopicPartition, ListOffsetsResultInfo]:
    futures = _request_offsets(cluster, admin, specs, isolation)
    return {tp: future.result(cluster.request_timeout_s) for tp, future in futures.items()}


def _request_offsets(
    cluster: KafkaCluster,
    admin: AdminClient,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
    """Ask for one offset per partition, in one request per broker."""
    from confluent_kafka import TopicPartition as ClientPartition

    if not specs:
        return {}
    futures = admin.list_offsets(
        {ClientPartition(topic, number): spec for (topic, number), spec in specs.items()},
        isolation_level=isolation,
        request_timeout=cluster.request_timeout_s,
    )
    return {(tp.topic, tp.partition): future for tp, future in futures.items()}


@patient
def topic_settings(cluster: KafkaCluster, topics: Collection[str]) -> dict[str, TopicSettings]:
    """Return the settings in force per topic, broker defaults included."""
    from confluent_kafka.admin import ConfigResource

    if not topics:
        return {}
    with admin_client(cluster) as admin:
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in sorted(set(topics))]
        futures = admin.describe_configs(resources, request_timeout=cluster.request_timeout_s)
        return {
            resource.name: _settings_of(
                {name: entry.value for name, entry in future.result(cluster.request_timeout_s).items()}
            )
            for resource, future in futures.items()
        }


def _settings_of(config: Mapping[str, str]) -> TopicSettings:
    policy = {part.strip() for part in config["cleanup.policy"].split(",")}
    return TopicSettings(
        compacted="compact" in policy,
        deletes="delete" in policy,
        retention_ms=int(config["retention.ms"]),
        retention_bytes=int(config["retention.bytes"]),
        log_append_time=config["message.timestamp.type"] == "LogAppendTime",
    )


def require_positions(positions: Offsets) -> None:
    """Refuse an empty set of positions and the numbers that stand for earliest and latest."""
    symbolic = sorted(tp for tp, offset in positions.items() if offset < 0)
    if symbolic or not positions:
        found = "there is none" if not positions else f"{symbolic[0]} has {positions[symbolic[0]]}"
        raise BadInputError(
            f"Positions must be concrete offsets from 0, one per partition, but {found}.",
            state_after=NOTHING_CHANGED,
            remedy="Give the offset of the next record to read for every partition.",
        )
