"""How a cluster is reached, and the clients this package makes from that."""

from __future__ import annotations

import logging
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.errors import (
    KAFKA_REQUEST,
    NOTHING_CHANGED,
    ClusterDeniedError,
    ClusterUnreachableError,
    KafkaAnswerError,
)
from airflow_flinkstyle.kafka.final_codes import FINAL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

    from airflow_flinkstyle.errors import FlinkstyleError

log = logging.getLogger(__name__)

Isolation = Literal["read_committed", "read_uncommitted"]

_DENIED = frozenset(
    (
        "_AUTHENTICATION",
        "_SSL",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    )
)
SETTLING = frozenset(
    (
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "NOT_CONTROLLER",
        "NOT_COORDINATOR",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
    )
)
"""What brokers answer until they agree on the leaders, as after one has restarted."""
UNREACHABLE = frozenset(
    (
        "_TIMED_OUT",
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "REQUEST_TIMED_OUT",
        "BROKER_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
    )
)
"""Codes that mean that no broker answered in time; a broker may also send one about another broker."""

_GROUP = "airflow-flinkstyle"
_TLS_ALERT = "SSL alert number"
_NO_ANSWER_TO_LOGIN = re.compile(
    r'Failed to acquire SASL OAUTHBEARER token(?!.*"error":\s*"(?:invalid|unauthorized|unsupported|access)_)'
    "|Broker transport failure"
)
"""The client also reports a refused login if the token server is away, or if a broker stops during the login.
What the token server itself refuses has one of the error codes of RFC 6749."""

_QUEUE_KIB = 32 * 1024
"""Prefetched records a consumer may hold; bounds memory however many partitions are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaCluster:
    """A Kafka cluster and how to log in to it."""

    name: str
    """Its name in messages: the connection's id, or an alias such as ``old``."""
    config: Mapping[str, Any] = field(repr=False)
    """Client settings in librdkafka's names, ``bootstrap.servers`` at least: strings, and callbacks such as
    ``oauth_cb``. Holds secrets."""
    request_timeout_s: float = 20.0
    """Longest wait for one answer."""
    patience_s: float = 0.0
    """How long a request is made again while no broker answers or leads; 0: it is made once."""

    def __post_init__(self) -> None:
        if not self.config.get("bootstrap.servers"):
            raise BadInputError(
                f"The settings of Kafka cluster {self.name} need bootstrap.servers, but have only "
                f"{sorted(self.config)}.",
                state_after=NOTHING_CHANGED,
                remedy='Add {"bootstrap.servers": "host:port,..."} to the extra of the Kafka connection.',
            )

    @property
    def bootstrap_servers(self) -> str:
        """Addresses the clients connect to first."""
        return str(self.config["bootstrap.servers"])

    def __str__(self) -> str:
        """Return name and address, never a secret."""
        return f"{self.name} ({self.bootstrap_servers})"


@contextmanager
def admin_client(cluster: KafkaCluster) -> Iterator[AdminClient]:
    """Yield an ``AdminClient``; client errors inside the block become this package's errors.

    The client ends with the block, whatever requests are open. Left to the garbage collector, which may run
    in the client's own thread, it would end the whole process (librdkafka: "rd_kafka_destroy() called from
    librdkafka owned thread").
    """
    from confluent_kafka.admin import AdminClient

    if not hasattr(AdminClient, "__exit__"):
        raise BadInputError(
            f"confluent-kafka 2.13 or newer was expected in {sys.executable}, found an older one.",
            state_after=NOTHING_CHANGED,
            remedy="Install a newer one there, and on a cluster's nodes if the job has a transactional sink.",
        )
    reported: list[KafkaError] = []
    with translated_errors(cluster, reported), AdminClient(_client_config(cluster, reported)) as client:
        try:
            yield client
        finally:
            client.poll(0)  # delivers background errors: the request itself just times out


@contextmanager
def consumer(
    cluster: KafkaCluster, isolation: Isolation, *, group: str = _GROUP, fetch_wait_ms: int = 50
) -> Iterator[Consumer]:
    """Yield a consumer for reading given ranges; it joins no group, commits nothing, and resets no offset.

    The client requires a group's name; only callers that ask for the group's offsets use it. At the end of a
    log the broker waits ``fetch_wait_ms`` for more.
    """
    from confluent_kafka import Consumer

    reported: list[KafkaError] = []
    with translated_errors(cluster, reported):
        client = Consumer(
            {
                **_client_config(cluster, reported),
                "group.id": group,
                "enable.auto.commit": "false",
                "enable.auto.offset.store": "false",
                "auto.offset.reset": "error",  # the default jumps to the end when an offset is deleted
                "isolation.level": isolation,
                "enable.partition.eof": "true",
                "check.crcs": "true",
                "queued.max.messages.kbytes": str(_QUEUE_KIB),
                "fetch.wait.max.ms": str(fetch_wait_ms),
            }
        )
        try:
            yield client
        finally:
            client.close()


def _client_config(cluster: KafkaCluster, reported: list[KafkaError]) -> dict[str, Any]:
    def remember(error: KafkaError) -> None:
        log.debug("Kafka client of %s: %s", cluster.name, error)
        reported.append(error)
        del reported[:-5]

    return {"log_level": 2, **cluster.config, "error_cb": remember}


@contextmanager
def translated_errors(cluster: KafkaCluster, reported: list[KafkaError]) -> Iterator[None]:
    """Turn exceptions of the Kafka client into this package's errors.

    Args:
        cluster: Named in the message.
        reported: Errors that the client reported in the background. A refused login shows only there; the
            request itself just times out.
    """
    from concurrent.futures import TimeoutError as FutureTimeoutError

    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        cause = error.args[0] if error.args else None
        raise _error_for(cluster, cause, reported) from error
    except FutureTimeoutError as error:
        raise _error_for(cluster, None, reported) from error


def _error_for(
    cluster: KafkaCluster, cause: KafkaError | None, reported: list[KafkaError]
) -> FlinkstyleError:
    errors = [error for error in (cause, *reversed(reported)) if error is not None]
    answers = [error for error in errors if not _NO_ANSWER_TO_LOGIN.search(error.str())]
    for answer in answers:
        # A broker that does not like a certificate just ends the connection with an alert.
        if answer.name() in _DENIED or _TLS_ALERT in answer.str():
            return ClusterDeniedError(
                f"Kafka cluster {cluster} rejected the request: {answer.str()}.",
                state_after=NOTHING_CHANGED,
                remedy="Check user, password, certificates and ACLs of the Kafka connection: describe on the "
                f"topics and on group {_GROUP}, read on the topics and on MirrorMaker's offsets topic "
                "(docs/security.md).",
            )
    main = answers[0] if answers else None
    if main is not None and main.name() in SETTLING:
        return ClusterUnreachableError(
            f"Brokers of Kafka cluster {cluster} were expected to lead their partitions, but they do not "
            f"agree on it yet: {main.str()} ({main.name()}).",
            state_after=NOTHING_CHANGED,
            remedy="Retry once all brokers are up and have settled; retrying is safe.",
        )
    if cause is None or main is None or main.name() in UNREACHABLE:
        detail = f" ({errors[0].str()})" if errors else ""
        return ClusterUnreachableError(
            f"Kafka cluster {cluster.name} was expected at {cluster.bootstrap_servers}, "
            f"but no broker answered in time{detail}.",
            state_after=NOTHING_CHANGED,
            remedy="Start the brokers or correct bootstrap.servers in the connection; retrying is safe.",
        )
    if (why := FINAL.get(main.name())) is not None:
        return KAFKA_REQUEST.with_text(
            f"Kafka cluster {cluster} refused the request: {main.str()} ({main.name()}).",
            state_after=NOTHING_CHANGED,
            remedy=f"Trying again cannot help: {why}. The brokers' logs say more.",
        )
    return KafkaAnswerError(
        f"Kafka cluster {cluster} answered with an error: {main.str()} ({main.name()}).",
        state_after=NOTHING_CHANGED,
        remedy="Try again; if it stays, look the error up in the brokers' logs.",
    )
