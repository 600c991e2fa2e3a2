"""docker-compose.yml is valid and fits the rest of the checkout; nothing of it is started here."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from testbed import paths
from testbed.mirror import MirrorSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services as docker-compose understands them, anchors and variables resolved."""
    done = subprocess.run(
        ["docker-compose", "--file", paths.ROOT / "docker-compose.yml", "config"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def test_compose_file_is_valid_and_has_every_component(services: Mapping[str, Any]):
    assert set(services) == {
        *("kafka-old", "kafka-new", "topics", "mirror", "minio", "bucket"),
        *("spark-master", "spark-worker-1", "spark-worker-2", "airflow"),
    }


def test_mirror_has_the_settings_that_the_other_tests_run_with(services: Mapping[str, Any]):
    lines = services["mirror"]["environment"]["MIRROR_PROPERTIES"].splitlines()
    found = dict(line.split(" = ", 1) for line in lines)
    tested = MirrorSettings(
        source_bootstrap="kafka-old:9092", target_bootstrap="kafka-new:9092", topics="orders.*"
    ).as_properties(8083)
    del tested["old.consumer.max.poll.records"]  # Kafka's own default
    assert set(found) == set(tested)
    of_the_place = {
        *("listeners", "refresh.topics.interval.seconds", "refresh.groups.interval.seconds"),
        "new.offset.flush.interval.ms",
    }
    assert {key for key in tested if found[key] != tested[key]} <= of_the_place


def test_connections_parse_and_name_services_of_the_file(services: Mapping[str, Any]):
    environment = services["airflow"]["environment"]
    connections = {
        key.removeprefix("AIRFLOW_CONN_"): json.loads(value)
        for key, value in environment.items()
        if key.startswith("AIRFLOW_CONN_")
    }
    assert connections["KAFKA_OLD"]["extra"]["bootstrap.servers"].split(":")[0] in services
    assert connections["KAFKA_NEW"]["extra"]["bootstrap.servers"].split(":")[0] in services
    assert connections["SPARK_DEFAULT"]["host"].removeprefix("spark://") in services
    assert connections["AWS_DEFAULT"]["extra"]["endpoint_url"] == "http://minio:9000"
    assert connections["FLINKSTYLE_DEFAULT"]["extra"]["savepoint_root"].startswith("s3://savepoints/")


def test_image_is_built_only_from_what_the_build_context_lets_in():
    allowed = {
        line[1:] for line in (paths.ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    copied = {
        name
        for line in (paths.ROOT / "docker" / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ")
        for name in line.split()[1:-1]
    }
    assert copied == allowed
    assert all((paths.ROOT / name).exists() for name in copied)
