"""The migration through Airflow: both DAGs by the REST API, on S3, judged order by order.

The new cluster asks for a password over TLS and lets its reader do no more than a migration needs; nobody but
the processes that log in may see the password.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from testbed import paths
from testbed.airflow import Airflow
from testbed.keys import SIGNING_KEY
from testbed.mirror import Mirror, MirrorSettings
from testbed.scenario import BUCKET, OrdersScenario
from testbed.secured_kafka import SecuredBroker
from testbed.tokens import TokenServer
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.judge import StateReader
    from testbed.kafka import Broker
    from testbed.s3 import S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]
DAG = "migrate_kafka_cluster"
TOPIC = "orders-dag"
PASSWORD = "pw-of-the-migrator-59"  # noqa: S105


@pytest.fixture
def secured(tmp_path: Path, old_broker: Broker) -> Iterator[SecuredBroker]:
    """A new cluster behind a mirror of its own."""
    folder = tmp_path / "brokers"
    with TokenServer({}) as tokens, SecuredBroker("secured", folder / "new", tokens) as broker:
        settings = MirrorSettings(
            source_bootstrap=old_broker.bootstrap, target_bootstrap=broker.bootstrap, topics=TOPIC
        )
        with Mirror(folder / "mirror", settings):
            yield broker


def login(broker: SecuredBroker) -> str:
    """Return the connection of somebody who may do what a migration needs, and no more."""
    for topic in (TOPIC, "mm2-offsets.old.internal"):
        broker.allow("User:migrator", "TOPIC", topic, "DESCRIBE", "READ", "DESCRIBE_CONFIGS")
    broker.allow("User:migrator", "GROUP", "airflow-flinkstyle", "DESCRIBE")
    return json.dumps({"conn_type": "kafka", "extra": broker.add_scram_user("migrator", PASSWORD)})


def files_with(folder: Path, secret: str) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file() and "brokers" not in path.parts)
    return [path for path in files if secret.encode() in path.read_bytes()]


def test_migration_through_the_dag(
    tmp_path: Path, old_broker: Broker, secured: SecuredBroker, s3_server: S3Server, reader: StateReader
):
    s3_server.create_bucket(BUCKET)
    job = OrdersScenario(folder=tmp_path, old=old_broker, new=secured, topic=TOPIC, s3=s3_server)
    connections = {**job.connections(), "kafka_new": login(secured)}
    airflow = Airflow(tmp_path / "airflow", paths.ROOT / "dags", connections=connections)
    with job:
        with airflow:
            job.create_topic(deleted={0: 100})
            job.start_producer()
            api = airflow.api
            for dag in ("start_job", DAG):
                api.wait_for_dag(dag)
            started = api.trigger("start_job", job.start_form())
            assert api.wait_for_run("start_job", started) == "success"
            job.wait_commits(2)

            run = api.trigger(DAG, job.migration_form())
            api.wait_for_task(DAG, run, "approve", ("awaiting_input", "deferred"))
            assert "| orders |" in api.approval(DAG, run, "approve")["body"]
            api.respond(DAG, run, "approve", ["Approve"])
            assert api.wait_for_run(DAG, run) == "success", api.logs(DAG, run, "migrate")
            report = api.xcom(DAG, run, "migrate")
            assert "refused" not in report["table"]
            assert report["rehearsal"]["summary"].startswith("rehearsed: ")
            wait_until("orders go to new", lambda: job.producer_is_at() == "new")
            job.wait_commits(2)
        judgement = job.judge(reader, secured)  # the driver that Airflow has started outlives it
        assert judgement.right, judgement
    # Airflow's database with its XComs, all logs, the checkpoints; plans, journal and savepoints.
    for secret in (PASSWORD, SIGNING_KEY):
        assert files_with(tmp_path, secret) == files_with(s3_server.data, secret) == []
