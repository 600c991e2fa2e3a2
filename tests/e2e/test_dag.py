"""The migration through Airflow: both DAGs by the REST API, on S3, judged order by order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testbed import paths
from testbed.airflow import Airflow
from testbed.scenario import BUCKET, OrdersScenario, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.judge import StateReader
    from testbed.mirror import Mirror
    from testbed.s3 import S3Server
    from tests.conftest import KafkaPair

pytestmark = [pytest.mark.e2e, pytest.mark.airflow]
DAG = "migrate_kafka_cluster"


def test_migration_through_the_dag(
    tmp_path: Path, kafka_pair: KafkaPair, mirror: Mirror, s3_server: S3Server, reader: StateReader
):
    s3_server.create_bucket(BUCKET)
    job = OrdersScenario(
        folder=tmp_path, old=kafka_pair.old, new=kafka_pair.new, topic="orders-dag", s3=s3_server
    )
    airflow = Airflow(tmp_path / "airflow", paths.ROOT / "dags", connections=job.connections())
    with airflow, job:
        job.create_topic(deleted={0: 100})
        job.start_producer()
        api = airflow.api
        for dag in ("start_job", DAG):
            api.wait_for_dag(dag)
        started = api.trigger("start_job", job.start_form())
        assert api.wait_for_run("start_job", started, timeout_s=180) == "success"
        job.wait_commits(2)

        run = api.trigger(DAG, job.migration_form())
        api.wait_for_task(DAG, run, "approve", ("awaiting_input", "deferred"), timeout_s=120)
        assert "| orders |" in api.approval(DAG, run, "approve")["body"]
        api.respond(DAG, run, "approve", ["Approve"])
        assert api.wait_for_run(DAG, run, timeout_s=300) == "success", api.logs(DAG, run, "migrate")
        report = api.xcom(DAG, run, "migrate")
        assert "refused" not in report["table"]
        wait_until("orders go to new", lambda: job.producer_is_at() == "new", timeout_s=20)
        job.wait_commits(2)
        judgement = job.judge(reader, kafka_pair.new)
        assert judgement.right, judgement
