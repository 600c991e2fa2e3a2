"""What the agent says of a failure, where Spark's message shows a plan with its options."""

from __future__ import annotations

import io
import logging

import pytest

from airflow_flinkstyle.agent.core.run.reasons import Failure
from airflow_flinkstyle.agent.launcher import _WithoutSecrets
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.login import login_of, to_environment
from airflow_flinkstyle.kafka.settings import KafkaCluster

KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIGHAgEAMBMG\n" * 200 + "-----END PRIVATE KEY-----\n"
LOGIN = {"security.protocol": "SSL", "ssl.certificate.pem": "C", "ssl.key.pem": KEY}


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> str:
    cluster = KafkaCluster(name="kafka_new", config={"bootstrap.servers": "new:9093", **LOGIN})
    for name, value in to_environment([cluster]).items():
        monkeypatch.setenv(name, value)
        return f"StreamingRelationV2 {login_of('kafka_new', {name: value})}, key#1\n{KEY}"
    raise AssertionError


@pytest.mark.parametrize("error", [ValueError, lambda text: BadInputError(text, state_after=KEY, remedy="")])
def test_failure_shows_no_part_of_a_key(plan: str, error: type[Exception]):
    assert "MIGH" not in Failure.of(error(f"Output mode not supported;\n{plan}")).text


def test_log_shows_no_key_in_message_or_traceback(plan: str):
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(_WithoutSecrets("%(message)s"))
    failed = (ValueError, ValueError(KEY), None)
    handler.emit(logging.LogRecord("x", logging.ERROR, "x.py", 1, "Failed: %s", (KEY,), failed))
    shown = handler.stream.getvalue()
    assert "Failed: ********" in shown
    assert "MIGH" not in shown
