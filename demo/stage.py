"""Everything the demo needs, started side by side and ended together."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed import paths
from testbed.airflow import Airflow
from testbed.kafka import Broker
from testbed.mirror import Mirror, MirrorSettings
from testbed.s3 import S3Server
from testbed.scenario import BUCKET, OrdersScenario

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "orders"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What runs."""

    orders: OrdersScenario
    mirror: Mirror
    airflow: Airflow


@contextlib.contextmanager
def set_stage() -> Iterator[Stage]:
    """Start brokers, S3 server and Airflow; MirrorMaker is left to be started."""
    folder = paths.HOME / "demo"
    shutil.rmtree(folder, ignore_errors=True)
    old, new = Broker("old", folder / "old"), Broker("new", folder / "new")
    s3 = S3Server(folder / "s3", heap_mb=256)
    settings = MirrorSettings(
        source_bootstrap=old.bootstrap,
        target_bootstrap=new.bootstrap,
        topics=TOPIC,
        max_poll_records=5000,
        fewest_bytes=1,
    )
    mirror = Mirror(folder / "mirror", settings)
    with contextlib.ExitStack() as ends:
        for component in (old, new, s3):
            ends.callback(component.stop)
            component.launch()
        orders = OrdersScenario(folder=folder / "job", old=old, new=new, topic=TOPIC, s3=s3)
        airflow = Airflow(folder / "airflow", paths.ROOT / "dags", connections=orders.connections())
        ends.callback(airflow.stop)
        airflow.launch()
        for component in (old, new, s3):
            component.wait_ready()
        s3.create_bucket(BUCKET)
        ends.enter_context(orders)
        ends.callback(mirror.stop)
        yield Stage(orders=orders, mirror=mirror, airflow=airflow)
