"""docker-compose.yml is valid and fits the rest of the checkout; nothing of it is started here."""

from __future__ import annotations

import base64
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from airflow.configuration import retrieve_configuration_description

from airflow_flinkstyle import __version__
from airflow_flinkstyle.jobs.definition import read_definitions
from airflow_flinkstyle.provider_info import get_provider_info
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
        *("spark-master", "spark-worker-1", "spark-worker-2", "airflow", "prometheus", "grafana"),
    }


def test_what_keeps_running_is_asked_whether_it_answers(services: Mapping[str, Any]):
    assert {name for name, service in services.items() if "healthcheck" not in service} == {
        *("topics", "bucket"),  # end when they are done
        "producer",  # serves nobody
    }
    for service in services.values():
        for other, how in service.get("depends_on", {}).items():
            ends = other in ("topics", "bucket")
            expected = "service_completed_successfully" if ends else "service_healthy"
            assert how["condition"] == expected


def test_keys_are_set_by_a_person_unless_the_demo_was_asked_for(services: Mapping[str, Any]):
    refused = read("config")
    assert refused.returncode != 0
    assert "see docker/demo.env" in refused.stderr
    lines = [line for line in DEMO.read_text().splitlines() if not line.startswith("#")]
    keys = dict(line.split("=", 1) for line in lines)
    text = (paths.ROOT / "docker-compose.yml").read_text()
    assert [name for name in keys if f"${{{name}" not in text] == []
    assert [value for value in keys.values() if value not in ("True", "flinkstyle") and value in text] == []
    assert set(re.findall(r"\$\{(FLINKSTYLE_\w+)", text)) == set(keys)
    assert {name for name, service in services.items() if service.get("profiles") == ["demo"]} == {
        *("producer", "prometheus", "grafana")
    }
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
    assert {image.split(":")[0] for image in images} == {
        *("apache/kafka", "minio/minio", "airflow-flinkstyle", "prom/prometheus", "grafana/grafana")
    }
    assert all(re.fullmatch(r"[\w/-]+:(v?\d+\.\d+\.\d+|RELEASE\.[\dTZ-]+)", image) for image in images)
    kafka = services["kafka-old"]["image"].partition(":")[2]
    assert f"kafka org.apache.kafka:kafka-server:{kafka} " in (paths.ROOT / "locks/jars.lock").read_text()
    assert services["mirror"]["image"] == services["kafka-new"]["image"] == services["kafka-old"]["image"]
    assert services["airflow"]["image"] == f"airflow-flinkstyle:{__version__}"


def test_ports_are_open_to_this_machine_only(services: Mapping[str, Any]):
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert len(ports) == 7
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == []
    assert len({port.split(":")[1] for port in ports}) == len(ports)


def test_master_takes_no_driver_of_a_stranger(services: Mapping[str, Any]):
    options = services["spark-master"]["environment"]["SPARK_DAEMON_JAVA_OPTS"].split()
    assert "-Dspark.master.rest.enabled=false" in options, "Spark 4 opens it, and it asks for no password"


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
    assert services["bucket"]["command"][0] == command[0] == ".flinkstyle/venv-airflow/bin/python"


def test_mirror_has_the_settings_that_the_other_tests_run_with(services: Mapping[str, Any]):
    lines = services["mirror"]["environment"]["MIRROR_PROPERTIES"].splitlines()
    found = dict(line.split(" = ", 1) for line in lines)
    tested = MirrorSettings(
        source_bootstrap="kafka-old:9092", target_bootstrap="kafka-new:9092", topics="orders.*"
    ).as_properties(8083)
    del tested["old.consumer.max.poll.records"]  # Kafka's own default
    del tested["old->new.consumer.fetch.min.bytes"]  # spares a machine that runs many
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
    job = connections["FLINKSTYLE_DEFAULT"]["extra"]
    assert job["savepoint_root"].startswith("s3://savepoints/")
    assert [name for name in job["kafka_connections"].split(",") if name.upper() not in connections] == []


def test_addresses_name_services_and_ports_that_they_listen_to(services: Mapping[str, Any]):
    listening = {
        name: set(re.findall(r":(\d+)/tcp$", "\n".join(one.get("ports", ())), re.M))
        for name, one in services.items()
    }
    listening |= {"prometheus": {"9090"}}
    for name in ("kafka-old", "kafka-new"):
        listeners = services[name]["environment"]["KAFKA_LISTENERS"]
        assert listening[name] <= set(re.findall(r":(\d+)", listeners))
        listening[name] |= set(re.findall(r":(\d+)", listeners))
    listening["spark-master"].add(services["spark-master"]["command"][2].split("--port ")[1].split()[0])
    files = ["docker-compose.yml", "docker/grafana-source.yml", "docker/jobs/orders.yaml"]
    text = "\n".join((paths.ROOT / name).read_text() for name in files)
    named = set(re.findall(rf"\b({'|'.join(services)}):(\d{{4,5}})\b", text))
    assert {name for name, _ in named} == {"kafka-old", "kafka-new", "minio", "prometheus", "spark-master"}
    assert {(name, port) for name, port in named if port not in listening[name]} == set()
    told = set(re.findall(r"http://localhost:(\d+)(?=[ :,])", text.partition("\nx-answers")[0]))
    opened = {port.split(":")[1] for one in services.values() for port in one.get("ports", ())}
    assert told == {"8080", "3000"} <= opened
    endpoint = services["airflow"]["environment"]["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"]
    assert endpoint == "http://prometheus:9090/api/v1/otlp/v1/metrics"
    assert "--web.enable-otlp-receiver" in services["prometheus"]["command"]


def test_what_is_mounted_is_in_this_checkout(services: Mapping[str, Any]):
    declared = yaml.safe_load((paths.ROOT / "docker-compose.yml").read_text())["volumes"]
    mounted = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())}
    assert mounted - set(declared) == {
        str(paths.ROOT / name)
        for name in (
            *("dags", "dashboards", "docker/dags", "docker/jobs", "docker/prometheus.yml"),
            *("docker/grafana-source.yml", "docker/grafana-folder.yml"),
        )
    }
    assert mounted >= set(declared)
    assert [source for source in mounted - set(declared) if not Path(source).exists()] == []


def test_grafana_finds_the_dashboard_and_prometheus(services: Mapping[str, Any]):
    folder = yaml.safe_load((paths.ROOT / "docker/grafana-folder.yml").read_text())
    shown = folder["providers"][0]["options"]["path"]
    assert f"{paths.ROOT}/dashboards:{shown}:ro" in services["grafana"]["volumes"]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(f"{shown}/")
    assert (paths.ROOT / "dashboards" / home.rpartition("/")[2]).is_file()
    source = yaml.safe_load((paths.ROOT / "docker/grafana-source.yml").read_text())["datasources"][0]
    assert source["isDefault"]
    assert source["type"] == "prometheus"


def test_settings_are_ones_that_airflow_and_the_provider_know(services: Mapping[str, Any]):
    known = {
        (section, option)
        for sections in (retrieve_configuration_description(), get_provider_info()["config"])
        for section, told in sections.items()
        for option in told["options"]
    }
    named = [
        name.split("__")[1:] for name in services["airflow"]["environment"] if name.startswith("AIRFLOW__")
    ]
    assert ["FLINKSTYLE", "JOBS"] in named
    assert [name for name in named if tuple(part.lower() for part in name) not in known] == []


def test_job_of_the_demo_can_be_started(services: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch):
    image = "/opt/flinkstyle/"
    definitions = read_definitions(paths.ROOT / "docker/jobs")
    assert definitions.faults == ()
    job = definitions.jobs["orders"]
    script = paths.ROOT / job.script.removeprefix(image)
    options, values = job.args[::2], job.args[1::2]
    assert [name for name in options if f'"{name}"' not in script.read_text()] == []
    assert [values[0].split(":")[0], values[1].split("/")[1]] == ["kafka-old", "data"]
    place = services["airflow"]["environment"]["AIRFLOW__FLINKSTYLE__JOBS"]
    assert f"{paths.ROOT}/docker/jobs:{place}:ro" in services["airflow"]["volumes"]
    monkeypatch.setenv("AIRFLOW__FLINKSTYLE__JOBS", str(paths.ROOT / "docker/jobs"))
    dag = runpy.run_path(str(paths.ROOT / "docker/dags/orders.py"))["dag"]
    told = (paths.ROOT / "docker-compose.yml").read_text().partition("\nx-answers")[0]
    assert f"trigger {dag.dag_id}." in told
    assert "script" not in dag.params


def test_paths_in_the_image_are_made_by_its_set_up(services: Mapping[str, Any]):
    text = (paths.ROOT / "docker-compose.yml").read_text()
    named = set(re.findall(r"(?:/opt/flinkstyle/|\s)\.flinkstyle/([\w/-]+)", text))
    assert {name.split("/")[0] for name in named} == {"venv-airflow", "venv-spark", "jars"}
    made = (paths.ROOT / ".flinkstyle" / name.rstrip("/") for name in named)
    assert [path for path in made if not path.exists() and not list(path.parent.glob(f"{path.name}*"))] == []


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
