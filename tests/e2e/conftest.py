"""What the stories share: one pair of brokers with a mirror, one JVM that reads state for the judge."""

from __future__ import annotations

import re
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testbed.drivers import state_reader
from testbed.kafka import Broker
from testbed.scenario import OrdersScenario
from tests.conftest import KafkaPair, a_kafka_pair, mirror_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.judge import StateReader


_SHARED_PORTS = "kafka_ports"
"""What a process of stories side by side is told: the ports of the pair that all of them use."""
_shared = ExitStack()
_ports: list[int] = []


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401  (xdist's, which one process does without)
    """Start the pair and its mirror once for all processes: idle ones of each would cost half a core."""
    if not _ports:
        folder = Path(_shared.enter_context(tempfile.TemporaryDirectory(prefix="stories-")))
        pair = _shared.enter_context(a_kafka_pair(folder))
        _shared.enter_context(mirror_of(pair, folder / "mirror"))
        _ports.extend(broker.port for broker in pair)
    node.workerinput[_SHARED_PORTS] = list(_ports)


def pytest_unconfigure() -> None:
    """End what was started for all processes."""
    _shared.close()


@pytest.fixture(scope="session")
def kafka_pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaPair]:
    """Two brokers of all stories: use topics of your own, and leave both running."""
    folder = tmp_path_factory.mktemp("kafka")
    if ports := _ports_told(request):
        yield KafkaPair(
            *(Broker(name, folder, port=port) for name, port in zip(KafkaPair._fields, ports, strict=True))
        )
    else:
        with a_kafka_pair(folder) as pair:
            yield pair


@pytest.fixture(scope="session")
def mirror(
    request: pytest.FixtureRequest, kafka_pair: KafkaPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """The mirror of the pair, which runs; its topics start with ``orders``."""
    if _ports_told(request):
        yield
    else:
        with mirror_of(kafka_pair, tmp_path_factory.mktemp("mirror")):
            yield


def _ports_told(request: pytest.FixtureRequest) -> list[int]:
    told: list[int] = getattr(request.config, "workerinput", {}).get(_SHARED_PORTS, [])
    return told


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateReader]:
    with state_reader(tmp_path_factory.mktemp("judge")) as reader:
        reader.start()
        yield reader


@pytest.fixture
def scenario(
    request: pytest.FixtureRequest, tmp_path: Path, kafka_pair: KafkaPair, mirror: None
) -> Iterator[OrdersScenario]:
    """A job of its own, on a topic of its own, whose first records are gone on the old cluster."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_")).strip("-")
    story = f"{words[:45]}-{words[-14:]}"  # its parameters are at the end
    with OrdersScenario(
        folder=tmp_path, old=kafka_pair.old, new=kafka_pair.new, topic=f"orders-{story}"
    ) as scenario:
        scenario.create_topic(deleted={0: 100, 1: 40, 2: 250})
        yield scenario
