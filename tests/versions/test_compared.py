"""A job from Spark 3.5 to 4.2, compared before it; only ``make test-versions`` runs this."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.comparison import CompareAsked
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from testbed.keys import SIGNER
from tests.integration.detached_lab import TIMEOUT_S, Lab
from tests.integration.numbers_job import NumbersJob

if TYPE_CHECKING:
    from pathlib import Path

    from testbed.kafka import Broker

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.kafka]
OLD, NEW = "3.5", "4.2"


def test_job_on_an_old_spark_computes_the_same_on_a_new_one_before_it_goes_there(
    old_broker: Broker, tmp_path: Path
):
    lab = Lab(tmp_path)
    job = NumbersJob(lab, old_broker, "compared-versions", OLD)
    try:
        job.start()
        job.save()
        job.produce(200)
        upgrade = Upgrade(
            client=lab.client,
            journal=CutoverJournal(
                lab.client.view.board.store, "counts", "u1", UPGRADE_PHASES, signer=SIGNER
            ),
            spec=job.spec(),
            target=lab.target(NEW),
            compare=CompareAsked(batches=2, records=100),
            expect="same",
            settings=CutoverSettings(first_commit_timeout_s=TIMEOUT_S),
        )
        with ThreadPoolExecutor(1) as pool:
            going = pool.submit(upgrade.run)
            while not going.done():  # the new version needs something to read
                job.produce(1)
                wait([going], timeout=1)
        report = going.result()
        compared = report.comparison
        assert compared is not None
        assert (compared["verdict"], compared["queries"]["counts"]["input_rows"]) == ("same", 200)
        # Spark 3.5 does not write down its operators, which tell the states apart.
        (untested,) = compared["queries"]["counts"]["untested"]
        assert untested.startswith("Its state:")
        job.produce(10)
        job.until_read()
        status = lab.client.view.status()
        assert isinstance(status, Running)
        assert status.heartbeat.spark_version.startswith(NEW)
        lab.judge()
    finally:
        lab.close()
