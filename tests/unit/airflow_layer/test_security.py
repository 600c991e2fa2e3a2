"""Logins at the edge: what operators hand on, and what they refuse to record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.kafka.login import CONNECTION, VARIABLE

if TYPE_CHECKING:
    from types import SimpleNamespace

pytestmark = pytest.mark.airflow


def test_hook_reads_the_logins_that_a_driver_needs(connections: SimpleNamespace):
    login = {"bootstrap.servers": "new:9093", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    connections.set(
        "kafka_new", "kafka", {**login, "sasl.username": "reader", "sasl.password": "pw-of-reader"}
    )
    logins = json.loads(StreamingJobHook().kafka_logins(["kafka_new"])[VARIABLE])
    assert 'password="pw-of-reader"' in logins["kafka_new"]["kafka.sasl.jaas.config"]


def test_override_with_a_secret_is_refused(connections: SimpleNamespace):
    hook = StreamingJobHook()

    def spec(**options: str) -> None:
        hook.spec("job", "v1.py", overrides=[{"role": "source", "servers": "old:9092", "options": options}])

    spec(**{CONNECTION: "kafka_new"})
    with pytest.raises(BadInputError, match=r"kafka\.ssl\.key\.password"):
        spec(**{"kafka.ssl.key.password": "pw"})
