"""A shop of its own for the stories at the page: two brokers, an S3 server, and an Airflow with roles."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from testbed.drivers import state_reader
from testbed.kafka import Broker
from testbed.mirror import Mirror, MirrorSettings
from testbed.s3 import S3Server
from testbed.scenario import BUCKET, OrdersScenario
from testbed.waiting import wait_until
from tests.integration.page_lab import Caller, an_airflow_of
from tests.page_browser import a_browser

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from playwright.sync_api import Browser

    from testbed.airflow import Airflow
    from testbed.judge import StateReader

TOPIC = "orders"
BUTTONS = (
    *("start_job", "take_savepoint", "upgrade_job", "roll_back", "migrate_kafka_cluster"),
    *("verify_savepoint", "stop_job", "export_savepoint", "settle_job"),
)
"""DAGs that the stories trigger; all others stay paused, such as one that would start dead drivers again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """What runs."""

    orders: OrdersScenario
    mirror: Mirror
    """Left to be started."""
    airflow: Airflow
    admin: Caller
    browser: Browser


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    old, new, s3 = Broker("old", folder / "old"), Broker("new", folder / "new"), S3Server(folder / "s3")
    mirror = Mirror(
        folder / "mirror",
        MirrorSettings(source_bootstrap=old.bootstrap, target_bootstrap=new.bootstrap, topics=TOPIC),
    )
    with ExitStack() as ends:
        for component in (old, new, s3):
            ends.callback(component.stop)
            component.launch()
        orders = OrdersScenario(folder=folder / "job", old=old, new=new, topic=TOPIC, s3=s3)
        airflow = an_airflow_of(folder, with_spark_ui(orders.connections()), "flinkstyle_default")
        ends.callback(airflow.stop)
        airflow.launch()
        for component in (old, new, s3):
            component.wait_ready()
        s3.create_bucket(BUCKET)
        ends.enter_context(orders)
        ends.callback(mirror.stop)
        orders.create_topic(deleted={0: 100, 1: 40, 2: 250})
        orders.start_producer()
        airflow.wait_ready()
        admin = Caller(airflow.base_url, "admin")
        for dag in BUTTONS:
            wait_until(f"DAG {dag}", lambda: unpaused(admin, dag))  # noqa: B023  # called now
        yield Shop(
            orders=orders,
            mirror=mirror,
            airflow=airflow,
            admin=admin,
            browser=ends.enter_context(a_browser()),
        )


def with_spark_ui(connections: Mapping[str, str]) -> dict[str, str]:
    """Return connections whose drivers have Spark's own UI, which tests leave out elsewhere."""
    spark = json.loads(connections["spark_default"])
    spark["extra"]["conf"] = {**spark["extra"]["conf"], "spark.ui.enabled": "true"}
    return {**connections, "spark_default": json.dumps(spark)}


def unpaused(admin: Caller, dag: str) -> bool:
    """Unpause a DAG; False while Airflow does not know it yet."""
    return admin.ask("PATCH", f"/api/v2/dags/{dag}", body={"is_paused": False})[0] == 200


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateReader]:
    with state_reader(tmp_path_factory.mktemp("judge")) as reader:
        reader.start()
        yield reader
