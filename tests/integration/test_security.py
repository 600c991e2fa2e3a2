"""Logins of Kafka connections against a real broker: by password and TLS, by certificate, by token."""

from __future__ import annotations

import contextlib
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.kafka.cluster import describe
from airflow_flinkstyle.kafka.errors import ClusterDeniedError
from airflow_flinkstyle.kafka.login import moved_options
from airflow_flinkstyle.kafka.settings import KafkaCluster
from airflow_flinkstyle.operators.start import StartStreamingJobOperator
from airflow_flinkstyle.operators.stop import StopStreamingJobOperator
from testbed.certificates import CertificateAuthority
from testbed.drivers import SPARK_PYTHON, spark_conf
from testbed.keys import SIGNING_KEY
from testbed.secured_kafka import SecuredBroker
from testbed.tokens import TokenServer
from testbed.waiting import PATIENCE_S, wait_until
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.airflow]

TOPIC, HIDDEN, RECORDS = "orders", "salaries", 30
PASSWORD, CLIENT_SECRET = "pw-of-the-reader-71", "secret-of-the-client-83"
UNION_JOB = """
import sys
from functools import reduce
from pyspark.sql import SparkSession
out, topic, *servers = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
def read(address):
    old = {"kafka.ssl.truststore.location": "/old.jks", "kafka.ssl.truststore.password": "old"}
    new = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("kafka").options(**old, **new).load()
rows = reduce(lambda one, other: one.union(other), map(read, servers))
rows.explain(True)
def note(batch, batch_id):
    with open(out, "a") as file:
        file.write(f"{batch.count()}\\n")
query = rows.writeStream.queryName("orders").foreachBatch(note).start()
query.explain(True)
query.awaitTermination()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """A broker, and a reader's settings per way to log in."""

    broker: SecuredBroker
    logins: dict[str, dict[str, str]]

    def cluster(self, way: str, **changes: str) -> KafkaCluster:
        """Return the cluster as a connection of the way's name describes it."""
        config = {**self.logins[way], **changes}
        return KafkaCluster(name=f"kafka_{way}", config=config, request_timeout_s=4)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    from confluent_kafka import Producer

    folder = tmp_path_factory.mktemp("secured")
    with TokenServer({"app": CLIENT_SECRET}) as tokens, SecuredBroker("secured", folder, tokens) as broker:
        for topic in (TOPIC, HIDDEN):
            broker.create_topic(topic, partitions=2)
        logins = {
            "scram": broker.add_scram_user("reader", PASSWORD),
            "mtls": broker.certificate_login("reader"),
            "oauth": broker.token_login("app", CLIENT_SECRET),
        }
        for principal in ("User:reader", "User:CN=reader", "User:app"):
            broker.allow(principal, "TOPIC", TOPIC, "DESCRIBE", "READ")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number), partition=number % 2)
        assert producer.flush(20) == 0
        yield Secured(broker=broker, logins=logins)


@pytest.mark.parametrize("way", ["scram", "mtls", "oauth"])
def test_cluster_is_read_with_each_login(secured: Secured, way: str):
    view = describe(secured.cluster(way), [TOPIC])
    assert view.cluster_id == secured.broker.cluster_id
    assert [log.end for log in view.topics[TOPIC].partitions.values()] == [RECORDS / 2, RECORDS / 2]


def test_wrong_logins_are_refused_by_the_connections_name(secured: Secured):
    expired = secured.broker.certificate_login("reader", timedelta(days=-1))
    foreign = CertificateAuthority().pem
    cases = (
        (secured.cluster("scram", **{"sasl.password": "wrong-word"}), TOPIC, "Authentication failed"),
        (secured.cluster("mtls", **expired), TOPIC, "certificate"),
        (
            secured.cluster("oauth", **{"sasl.oauthbearer.client.secret": "wrong-word"}),
            TOPIC,
            "invalid_client",
        ),
        (secured.cluster("scram", **{"ssl.ca.pem": foreign}), TOPIC, "certificate verify failed"),
        (secured.cluster("scram"), HIDDEN, "authorization failed"),
    )

    def refusal(cluster: KafkaCluster, topic: str) -> str:
        with pytest.raises(ClusterDeniedError) as refused:
            describe(cluster, [topic])
        return str(refused.value)

    with ThreadPoolExecutor(len(cases)) as pool:
        refusals = [pool.submit(refusal, cluster, topic) for cluster, topic, _ in cases]
    for (cluster, _, words), refused in zip(cases, refusals, strict=True):
        said = refused.result()
        assert cluster.name in said
        assert words in said
        assert "wrong-word" not in said


class Lab:
    """A job in a folder, started as Airflow does: with connections and operators."""

    def __init__(self, folder: Path, secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.secured, self._env = folder, secured, monkeypatch
        self.out = folder / "out"
        (folder / "job.py").write_text(UNION_JOB)
        places = {name: str(folder / name) for name in ("savepoint_root", "checkpoint_root", "log_dir")}
        more = {**places, "lease_s": 10}
        self.connect("flinkstyle_default", "flinkstyle", more, password=SIGNING_KEY)
        spark = {"python": str(SPARK_PYTHON), "conf": {**spark_conf(), "spark.sql.shuffle.partitions": "1"}}
        self.connect("spark_default", "spark", spark, host="local[1]")
        for way, login in secured.logins.items():
            self.connect(f"kafka_{way}", "kafka", login)

    def connect(self, name: str, kind: str, extra: dict[str, Any], **fields: str) -> None:
        value = json.dumps({"conn_type": kind, "extra": extra, **fields})
        self._env.setenv(f"AIRFLOW_CONN_{name.upper()}", value)

    def start(self, task: str, **origin: str) -> dict[str, Any]:
        """Start the job, whose script writes other addresses and another trust store; return its XComs."""
        strategies = self.secured.logins
        rules = [
            {"role": "source", "servers": way, "options": moved_options(self.secured.cluster(way), {})}
            for way in strategies
        ]
        operator = StartStreamingJobOperator(
            task_id=task,
            job="orders",
            script=str(self.folder / "job.py"),
            args=[str(self.out), TOPIC, *strategies],
            kafka_overrides=rules,
            running_timeout_s=PATIENCE_S,
            **origin,
        )
        context = a_context(task)
        return {"return_value": operator.execute(context), **context["ti"].xcoms}

    def records(self) -> int:
        return sum(map(int, self.out.read_text().split())) if self.out.exists() else 0

    def files_with(self, secret: str) -> list[str]:
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return [str(path.relative_to(self.folder)) for path in files if secret.encode() in path.read_bytes()]


def command_lines() -> str:
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # also of one that ends meanwhile, which glob does not survive
            found.append((process / "cmdline").read_bytes().decode(errors="replace"))
    return "\n".join(found)


@pytest.mark.nightly
def test_driver_reads_with_each_login_and_shows_it_to_nobody(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    lab = Lab(tmp_path, secured, monkeypatch)
    xcoms = lab.start("start")
    try:
        wait_until("all records three times", lambda: lab.records() == 3 * RECORDS)
        processes = command_lines()
        stop = StopStreamingJobOperator(task_id="stop", job="orders")
        xcoms["stopped"] = stop.execute(a_context("stop"))
        lab.connect("kafka_scram", "kafka", {**secured.logins["scram"], "sasl.password": "wrong-word"})
        with pytest.raises(AirflowFailException, match=r"CLUSTER_DENIED.*kafka_scram") as refused:
            lab.start("again", start_from="savepoint", savepoint_id="latest")
    finally:
        client = StreamingJobHook().client("orders")
        for generation in client.view.board.generations():
            client.drivers.end_driver(generation)
    assert lab.records() == 3 * RECORDS
    assert "job.py" in processes
    key = secured.logins["mtls"]["ssl.key.pem"].splitlines()[2]
    for secret in (PASSWORD, CLIENT_SECRET, key, SIGNING_KEY, "wrong-word"):
        assert lab.files_with(secret) == []
        for shown in (processes, json.dumps(xcoms), caplog.text, str(refused.value)):
            assert secret not in shown
    (log,) = (tmp_path / "log_dir").glob("*-000001-*.log")
    assert "StreamingRelation" in log.read_text()  # the plans, which the script shows
