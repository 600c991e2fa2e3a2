"""What the Kafka client reports becomes this package's errors."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, KafkaException

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.kafka.errors import KAFKA_REQUEST, ClusterUnreachableError, KafkaAnswerError
from airflow_flinkstyle.kafka.final_codes import FINAL
from airflow_flinkstyle.kafka.settings import KafkaCluster, admin_client, translated_errors
from testbed.error_broker import error_names

if TYPE_CHECKING:
    from collections.abc import Sequence

CLUSTER = KafkaCluster(name="orders", config={"bootstrap.servers": "broker:9092"})


def told(code: int, seen: Sequence[KafkaError] = ()) -> FlinkstyleError:
    """Return the error of a client that raises this code, and has seen others in the background."""
    with pytest.raises(FlinkstyleError) as raised, translated_errors(CLUSTER, list(seen)):
        raise KafkaException(KafkaError(code))
    return raised.value


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    ],
)
def test_brokers_that_settle_are_worth_a_retry(code: int) -> None:
    error = told(code)
    assert isinstance(error, ClusterUnreachableError)
    assert error.retryable
    assert "do not agree on it yet" in str(error)
    assert KafkaError(code).name() in str(error)


def test_no_answer_is_worth_a_retry_and_a_wrong_request_is_not() -> None:
    assert told(KafkaError._TRANSPORT).retryable  # librdkafka's own codes have this prefix
    refused = told(KafkaError.INVALID_REQUEST)
    assert (refused.code, refused.retryable) == (KAFKA_REQUEST.code, False)


def test_every_code_is_worth_a_retry_unless_the_list_of_final_ones_has_it() -> None:
    errors = {name: told(code) for name, code in error_names().items()}
    assert {name for name, error in errors.items() if not error.retryable} == set(FINAL)
    assert isinstance(errors["UNKNOWN"], KafkaAnswerError)


@pytest.mark.parametrize(
    ("said", "retryable"),
    [
        ("SASL authentication error: Authentication failed: invalid credentials", False),
        ("SASL SCRAM-SHA-512 mechanism handshake failed: Local: Broker transport failure", True),
        ("Failed to acquire SASL OAUTHBEARER token: the server of tokens is away", True),
        ('Failed to acquire SASL OAUTHBEARER token: {"error": "temporarily_unavailable"}', True),
        ('Failed to acquire SASL OAUTHBEARER token: {"error": "invalid_client"}', False),
    ],
)
def test_login_is_refused_only_if_somebody_has_looked_at_it(said: str, *, retryable: bool) -> None:
    error = told(KafkaError._TIMED_OUT, [KafkaError(KafkaError._AUTHENTICATION, said)])
    assert error.retryable == retryable, error


def test_a_client_that_cannot_be_ended_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka.admin, "AdminClient", type("Older", (), {}))
    with pytest.raises(BadInputError, match=r"confluent-kafka 2\.13 or newer"), admin_client(CLUSTER):
        pass


def test_a_question_without_answer_leaves_no_client_to_the_garbage_collector() -> None:
    """The collector may run anywhere, also in the client's own thread, which would end the process."""
    program = """
import gc, threading
from concurrent.futures import Future
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import (ClusterUnreachableError)
from airflow_flinkstyle.kafka.settings import KafkaCluster

set_exception, answered = Future.set_exception, threading.Event()

def collect_first(future, error):
    if threading.current_thread() is not threading.main_thread():
        gc.collect()
        answered.set()
    set_exception(future, error)

gc.disable()
Future.set_exception = collect_first
nobody = KafkaCluster(name="gone", config={"bootstrap.servers": "127.0.0.1:9"}, request_timeout_s=0.3)
try:
    describe(nobody, ["orders"])
except ClusterUnreachableError as error:
    error.seen_by = error  # a cycle: only the collector frees the frames that asked
print(answered.wait(20))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
