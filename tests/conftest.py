"""Real components for all tiers; each is started when the first test asks for it."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from testbed import paths
from testbed.jvm import spark_options
from testbed.kafka import Broker
from testbed.mirror import Mirror, MirrorSettings
from testbed.s3 import S3Server, VersityGw
from testbed.spark import SparkPaths
from testbed.spark import spark_paths as find_spark
from tests import hearts

if TYPE_CHECKING:
    from collections.abc import Iterator

# Before any test imports airflow or starts a JVM: nothing may appear in the home folder.
_LANE = os.environ.get("PYTEST_XDIST_WORKER", "")  # tests run side by side share no folder
_AIRFLOW = paths.VENV_AIRFLOW.name.removeprefix("venv-airflow")  # nor do versions of Airflow
os.environ["AIRFLOW_HOME"] = str(paths.HOME / f"airflow-tests{_AIRFLOW}{_LANE}")
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(paths.HOME / "cache" / "hypothesis"))
# How long an example takes says how busy the machine is, and nothing of the code.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
os.environ["JAVA_HOME"] = str(paths.java_home())
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
# It tells of each connection that ends, also once pytest has closed what it would be written to.
logging.getLogger("py4j").setLevel(logging.WARNING)
# A shell that starts the tests in the background lets them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_heart_beats_on(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the heartbeats of drivers that seemed to run in a test, before their folder is deleted."""
    if "tmp_path" in request.fixturenames:
        request.getfixturevalue("tmp_path")
    yield
    hearts.end_all()


class KafkaPair(NamedTuple):
    """The two clusters of a migration."""

    old: Broker
    new: Broker


@pytest.fixture(scope="session")
def kafka_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaPair]:
    """Two brokers for the whole session: use topics of your own, and leave both running."""
    folder = tmp_path_factory.mktemp("kafka")
    pair = KafkaPair(Broker("old", folder / "old"), Broker("new", folder / "new"))
    try:
        for broker in pair:  # side by side
            broker.launch()
        for broker in pair:
            broker.wait_ready()
        yield pair
    finally:
        for broker in pair:
            broker.kill()  # nobody needs their logs any more


@pytest.fixture(scope="session")
def old_broker(kafka_pair: KafkaPair) -> Broker:
    """The cluster that jobs leave."""
    return kafka_pair.old


@pytest.fixture(scope="session")
def new_broker(kafka_pair: KafkaPair) -> Broker:
    """The cluster that jobs move to."""
    return kafka_pair.new


@pytest.fixture(scope="session")
def mirror(kafka_pair: KafkaPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    """MirrorMaker 2 from old to new for topics that start with ``orders`` or ``mirrored``."""
    settings = MirrorSettings(
        source_bootstrap=kafka_pair.old.bootstrap,
        target_bootstrap=kafka_pair.new.bootstrap,
        topics="(orders|mirrored).*",
    )
    with Mirror(tmp_path_factory.mktemp("mirror"), settings) as mirror:
        yield mirror


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One S3 server for the session: use a bucket or prefix of your own."""
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def versitygw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGw]:
    """An S3 server for races and large files: use a bucket or prefix of your own."""
    with VersityGw(tmp_path_factory.mktemp("versitygw")) as server:
        yield server


@pytest.fixture(scope="session")
def spark_paths() -> SparkPaths:
    """Where Spark, its Python and the jars are."""
    return find_spark(java_options=spark_options())
