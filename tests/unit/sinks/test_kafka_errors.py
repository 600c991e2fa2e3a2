"""What becomes of a batch when a broker answers with an error: with every code, in every phase.

Whether read_committed readers get each record once is not seen here, where nothing is hidden from them:
tests/integration/test_sink.py, with a real broker.
"""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import confluent_kafka
import pytest

from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.kafka.final_codes import FINAL
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.sinks.errors import RECORD_REFUSED, TRANSACTION_ABORTED, ProducerFencedError
from airflow_flinkstyle.sinks.marker import NOTHING_YET
from airflow_flinkstyle.sinks.producer import send_marker, translated
from airflow_flinkstyle.sinks.settings import SinkSettings
from airflow_flinkstyle.sinks.shard import Chunk, ShardTransaction
from airflow_flinkstyle.sinks.task import final_answer
from testbed.error_broker import Api, ErrorBroker, error_broker, error_names
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from airflow_flinkstyle.sinks.settings import Phase

_NUMBERS = itertools.count()
PHASES: Mapping[Api, Phase] = {
    Api.INIT_PRODUCER_ID: "init",
    Api.FIND_COORDINATOR: "init",
    Api.METADATA: "init",
    Api.LIST_OFFSETS: "init",
    Api.FETCH: "init",
    Api.ADD_PARTITIONS_TO_TXN: "data",
    Api.PRODUCE: "data",
    Api.END_TXN: "commit",
}
"""In which phase of the sink each request is answered with the error."""
LANES = 8
CLUSTER = KafkaCluster(name="sink", config={"bootstrap.servers": "broker:9092"})
ABORTS = (
    *("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "UNKNOWN", "TRANSACTION_ABORTABLE"),
    *("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_TXN_STATE"),
)
"""What ends a transaction, and does not come again."""


@pytest.fixture(scope="module")
def broker() -> Iterator[ErrorBroker]:
    with error_broker() as broker:
        broker.create_topic("out", 1)
        yield broker


def write(
    broker: ErrorBroker, at: Phase | None, trouble: AbstractContextManager[None], records: int = 1
) -> FlinkstyleError | None:
    """Write a batch with trouble from a phase on; return what it failed of, None if it was written."""
    lineage = f"line-{next(_NUMBERS)}"
    settings = SinkSettings(
        cluster=KafkaCluster(name="sink", config={"bootstrap.servers": broker.bootstrap, "log_level": "0"}),
        topic="out",
        lineage=lineage,
        shards=1,
        control_topic=f"flinkstyle-{lineage}.internal",
        transaction_timeout_ms=2000,
        producer_pool_size=1,
        run="this",
        on_phase=None,
    )
    broker.create_topic(settings.control_topic, 2)
    claim = confluent_kafka.Producer(dict(settings.cluster.config))
    send_marker(settings, claim, 0, replace(NOTHING_YET, run=settings.run))
    claim.flush()
    steps: dict[Phase, AbstractContextManager[None]] = {at: trouble} if at else {}
    shard = ShardTransaction(settings, 0, 0, "plan")
    try:
        with steps.get("init", nullcontext()):
            shard.open(1024)
        with steps.get("data", nullcontext()):
            shard.add(Chunk(shard=0, records=[("out", b"value", b"key")] * records, count=1, digest=1))
            shard.pre_commit()
        with steps.get("commit", nullcontext()):
            shard.commit()
    except FlinkstyleError as error:
        return error
    finally:
        shard.abort()
    return None


def answered(broker: ErrorBroker, request: Api, name: str) -> FlinkstyleError | None:
    return write(broker, PHASES[request], broker.answers(request, error_names()[name]))


@pytest.mark.parametrize("name", ABORTS)
@pytest.mark.parametrize("request_of", [Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN])
def test_error_that_ends_a_transaction_lets_the_batch_run_again(
    broker: ErrorBroker, request_of: Api, name: str
):
    error = answered(broker, request_of, name)
    assert error is not None
    assert error.retryable, error


@pytest.mark.parametrize("request_of", [Api.ADD_PARTITIONS_TO_TXN, Api.PRODUCE, Api.END_TXN])
def test_fenced_writer_is_named_though_many_records_wait(broker: ErrorBroker, request_of: Api):
    """The client then only says that it is fatal, or that the state is wrong."""
    trouble = broker.answers(request_of, error_names()["PRODUCER_FENCED"], times=20)
    error = write(broker, "data" if request_of is not Api.END_TXN else "commit", trouble, records=3000)
    assert isinstance(error, ProducerFencedError), error


@pytest.mark.parametrize("hidden", [True, False])
def test_error_of_the_client_is_found_behind_pythons_complaint_about_it(*, hidden: bool):
    fenced = confluent_kafka.KafkaException(confluent_kafka.KafkaError(error_names()["_FENCED"]))
    settings = cast("SinkSettings", SimpleNamespace(cluster=CLUSTER, transaction_timeout_ms=1))
    with pytest.raises(ProducerFencedError if hidden else SystemError), translated(settings, "line-0"):
        raise SystemError("returned a result with an exception set") from (fenced if hidden else None)


@pytest.mark.nightly
@pytest.mark.parametrize("request_of", PHASES, ids=lambda request: request.name)
def test_every_code_of_the_client_is_final_only_if_the_list_says_so(request_of: Api):
    def wrong_of(names: Sequence[str]) -> list[str]:
        with error_broker() as broker:
            broker.create_topic("out", 1)
            return [found for name in names if (found := wrong(broker, name))]

    def wrong(broker: ErrorBroker, name: str) -> str:
        error = answered(broker, request_of, name)
        is_right = error is None or error.retryable != (name in FINAL)
        return "" if is_right else f"{name}: {error}"  # an error kept would keep its clients

    names = list(error_names())
    with ThreadPoolExecutor(LANES) as lanes:  # they wait most of the time
        found = list(lanes.map(wrong_of, [names[lane::LANES] for lane in range(LANES)]))
    assert not [one for some in found for one in some]


@pytest.mark.parametrize("name", ["MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "RECORD_LIST_TOO_LARGE"])
@pytest.mark.parametrize("request_of", [Api.PRODUCE, Api.END_TXN])
def test_record_that_is_refused_is_named_though_the_client_hides_it(
    broker: ErrorBroker, request_of: Api, name: str
):
    error = answered(broker, request_of, name)
    assert error.code == RECORD_REFUSED.code
    assert name in str(error)


@pytest.mark.parametrize("at", ["data", "commit"])
def test_brokers_that_are_away_longer_than_the_transaction_may_take_let_the_batch_run_again(
    broker: ErrorBroker, at: Phase
):
    error = write(broker, at, broker.away())
    assert error.code == TRANSACTION_ABORTED.code
    assert "_MSG_TIMED_OUT" in str(error)


@pytest.mark.parametrize("name", ["NOT_LEADER_FOR_PARTITION", "UNKNOWN", "THROTTLING_QUOTA_EXCEEDED"])
def test_marker_is_found_though_the_brokers_had_to_be_asked_twice_where_it_is(broker: ErrorBroker, name: str):
    """It was not: the shard looked as if another run had claimed it, which ended the job for good."""
    error = answered(broker, Api.LIST_OFFSETS, name)
    assert error is None or error.retryable, error


def test_batch_without_trouble_is_written(broker: ErrorBroker):
    assert write(broker, None, nullcontext()) is None


def test_last_attempt_of_a_task_hands_its_error_to_the_driver():
    def fail() -> list[object]:
        raise error

    error = TRANSACTION_ABORTED.with_text("aborted", state_after="", remedy="")
    assert final_answer(fail, is_last=True) is error
    with refuses(TRANSACTION_ABORTED):
        final_answer(fail, is_last=False)


def test_list_names_codes_that_the_client_has_and_says_why():
    assert FINAL.keys() <= error_names().keys()
    assert all(FINAL.values())
