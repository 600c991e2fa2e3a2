"""The login of a Kafka source in librdkafka's names."""

from __future__ import annotations

import pytest

from airflow_flinkstyle.kafka.login import java_settings
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.errors import SINK_CONFIG
from airflow_flinkstyle.sinks.source_offsets import client_settings
from testbed.refusals import refuses


@pytest.mark.parametrize(
    ("java", "text"),
    [
        ({"ssl.truststore.location": "/trust.jks"}, "truststore file of type JKS"),
        ({"sasl.jaas.config": "Krb5LoginModule required;"}, "kafka.sasl.jaas.config"),
    ],
)
def test_login_that_has_no_counterpart_is_named(java: dict[str, str], text: str):
    with refuses(SINK_CONFIG, match=text):
        client_settings(java)


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
def test_login_of_sparks_own_source_logs_in_here(config: dict[str, str]):
    cluster = KafkaCluster(name="out", config={"bootstrap.servers": "kafka:9092", **config})
    assert client_settings(java_settings(cluster)) == config
