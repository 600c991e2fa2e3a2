"""What the stories share: one pair of brokers with a mirror, one JVM that reads state for the judge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from testbed.drivers import state_reader
from testbed.scenario import OrdersScenario

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testbed.judge import StateReader
    from testbed.mirror import Mirror
    from tests.conftest import KafkaPair


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateReader]:
    with state_reader(tmp_path_factory.mktemp("judge")) as reader:
        reader.start()
        yield reader


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest, tmp_path: Path, kafka_pair: KafkaPair, mirror: Mirror
) -> Iterator[OrdersScenario]:
    """A job of its own, on a topic of its own, whose first records are gone on the old cluster."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    story = f"{words[:45]}-{words[-14:]}"  # its parameters are at the end
    with OrdersScenario(
        folder=tmp_path, old=kafka_pair.old, new=kafka_pair.new, topic=f"orders-{story}"
    ) as scenario:
        scenario.create_topic(deleted={0: 100, 1: 40, 2: 250})
        yield scenario
