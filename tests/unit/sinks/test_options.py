"""The options of format("kafka-transactional") become the sink's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.kafka.login.java_settings import java_settings
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.errors import SinkConfigError
from airflow_flinkstyle.sinks.options import client_settings, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

REQUIRED = {"kafka.bootstrap.servers": "kafka:9092", "lineage": "totals"}


def test_options_are_those_of_sparks_own_sink_and_a_lineage():
    settings = settings_of({**REQUIRED, "topic": "out", "checkpointLocation": "/c", "kafka.acks": "all"}, 4)
    assert settings.cluster.config == {"bootstrap.servers": "kafka:9092", "acks": "all"}
    assert (settings.topic, settings.lineage, settings.shards) == ("out", "totals", 4)
    assert (settings.control_topic, settings.transaction_timeout_ms) == (
        "flinkstyle-totals.internal",
        300_000,
    )


def test_control_topic_and_time_can_be_given():
    settings = settings_of({**REQUIRED, "controlTopic": "ctl", "transactionTimeoutMs": "60000"}, 1)
    assert (settings.control_topic, settings.transaction_timeout_ms) == ("ctl", 60_000)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lineage": "totals"}, "kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "kafka:9092"}, "none for lineage"),
        ({**REQUIRED, "transactionTimeoutMs": "5 min"}, "transactionTimeoutMs"),
        ({**REQUIRED, "kafka.ssl.truststore.location": "/trust.jks"}, "type JKS"),
        ({**REQUIRED, "kafka.sasl.jaas.config": "Krb5LoginModule required;"}, "kafka.sasl.jaas.config"),
    ],
)
def test_option_that_is_missing_or_has_no_counterpart_is_named(options: Mapping[str, str], text: str):
    with pytest.raises(SinkConfigError, match=text):
        settings_of(options, 2)


@pytest.mark.parametrize(
    "config",
    [
        {"security.protocol": "PLAINTEXT"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "app",
            "sasl.password": 'a "quoted\\ one"',
            "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
            "ssl.endpoint.identification.algorithm": "none",
        },
        {
            "security.protocol": "SSL",
            "ssl.endpoint.identification.algorithm": "https",
            "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----",
            "ssl.key.pem": "-----BEGIN PRIVATE KEY-----",
        },
    ],
)
def test_login_of_sparks_own_sink_logs_in_here(config: dict[str, str]):
    cluster = KafkaCluster(name="out", config={"bootstrap.servers": "kafka:9092", **config})
    assert client_settings(java_settings(cluster)) == config
