"""Transactional producers, and what the client's errors mean."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_flinkstyle.kafka.errors import ClusterDeniedError
from airflow_flinkstyle.kafka.final_codes import FINAL
from airflow_flinkstyle.kafka.settings import SETTLING, UNREACHABLE, translated_errors
from airflow_flinkstyle.sinks.control_topic import marker_partition
from airflow_flinkstyle.sinks.errors import (
    RECORD_REFUSED,
    REPLAYS,
    SINK_CONFIG,
    TRANSACTION_ABORTED,
    TRANSACTION_TIMEOUT,
    ProducerFencedError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from confluent_kafka import KafkaError, Producer

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.sinks.marker import Marker
    from airflow_flinkstyle.sinks.settings import SinkSettings

T = TypeVar("T")
_THREADS = 8
INIT_TIMEOUT_S = 60.0
_NO_TOPIC = "/"
"""Asked for only to have a connection: brokers may create a topic that is asked for, but never this one."""
QUEUE_KIB = 4 * 1024
"""Records that wait in a process's producers; bounds its memory however large a batch is."""
_RECORD_BYTES = 1_000_000
"""The client's own limit of a record, ``message.max.bytes``."""
_FENCED = frozenset(
    (
        "_FENCED",
        "PRODUCER_FENCED",
        "INVALID_PRODUCER_EPOCH",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
    )
)
_REFUSED = frozenset(
    (
        *("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP"),
        *("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_EXCEPTION"),
    )
)
_FAILED = frozenset({"_STATE", "_FATAL"})
"""The client's answer to every call once a transaction, or the producer, has failed; it does not name the
error."""
_UNDELIVERED = "_INCONSISTENT"
"""The client's answer to a commit if records were not delivered; it does not name the reason."""


def initialised_producer(
    settings: SinkSettings,
    transactional_id: str,
    *,
    queue_kib: int = QUEUE_KIB,
    undelivered: list[KafkaError] | None = None,
) -> Producer:
    """Return a producer whose id is initialised: earlier ones are fenced, their transactions aborted.

    Args:
        settings: The sink.
        transactional_id: Of the producer.
        queue_kib: Records that wait in memory to be sent, at most.
        undelivered: Gets the error of the first record that is not delivered.
    """
    from confluent_kafka import Producer

    def note(error: KafkaError, _: object) -> None:
        if undelivered is not None and not undelivered:
            undelivered.append(error)

    config = _config(settings, transactional_id, queue_kib)
    if undelivered is not None:
        config |= {"on_delivery": note, "delivery.report.only.error": True}
    with translated(settings, transactional_id):
        producer = Producer(config)
        for _ in range(2):  # the first may be answered by the bootstrap connection, which is then closed
            producer.list_topics(_NO_TOPIC, timeout=INIT_TIMEOUT_S)
        producer.init_transactions(INIT_TIMEOUT_S)  # 500 ms longer where it finds no connection
        return producer


@contextmanager
def open_producer(settings: SinkSettings, transactional_id: str) -> Iterator[Producer]:
    """Yield an initialised producer; errors of the client inside the block become this package's."""
    producer = initialised_producer(settings, transactional_id)
    with translated(settings, transactional_id, producer):
        yield producer


def each_shard(
    settings: SinkSettings, shards: Iterable[int], work: Callable[[int, Producer], T]
) -> dict[int, T]:
    """Do some work with the initialised producer of each shard, side by side, and return the results."""

    def one(shard: int) -> tuple[int, T]:
        with open_producer(settings, settings.transactional_id(shard)) as producer:
            return shard, work(shard, producer)

    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="shards") as pool:
        return dict(pool.map(one, shards))


def send_marker(settings: SinkSettings, producer: Producer, shard: int, marker: Marker) -> None:
    """Add a shard's marker to the transaction that its producer has begun."""
    own_id, place = settings.transactional_id(shard), marker_partition(shard)
    producer.produce(settings.control_topic, marker.to_bytes(), own_id, partition=place)


def _config(settings: SinkSettings, transactional_id: str, queue_kib: int) -> dict[str, Any]:
    record_kib = int(settings.cluster.config.get("message.max.bytes", _RECORD_BYTES)) // 1024 + 1
    return {
        "log_level": 2,
        "linger.ms": "5",
        "reconnect.backoff.ms": "10",  # the second connection waits for half of it; the default is 100
        "queue.buffering.max.kbytes": str(max(queue_kib, record_kib)),  # what never fits waits for ever
        **settings.cluster.config,
        "partitioner": "murmur2_random",  # as Spark's own sink; the client's default differs
        "transactional.id": transactional_id,
        "transaction.timeout.ms": str(settings.transaction_timeout_ms),
        "enable.idempotence": "true",
    }


@contextmanager
def translated(
    settings: SinkSettings,
    transactional_id: str,
    producer: Producer | None = None,
    undelivered: Sequence[KafkaError] = (),
) -> Iterator[None]:
    """Turn the client's exceptions into this package's errors.

    Args:
        settings: The sink.
        transactional_id: Of the producer.
        producer: Which may have a transaction open; it is asked what an error hides.
        undelivered: As ``initialised_producer`` has filled it by then.
    """
    from confluent_kafka import KafkaException

    with translated_errors(settings.cluster, []):
        try:
            yield
        except (KafkaException, SystemError) as error:
            reported = _reported(error)
            if reported is None:
                raise
            cause = _cause_of(reported, producer, undelivered)
            found = _error_for(settings, transactional_id, cause)
            if found is None:
                raise KafkaException(cause) from error
            raise found from error


def _reported(error: BaseException) -> KafkaError | None:
    """Return the error that the client reports; None if it is another's error.

    A fatal error that comes while records are reported as not delivered is raised as Python's complaint
    about the client ("returned a result with an exception set"), which has it as its cause.
    """
    from confluent_kafka import KafkaException

    raised: BaseException | None = error
    while raised is not None and not isinstance(raised, KafkaException):
        raised = raised.__cause__ or raised.__context__
    return cast("KafkaError", raised.args[0]) if raised is not None else None


def _cause_of(
    reported: KafkaError, producer: Producer | None, undelivered: Sequence[KafkaError]
) -> KafkaError:
    """Return why a transaction has failed, where the client only reports that it has.

    A failed transaction answers a begin with its error. One that has not failed reports again that the state
    is wrong; nothing is begun, and nothing is committed.
    """
    from confluent_kafka import KafkaException

    if reported.name() == _UNDELIVERED and undelivered:
        return undelivered[0]
    if reported.name() not in _FAILED or producer is None:
        return reported
    try:
        producer.begin_transaction()
    except KafkaException as error:
        return cast("KafkaError", error.args[0])
    return reported


def _error_for(settings: SinkSettings, transactional_id: str, cause: KafkaError) -> FlinkstyleError | None:
    """Return what an error of a producer means; None if any client may have met it."""
    name = cause.name()
    if name in _FENCED:
        return ProducerFencedError(
            f"Transaction {transactional_id} did not commit, since the broker had ended it: another "
            f"attempt of the shard began, or it took more than {settings.transaction_timeout_ms} ms "
            f"({cause.str()}).",
            state_after=REPLAYS,
            remedy="Nothing, if the job continues; if it happens with every batch, raise "
            "transaction_timeout_ms, and look for a second driver of the job.",
        )
    if name in FINAL:
        return _final(settings, transactional_id, cause)
    if name in SETTLING | UNREACHABLE:
        return None
    return TRANSACTION_ABORTED.with_text(
        f"Transaction {transactional_id} did not commit on {settings.cluster}, which answered {name}: "
        f"{cause.str()}.",
        state_after=REPLAYS,
        remedy="Nothing, if the job continues; if it stays, look the error up in the brokers' logs.",
    )


def _final(settings: SinkSettings, transactional_id: str, cause: KafkaError) -> FlinkstyleError | None:
    """Return what an error means that a producer would meet again; None if any client may have met it."""
    name = cause.name()
    if name == "INVALID_TRANSACTION_TIMEOUT":
        return timeout_too_long(settings, None)
    if name in ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"):
        return ClusterDeniedError(
            f"Kafka cluster {settings.cluster} denied transactional id {transactional_id}: {cause.str()}.",
            state_after=REPLAYS,
            remedy=f"Allow WRITE and DESCRIBE on transactional ids that begin with {settings.lineage}-, "
            f"and WRITE on the output and on {settings.control_topic}, then start the job again.",
        )
    if name in _REFUSED:
        return RECORD_REFUSED.with_text(
            f"Every record of transaction {transactional_id} was expected to be taken by "
            f"{settings.cluster}, but not all were: {cause.str()} ({name}).",
            state_after=REPLAYS,
            remedy="Create the topic, raise its max.message.bytes and the sink's message.max.bytes, or "
            "correct the job; then start it again.",
        )
    if name in ("UNSUPPORTED_VERSION", "_UNSUPPORTED_FEATURE"):
        return SINK_CONFIG.with_text(
            f"Kafka cluster {settings.cluster} was expected to support transactions, but does not: "
            f"{cause.str()}.",
            state_after="Nothing was written.",
            remedy="Use brokers from version 0.11 on, with transactions enabled.",
        )
    return None


def timeout_too_long(settings: SinkSettings, limit_ms: int | None) -> FlinkstyleError:
    """Return the error that names both numbers as far as they are known."""
    limit = f"{limit_ms} ms" if limit_ms is not None else "less"
    return TRANSACTION_TIMEOUT.with_text(
        f"transaction_timeout_ms is {settings.transaction_timeout_ms}, but {settings.cluster} allows {limit} "
        "(transaction.max.timeout.ms).",
        state_after="Nothing was written.",
        remedy="Lower transaction_timeout_ms, or raise the brokers' limit.",
    )
