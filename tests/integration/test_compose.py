"""docker-compose.yml is valid and fits the rest of the checkout; nothing of it is started here."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from testbed import paths
from testbed.mirror import MirrorSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.integration
DEMO = paths.ROOT / "docker" / "demo.env"
OF_THE_IMAGE = "5L6g3nShT-eMCtK--X86sw"
"""What apache/kafka calls every cluster that is not told otherwise."""


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services as docker-compose understands them, anchors and variables resolved."""
    done = read("--env-file", str(DEMO), "--profile", "demo", "config")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)["services"]
    return found


def read(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker-compose", "--file", paths.ROOT / "docker-compose.yml", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("FLINKSTYLE_")},
    )


def test_compose_file_is_valid_and_has_every_component(services: Mapping[str, Any]):
    assert set(services) == {
        *("kafka-old", "kafka-new", "topics", "mirror", "minio", "bucket", "producer"),
        *("spark-master", "spark-worker-1", "spark-worker-2", "airflow"),
    }


def test_keys_are_set_by_a_person_unless_the_demo_was_asked_for(services: Mapping[str, Any]):
    refused = read("config")
    assert refused.returncode != 0
    assert "see docker/demo.env" in refused.stderr
    lines = [line for line in DEMO.read_text().splitlines() if not line.startswith("#")]
    keys = dict(line.split("=", 1) for line in lines)
    text = (paths.ROOT / "docker-compose.yml").read_text()
    assert [name for name in keys if f"${{{name}" not in text] == []
    assert [value for value in keys.values() if value not in ("True", "flinkstyle") and value in text] == []
    assert services["producer"]["profiles"] == ["demo"]
    assert services["airflow"]["environment"]["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS"] == "True"
    assert "ALL_ADMINS:-False}" in text


def test_clusters_have_ids_of_their_own_and_keep_their_logs(services: Mapping[str, Any]):
    old, new = services["kafka-old"], services["kafka-new"]
    ids = [one["environment"]["CLUSTER_ID"] for one in (old, new)]
    assert len({*ids, OF_THE_IMAGE}) == 3
    assert [len(base64.urlsafe_b64decode(f"{one}==")) for one in ids] == [16, 16]
    for one in (old, new):
        folder = one["environment"]["KAFKA_LOG_DIRS"]
        assert [volume for volume in one["volumes"] if volume.split(":")[1] == folder]
    assert set(old["volumes"]).isdisjoint(new["volumes"])


def test_images_are_pinned(services: Mapping[str, Any]):
    images = {service["image"] for service in services.values()}
    assert {image.split(":")[0] for image in images} == {"apache/kafka", "minio/minio", "airflow-flinkstyle"}
    assert all(re.fullmatch(r"[\w/-]+:(\d+\.\d+\.\d+|RELEASE\.[\dTZ-]+)", image) for image in images)


def test_ports_are_open_to_this_machine_only(services: Mapping[str, Any]):
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == 6
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_driver_and_executors_share_a_disk(services: Mapping[str, Any]):
    assert all(
        "data:/data:rw" in services[name]["volumes"]
        for name in ("airflow", "spark-worker-1", "spark-worker-2")
    )


def test_commands_name_files_options_and_services_that_exist(services: Mapping[str, Any]):
    command = services["producer"]["command"]
    script = paths.ROOT / command[1]
    assert script.parts[-2] in (paths.ROOT / "docker" / "Dockerfile").read_text()
    help_text = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, timeout=300, check=True
    ).stdout
    for option in command[2:]:
        name, _, value = option.partition("=")
        assert f"{name} " in help_text
        assert value.startswith("s3://savepoints/") or value.split(":")[0] in services
    told = (paths.ROOT / "docker-compose.yml").read_text().partition("\nx-kafka")[0]
    for path in re.findall(r"/opt/flinkstyle/([\w/.]+\.py)", told):
        assert (paths.ROOT / path).is_file()
    assert services["bucket"]["command"][0] == command[0] == ".flinkstyle/venv-airflow/bin/python"


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
