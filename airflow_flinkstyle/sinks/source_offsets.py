"""How far a batch has read its Kafka sources, to be committed with its completion and only there.

A shard's transaction would be too early: it can commit before another shard has written its part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.checkpoint.offset_log import parse
from airflow_flinkstyle.kafka.errors import GROUP_IN_USE
from airflow_flinkstyle.kafka.settings import KafkaCluster, admin_client, consumer
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.sinks.errors import SINK_CONFIG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_flinkstyle.errors import FlinkstyleError
    from airflow_flinkstyle.sinks.running_query import KafkaSource, RunningQuery

_GROUP = "kafka.group.id"
_LOGIN = ("kafka.bootstrap.servers", "kafka.security.", "kafka.sasl.", "kafka.ssl.")
_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """What is committed for a consumer group together with a batch."""

    group: Any
    """The client's metadata of a group without members."""
    offsets: Offsets


class SourceOffsets:
    """The Kafka sources of a query whose progress is committed."""

    def __init__(
        self, query: RunningQuery, group: str | bool, *, cluster: KafkaCluster, cluster_id: str
    ) -> None:
        """Find the sources, and check that they and the sink are in one cluster.

        Args:
            query: Whose sources they are.
            group: The group to commit for; True for the one that the sources' ``kafka.group.id`` names.
            cluster: The sink's.
            cluster_id: Given by that cluster.

        Raises:
            FlinkstyleError: ``SINK_CONFIG`` if there is no such source, or more than one group, or another
                cluster.
            FlinkstyleError: ``GROUP_IN_USE`` if the group has members, who commit for it too.
        """
        found = query.kafka_sources()
        self._query = query
        self._sources = [source for source in found if group is not True or _GROUP in source.options]
        self.group = _one_group(self._sources) if group is True else str(group)
        if not self._sources:
            raise _refused("a Kafka source to commit offsets of", "none", "Leave out commit_offsets.")
        for source in self._sources:
            _require_same_cluster(source, cluster, cluster_id)
        _require_no_members(cluster, self.group)
        with consumer(cluster, "read_committed", group=self.group) as client:
            self._metadata = client.consumer_group_metadata()

    def of(self, batch_id: int) -> Consumed:
        """Return the positions of the sources after a batch."""
        log = parse(self._query.planned(batch_id))
        keys = (str(one.position) if log.by_position else str(one.name) for one in self._sources)
        return Consumed(group=self._metadata, offsets=read_by_all(map(log.kafka_offsets, keys)))


def read_by_all(sources: Iterable[Offsets]) -> Offsets:
    """Return how far all have read; of several that read a partition the one that is behind counts. Pure."""
    both = Offsets()
    for offsets in sources:
        both |= {tp: min(offset, both.get(tp, offset)) for tp, offset in offsets.items()}
    return both


def _one_group(sources: Sequence[KafkaSource]) -> str:
    groups = sorted({source.options[_GROUP] for source in sources})
    if len(groups) != 1:
        raise _refused(
            f"one consumer group in the sources' option {_GROUP}",
            ", ".join(groups) or "none",
            "Name the group: commit_offsets='...', which is for all Kafka sources of the query.",
        )
    return groups[0]


def _require_same_cluster(source: KafkaSource, cluster: KafkaCluster, cluster_id: str) -> None:
    login = {name: value for name, value in source.options.items() if name.startswith(_LOGIN)}
    settings = client_settings({name.removeprefix("kafka."): value for name, value in login.items()})
    read = KafkaCluster(name=f"source {source.name or source.position}", config=settings)
    with admin_client(read) as admin:
        found = str(admin.list_topics(timeout=_TIMEOUT_S).cluster_id)
    if found != cluster_id:
        raise _refused(
            f"the sources in the sink's cluster {cluster_id} ({cluster.bootstrap_servers}), since a "
            "transaction cannot span two",
            f"{read} in cluster {found}",
            "Leave out commit_offsets, and let the agent commit offsets instead.",
        )


def _require_no_members(cluster: KafkaCluster, group: str) -> None:
    """Check it before the first batch: a broker takes a transaction's offsets in spite of members."""
    from confluent_kafka import KafkaException

    with admin_client(cluster) as admin:
        try:
            found = admin.describe_consumer_groups([group])[group].result(_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].name() == "GROUP_ID_NOT_FOUND":
                return
            raise
    if found.members:
        raise GROUP_IN_USE.with_text(
            f"Group {group} of commit_offsets was expected to have no members in {cluster}, found "
            f"{len(found.members)}.",
            state_after="Nothing was written.",
            remedy="Name a group of the job's own, or stop its members; then start the job again.",
        )


def _refused(expected: str, found: str, remedy: str) -> FlinkstyleError:
    return SINK_CONFIG.with_text(
        f"commit_offsets expected {expected}, found {found}.",
        state_after="Nothing was written.",
        remedy=remedy,
    )


_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_JAAS = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def client_settings(java: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for a source's, of a Java client; names that both have stay.

    Raises:
        FlinkstyleError: ``SINK_CONFIG`` naming a setting that has no counterpart.
    """
    settings = {_RENAMED.get(name, name): value for name, value in java.items() if name not in _TYPES}
    for name in ("truststore", "keystore"):
        kind = java.get(f"ssl.{name}.type", "JKS")
        if f"ssl.{name}.location" in java and (name, kind.upper()) != ("keystore", "PKCS12"):
            raise _no_counterpart(
                f"certificates in PEM (kafka.ssl.{name}.type=PEM)", f"a {name} file of type {kind}"
            )
    if jaas := settings.pop("sasl.jaas.config", None):
        settings |= _login(jaas)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def _login(jaas: str) -> dict[str, str]:
    found = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _JAAS.findall(jaas)}
    if found.keys() != {"username", "password"} or "LoginModule" not in jaas:
        raise _no_counterpart(
            "a user and a password in kafka.sasl.jaas.config (PLAIN or SCRAM)", "another kind of login"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _no_counterpart(expected: str, found: str) -> FlinkstyleError:
    return _refused(
        f"the Kafka source to log in with {expected}",
        found,
        "Leave out commit_offsets, and let the agent commit offsets instead; or give the source a login that "
        "has a counterpart in librdkafka.",
    )
