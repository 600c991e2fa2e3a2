"""The Kafka cluster as Spark reaches it: the JVM's own client, with the very options of the source."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, TypeVar

from airflow_flinkstyle.agent.core.causes import why_final
from airflow_flinkstyle.agent.core.errors import SOURCES_CHANGED
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.errors import (
    KAFKA_REQUEST,
    ClusterDeniedError,
    ClusterUnreachableError,
    KafkaAnswerError,
    TopicMissingError,
)
from airflow_flinkstyle.kafka.login import CONNECTION
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.types import NextOffset, TopicPartition, known_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from airflow_flinkstyle.agent.core.spark import StreamingSource
    from airflow_flinkstyle.agent.spark.untyped import Java
    from airflow_flinkstyle.errors import FlinkstyleError

REQUEST_TIMEOUT_S = 20
T = TypeVar("T")
_PREFIX = "kafka."
_NO_TOPIC = "UnknownTopicOrPartitionException"
_LISTED = re.compile(r"([\w.-]+)-(\d+)=ListOffsetsResultInfo\(offset=(-?\d+)[,)]", re.ASCII)
"""How Kafka's client prints an offset that it was asked for; names of topics have no other letters."""


def describe_source(jvm: Java, source: StreamingSource) -> ClusterView:
    """Return the cluster that a source reads, with exactly the partitions it subscribes to.

    Raises:
        ClusterUnreachableError: If no broker answers in time.
        TopicMissingError: If a topic does not exist.
    """
    return _ask(jvm, source, lambda admin: _describe(jvm, admin, source))


def positions_at(jvm: Java, source: StreamingSource, at_ms: int) -> Offsets:
    """Return the first record of each partition that is of a time, epoch milliseconds, or later.

    Where there is none, the log's end for this reader. Raises as ``describe_source``.
    """

    def read_positions(admin: Java) -> Offsets:
        view = _describe(jvm, admin, source)
        spec = jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(at_ms)
        found = _offsets(jvm, admin, sorted(view.partitions), spec)
        ends = {tp: view.topics[tp[0]].partitions[tp[1]].last_stable for tp in found}
        return Offsets({tp: ends[tp] if at < 0 else min(at, ends[tp]) for tp, at in found.items()})

    return _ask(jvm, source, read_positions)


def _ask(jvm: Java, source: StreamingSource, request: Callable[[Java], T]) -> T:
    """Make a request to the cluster of a source by a client of its own."""
    from py4j.protocol import Py4JJavaError

    try:
        options = client_options(jvm, source, timeout_s=REQUEST_TIMEOUT_S)
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(options)
    except Py4JJavaError as error:
        raise _refused(source, error) from error
    try:
        return request(admin)
    except Py4JJavaError as error:
        raise _refused(source, error) from error
    finally:
        admin.close(jvm.java.time.Duration.ofSeconds(1))


def client_options(jvm: Java, source: StreamingSource, *, timeout_s: int) -> Java:
    """Return the options with which Spark's source reaches its cluster, and a time-out for each call."""
    options = jvm.java.util.HashMap()
    for name, value in source.options.items():
        if name.lower().startswith(_PREFIX):
            options.put(name[len(_PREFIX) :], value)
    options.put("request.timeout.ms", str(timeout_s * 500))
    options.put("default.api.timeout.ms", str(timeout_s * 1000))
    return options


def _describe(jvm: Java, admin: Java, source: StreamingSource) -> ClusterView:
    cluster_id = _wait(jvm, admin.describeCluster().clusterId())
    assigned = _assigned(source)
    topics = _described(jvm, admin, source)
    partitions = [
        (topic, number)
        for topic, description in topics.items()
        for number in range(description.partitions().size())  # Kafka numbers them from 0, without a gap
        if assigned is None or (topic, number) in assigned
    ]
    starts = _offsets(jvm, admin, partitions, jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())
    by_topic = starts.by_topic
    ends = end_offsets(jvm, admin, partitions)
    stable = ends
    if (source.option("kafka.isolation.level") or "").lower() == "read_committed":
        stable = end_offsets(jvm, admin, partitions, committed=True)
    return ClusterView(
        cluster_id=known_id(cluster_id),
        topics={
            topic: TopicView(
                topic_id=known_id(description.topicId().toString()),
                partitions={
                    number: LogRange(start=start, end=ends[topic, number], last_stable=stable[topic, number])
                    for number, start in by_topic.get(topic, {}).items()
                },
            )
            for topic, description in topics.items()
        },
    )


def _described(jvm: Java, admin: Java, source: StreamingSource) -> Java:
    """Return the topics of a source, by name; Kafka's own error does not name the one that is missing."""
    from py4j.protocol import Py4JJavaError

    asked = admin.describeTopics(_strings(jvm, _topics(jvm, admin, source)))
    try:
        return _wait(jvm, asked.allTopicNames())
    except Py4JJavaError as error:
        if root_cause(error)[0] != _NO_TOPIC:
            raise
        missing = [name for name, one in asked.topicNameValues().items() if one.isCompletedExceptionally()]
        servers = source.option("kafka.bootstrap.servers") or "?"
        raise TopicMissingError(
            f"Cluster {servers} was expected to have topic {', '.join(sorted(missing))}, found that it does "
            "not exist there.",
            state_after="The query was not started; its checkpoint is as it was.",
            remedy="Create or mirror the topic, or correct the script's subscription.",
        ) from error


def _topics(jvm: Java, admin: Java, source: StreamingSource) -> list[str]:
    """Return the topics of ``subscribe``, ``subscribePattern`` or ``assign``."""
    if (subscribed := source.option("subscribe")) is not None:
        return [topic.strip() for topic in subscribed.split(",") if topic.strip()]
    if (pattern := source.option("subscribePattern")) is not None:
        compiled = jvm.java.util.regex.Pattern.compile(pattern)
        names = _wait(jvm, admin.listTopics().names())
        return sorted(name for name in names if compiled.matcher(name).matches())
    assigned = _assigned(source)
    if assigned is None:
        raise SOURCES_CHANGED.with_text(
            f"Source {source.position} was expected to set subscribe, subscribePattern or assign, "
            "found none of them.",
            state_after="The query was not started.",
            remedy="Give the Kafka source its topics.",
        )
    return sorted({topic for topic, _ in assigned})


def _assigned(source: StreamingSource) -> set[tuple[str, int]] | None:
    raw = source.option("assign")
    if raw is None:
        return None
    topics: Mapping[str, Iterable[int]] = json.loads(raw)
    return {(topic, number) for topic, numbers in topics.items() for number in numbers}


def end_offsets(
    jvm: Java, admin: Java, partitions: Iterable[TopicPartition], *, committed: bool = False
) -> Offsets:
    """Return where these logs end; with ``committed``, for readers of committed records."""
    latest = jvm.org.apache.kafka.clients.admin.OffsetSpec.latest()
    return _offsets(jvm, admin, partitions, latest, committed=committed)


def _offsets(
    jvm: Java, admin: Java, partitions: Iterable[TopicPartition], spec: Java, *, committed: bool = False
) -> Offsets:
    levels = jvm.org.apache.kafka.common.IsolationLevel
    options = jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(
        levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
    )
    wanted = tuple(partitions)
    found = _wait(jvm, admin.listOffsets(_for_each(jvm, wanted, spec), options).all())
    return _parsed(found, wanted)


def _for_each(jvm: Java, partitions: Iterable[TopicPartition], value: Java) -> Java:
    """Return a map from every partition to one value, made in the JVM: a call through py4j takes 0.1 ms."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    keys = jvm.org.apache.spark.sql.kafka010.JsonUtils.partitions(json.dumps(numbers))
    commons, found = jvm.org.apache.commons.collections4, jvm.java.util.HashMap()
    commons.MapUtils.populateMap(
        found,
        commons.IteratorUtils.asIterable(commons.iterators.ArrayIterator(keys)),
        commons.TransformerUtils.nopTransformer(),
        commons.TransformerUtils.constantTransformer(value),
    )
    return found


def _parsed(found: Java, wanted: Sequence[TopicPartition]) -> Offsets:
    """Return the offsets that Kafka's client has found, read from its text: one call for all partitions."""
    offsets = {
        (topic, int(number)): NextOffset(int(offset))
        for topic, number, offset in _LISTED.findall(found.toString())
    }
    if offsets.keys() != set(wanted):  # a client that prints them differently
        offsets = {(tp.topic(), tp.partition()): NextOffset(one.offset()) for tp, one in found.items()}
    return Offsets(offsets)


def _wait(jvm: Java, future: Java) -> Java:
    return future.get(REQUEST_TIMEOUT_S, jvm.java.util.concurrent.TimeUnit.SECONDS)


def _strings(jvm: Java, values: Iterable[str]) -> Java:
    strings = jvm.java.util.ArrayList()
    for value in values:
        strings.add(value)
    return strings


def root_cause(error: Java) -> tuple[str, str]:
    """Return class and message of what a ``Py4JJavaError`` was caused by in the end."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause.getClass().getSimpleName(), cause.getMessage() or ""


def _may_pass(error: Java) -> bool:
    """Return whether Kafka's client calls the cause retriable, like a leader that is being elected."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    kind, names = cause.getClass(), []
    while kind is not None:
        names.append(kind.getSimpleName())
        kind = kind.getSuperclass()
    return "RetriableException" in names and "UnknownTopicOrPartitionException" not in names


def says_unreachable(name: str, text: str) -> bool:
    """Return whether an exception of this class and message means that no broker answered."""
    is_unresolved = name == "ConfigException" and "No resolvable bootstrap" in text
    return is_unresolved or "Timeout" in name or name == "DisconnectException"


def _refused(source: StreamingSource, error: Java) -> FlinkstyleError:
    servers = source.option("kafka.bootstrap.servers") or "?"
    name, text = root_cause(error)
    if says_unreachable(name, text) or _may_pass(error):
        return ClusterUnreachableError(
            f"The Kafka cluster at {servers} was expected to answer within {REQUEST_TIMEOUT_S} s, "
            f"found {name}: {text}.",
            state_after="The query was not started; its checkpoint is as it was.",
            remedy="Check kafka.bootstrap.servers and that the driver's machine reaches the brokers.",
        )
    if name == _NO_TOPIC:  # it was deleted between two requests
        return TopicMissingError(
            f"Cluster {servers} was expected to have the query's topics: {text}",
            state_after="The query was not started; its checkpoint is as it was.",
            remedy="Create or mirror the topic, or correct the script's subscription.",
        )
    if name.endswith(("AuthenticationException", "AuthorizationException")):
        connection = source.option(CONNECTION)
        login = f"Kafka connection {connection}" if connection else "the script"
        return ClusterDeniedError(
            f"The Kafka cluster at {servers} rejected the login that {login} gives: {name}: {text}.",
            state_after="The query was not started; its checkpoint is as it was.",
            remedy=f"Check user, password and certificates of {login}, and the rights to describe and read "
            "the topics; the next driver reads the connection again.",
        )
    if name == "ConfigException":
        return KAFKA_REQUEST.with_text(
            f"The Kafka settings for {servers} were expected to be valid, found: {text}.",
            state_after="The query was not started; its checkpoint is as it was.",
            remedy="Correct the source's options kafka.*, or the Kafka connection that they come from.",
        )
    why = why_final(error)
    if why is None:
        return KafkaAnswerError(
            f"The Kafka cluster at {servers} did not describe the query's topics: {name}: {text}.",
            state_after="The query was not started; its checkpoint is as it was.",
            remedy="Nothing, if it passes: the driver is started again. If it stays, look the error up in "
            "the brokers' logs.",
        )
    return KAFKA_REQUEST.with_text(
        f"The Kafka cluster at {servers} refused to describe the query's topics: {name}: {text}.",
        state_after="The query was not started; its checkpoint is as it was.",
        remedy=f"Trying again cannot help: {why}. The brokers' logs say more.",
    )
