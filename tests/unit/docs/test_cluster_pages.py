"""The pages about clusters and ``examples/kubernetes``: every name and path against what it names."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from airflow_flinkstyle.hooks import clusters
from airflow_flinkstyle.jobs.deployments.kubernetes.resources import RESOURCES
from testbed import paths
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLE = paths.ROOT / "examples" / "kubernetes"
DOCKERFILE = (EXAMPLE / "Dockerfile").read_text()
PAGES = ("on-kubernetes", "on-yarn", "on-standalone")
_CONNECTION = re.compile(r"<!-- connection -->\n```json\n(.*?)```", re.DOTALL)


def connection(page: str) -> dict[str, Any]:
    text = (paths.ROOT / "docs" / f"{page}.md").read_text()
    found = _CONNECTION.search(text)
    assert found is not None
    read: dict[str, Any] = json.loads(found[1])
    return read


def source(name: str) -> Path:
    return paths.ROOT / name


def test_image_copies_what_is_there_and_the_wheel_that_is_built():
    project = tomllib.loads((paths.ROOT / "pyproject.toml").read_text())["project"]
    copied = re.findall(r"^COPY (\S+) ", DOCKERFILE, re.MULTILINE)
    wheels = [name for name in copied if name.startswith("dist/")]
    assert wheels == [f"dist/{project['name'].replace('-', '_')}-*.whl"]
    assert [name for name in copied if name not in wheels and not source(name).exists()] == []


def test_files_of_the_example_name_pages_that_are_there():
    named = {page for file in EXAMPLE.iterdir() for page in re.findall(r"docs/[\w-]+\.md", file.read_text())}
    assert named
    assert [page for page in named if not source(page).exists()] == []


def test_image_has_the_python_and_the_spark_of_the_lock_files():
    python = re.search(r"^FROM python:(\d+\.\d+)-slim", DOCKERFILE, re.MULTILINE)
    assert python is not None
    assert set(re.findall(r"lib/python(\d+\.\d+)/", DOCKERFILE)) == {python[1]}
    spark = re.search(r"^ARG SPARK=(\S+)", DOCKERFILE, re.MULTILINE)
    assert spark is not None
    assert f"pyspark=={spark[1]}\n" in (paths.ROOT / "locks" / "spark.in").read_text()
    connector = re.search(r"--packages (\S+):\$\{SPARK\}", DOCKERFILE)
    assert connector is not None
    assert f"{connector[1]}:{spark[1]}" in (paths.ROOT / "locks" / "jars.in").read_text()


def test_entry_point_reads_what_spark_writes_into_its_pods():
    [jar] = spark_paths().spark_home.glob("jars/spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as classes:
        written = b"".join(classes.read(name) for name in classes.namelist() if name.endswith(".class"))
    read = set(re.findall(r"\$(SPARK_\w+)", (EXAMPLE / "entrypoint.sh").read_text()))
    of_image = {"SPARK_HOME", "SPARK_DIST_CLASSPATH"}
    assert of_image & read == of_image
    assert sorted(name for name in read - of_image if name.encode() not in written) == []
    assert b"org/apache/spark/scheduler/cluster/k8s/KubernetesExecutorBackend" in written


@pytest.mark.parametrize("page", PAGES)
def test_connection_of_a_page_is_read_without_a_field_left_over(page: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(
        "AIRFLOW_CONN_KUBERNETES_DEFAULT",
        json.dumps({"conn_type": "kubernetes", "extra": {"in_cluster": True}}),
    )
    told = connection(page)
    fields = told["extra"].keys() - {"deploy-mode", "python", "spark-home", "conf"}
    assert [name for name in fields if f"``{name}``" not in str(clusters.on_cluster.__doc__)] == []


def test_connection_names_what_the_image_has():
    told = connection("on-kubernetes")
    extra = told["extra"]
    assert f"test -f {extra['agent-path']}" in DOCKERFILE
    assert extra["python"].startswith("/opt/venv/bin/")
    assert "python3 -m venv /opt/venv" in DOCKERFILE
    assert f"-t {extra['conf']['spark.kubernetes.container.image']} " in DOCKERFILE
    assert extra["spark-operator"] in RESOURCES


def test_roles_and_values_are_about_the_namespace_and_account_of_the_connection():
    extra = connection("on-kubernetes")["extra"]
    objects = list(yaml.safe_load_all((EXAMPLE / "roles.yaml").read_text()))
    accounts = [one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"]
    assert accounts == [extra["conf"]["spark.kubernetes.authenticate.driver.serviceAccountName"]]
    subjects = [subject for one in objects for subject in one.get("subjects", ())]
    assert {subject["namespace"] for subject in subjects} == {extra["namespace"]}
    groups = {group for one in objects for rule in one.get("rules", ()) for group in rule["apiGroups"]}
    assert {resource.group for resource in RESOURCES.values()} <= groups
    kubeflow = yaml.safe_load((EXAMPLE / "kubeflow-operator-values.yaml").read_text())
    apache = yaml.safe_load((EXAMPLE / "apache-operator-values.yaml").read_text())
    assert kubeflow["spark"]["jobNamespaces"] == [extra["namespace"]]
    assert apache["workloadResources"]["namespaces"]["data"] == [extra["namespace"]]
