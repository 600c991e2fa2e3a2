"""The options of ``format("kafka-transactional")``: Spark's names, and those of Java's client. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.control_topic import default_name
from airflow_flinkstyle.sinks.errors import SinkConfigError
from airflow_flinkstyle.sinks.settings import SinkSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLIENT = "kafka."
_REQUIRED = ("kafka.bootstrap.servers", "lineage")
_RENAMED = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_TYPES = ("ssl.truststore.type", "ssl.keystore.type")
_LOGIN = re.compile(r'\b(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


def settings_of(options: Mapping[str, str], shards: int) -> SinkSettings:
    """Return the sink that the options describe.

    Args:
        options: Of the ``writeStream``; those that are not the sink's are left alone.
        shards: Over how many shards the rows are spread.

    Raises:
        SinkConfigError: If one is missing, or has no counterpart in this sink's client.
    """
    if missing := [name for name in _REQUIRED if not options.get(name)]:
        raise _refused(f"options {' and '.join(_REQUIRED)}", f"none for {' and '.join(missing)}")
    java = {name.removeprefix(_CLIENT): value for name, value in options.items() if name.startswith(_CLIENT)}
    timeout_ms = options.get("transactionTimeoutMs", "300000")
    if not timeout_ms.isdecimal():
        raise _refused("a number of milliseconds in transactionTimeoutMs", repr(timeout_ms))
    return SinkSettings(
        cluster=KafkaCluster(name="sink", config=client_settings(java)),
        topic=options.get("topic"),
        lineage=options["lineage"],
        shards=shards,
        control_topic=options.get("controlTopic") or default_name(options["lineage"]),
        transaction_timeout_ms=int(timeout_ms),
    )


def client_settings(java: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's settings for those of a Java client; names that both have, and librdkafka's, stay.

    Raises:
        SinkConfigError: Naming a setting that has no counterpart.
    """
    settings = {_RENAMED.get(name, name): value for name, value in java.items() if name not in _TYPES}
    for name in ("truststore", "keystore"):
        kind = java.get(f"ssl.{name}.type", "JKS")
        if f"ssl.{name}.location" in java and (name, kind.upper()) != ("keystore", "PKCS12"):
            raise _refused(
                f"certificates in PEM (kafka.ssl.{name}.type=PEM)", f"a {name} file of type {kind}"
            )
    if jaas := settings.pop("sasl.jaas.config", None):
        settings |= _login(jaas)
    if settings.get("ssl.endpoint.identification.algorithm") == "":
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def _login(jaas: str) -> dict[str, str]:
    found = {name: re.sub(r"\\(.)", r"\1", value) for name, value in _LOGIN.findall(jaas)}
    if found.keys() != {"username", "password"} or "LoginModule" not in jaas:
        raise _refused(
            "a user and a password in kafka.sasl.jaas.config (PLAIN or SCRAM)", "another kind of login"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _refused(expected: str, found: str) -> SinkConfigError:
    return SinkConfigError(
        f"Format kafka-transactional expected {expected}, found {found}.",
        left="Nothing was written.",
        remedy="Correct the options of writeStream; options kafka.* may also have librdkafka's names, such "
        "as kafka.ssl.ca.location and kafka.sasl.username.",
    )
