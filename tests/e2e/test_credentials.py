"""A job, its standby and a migration on credentials that last for seconds, as months on those of an hour.

Store and checkpoints are on an S3 that refuses expired tokens. Drivers, callers and S3A get theirs by a web
identity, as in a pod. ``TOKEN_LIFE_S=60`` makes the tokens last a minute, and the test twenty.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.storage.s3_settings import AssumedRole, S3Settings
from testbed.s3 import S3Server
from testbed.scenario import BUCKET, OrdersScenario
from testbed.sts import ROLE, TokenService
from testbed.waiting import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.migration.producers import Position, ProducerSwitch
    from testbed.judge import StateReader
    from testbed.mirror import Mirror
    from tests.conftest import KafkaPair

LIFE_S = float(os.environ.get("TOKEN_LIFE_S", "5"))
LIVES = 10
pytestmark = [pytest.mark.matrix, pytest.mark.e2e, pytest.mark.timeout(1500 + 2 * LIVES * LIFE_S)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[TokenService]:
    """The agents' and callers' tokens end though they were told an hour: only the refusal tells."""
    with (
        S3Server(tmp_path / "s3", authorization="none") as upstream,
        TokenService(upstream, life_s=LIFE_S, told_s=3600.0) as service,
    ):
        upstream.create_bucket(BUCKET)
        yield service


@pytest.fixture
def orders(
    tmp_path: Path, kafka_pair: KafkaPair, mirror: Mirror, service: TokenService
) -> Iterator[OrdersScenario]:
    del mirror  # it runs
    (tmp_path / "token").write_text("who-i-am")
    role = AssumedRole(
        arn=ROLE,
        session_name="streams",
        token_file=str(tmp_path / "token"),
        sts_endpoint=service.endpoint,
    )
    identity = S3Settings(endpoint=service.endpoint, region="us-east-1", role=role)
    with OrdersScenario(
        folder=tmp_path / "job", old=kafka_pair.old, new=kafka_pair.new, topic="orders-on-tokens",
        s3=service.upstream, identity=identity, lease_s=30.0,
    ) as orders:  # fmt: skip
        s3a = {
            "spark.hadoop.fs.s3a.endpoint": service.endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
        orders.target = replace(orders.target, conf={**orders.target.conf, **s3a})
        orders.create_topic()
        yield orders


class Lives:
    """Waits until everybody has outlived their tokens many times."""

    def __init__(self, service: TokenService) -> None:
        self._service = service

    def outlive(self) -> None:
        """Return once so many lives have passed, in which agents were refused and S3A asked anew."""
        seen, since_s = self._service.seen, time.monotonic()
        expired, by_java = seen.expired, seen.assumed_by_java

        def outlived() -> bool:
            return (
                time.monotonic() - since_s > LIVES * LIFE_S
                and seen.expired - expired >= LIVES
                and seen.assumed_by_java - by_java >= LIVES
            )

        wait_until(f"{LIVES} lives of tokens", outlived, timeout_s=PATIENCE_S + LIVES * LIFE_S)


class HeldOpen:
    """Holds the producers once the next driver, which waits by then, has outlived its tokens."""

    def __init__(self, switch: ProducerSwitch, lives: Lives) -> None:
        self._switch, self._lives, self._waited = switch, lives, False

    def apply(self, position: Position, token: int) -> None:
        if position == "hold" and not self._waited:
            self._waited = True
            self._lives.outlive()
        self._switch.apply(position, token)

    def read(self) -> Position | None:
        return self._switch.read()


def test_job_standby_and_migration_outlive_ten_tokens(
    orders: OrdersScenario, service: TokenService, reader: StateReader
) -> None:
    lives = Lives(service)
    orders.start_producer()
    first = orders.start()
    driver = orders.running().run.incarnation
    lives.outlive()
    orders.wait_commits(2)
    assert orders.running().run.incarnation == driver, "no driver died of an expired token"

    hot, switch = orders.hot_savepoint(), HeldOpen(orders.switch, lives)
    settings = CutoverSettings(standby_timeout_s=PATIENCE_S, takeover_timeout_s=PATIENCE_S)
    report = orders.cutover(hot=hot, switch=switch, settings=settings).run()
    assert report.generation != first
    wait_until("orders go to new", lambda: orders.producer_is_at() == "new")
    orders.wait_commits(2)
    assert orders.board.incarnations(report.generation) == [1], "nor the next one, while it waited or since"
    judgement = orders.judge(reader, orders.new)
    assert judgement.right, judgement
    assert set(service.seen.by_key) == {""}, "by the web identity alone"
