"""``flinkstyle offsets`` without a cluster: savepoints side by side, plans that cannot be read, usage."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.cli.kafka.options import cluster_of_connection
from airflow_flinkstyle.errors import BadInputError
from tests.unit.cli.kafka_savepoints import take_on_kafka

if TYPE_CHECKING:
    from pathlib import Path

Root = Any
Answer = Callable[..., None]


def take(root: Root, savepoint_id: str, offsets: dict[int, int], **log: str) -> None:
    take_on_kafka(root.repository, root.folder / savepoint_id, savepoint_id, {"t": offsets}, **log)


def test_show_without_a_cluster_shows_the_positions_alone(root: Root):
    take(root, "sp-1", {0: 7, 1: 9})
    found = root.json("offsets", "show", "sp-1")["partitions"]
    assert [(one["partition"], one["offset"], one["end"]) for one in found] == [(0, 7, None), (1, 9, None)]


def test_compare_tells_how_far_one_savepoint_is_behind_another(root: Root):
    take(root, "sp-1", {0: 7, 1: 9})
    take(root, "sp-2", {0: 10, 1: 9})
    found = root.json("offsets", "compare", "sp-1", "--savepoint", "sp-2")
    assert found["behind"] == 3
    assert (
        "3 offsets behind savepoint sp-2"
        in root.run("offsets", "compare", "sp-1", "--savepoint", "sp-2").stdout
    )


def test_positions_on_two_clusters_cannot_be_compared_and_that_ends_with_3(root: Root):
    take(root, "sp-1", {0: 7})
    take(root, "sp-2", {0: 10}, cluster_id="c-2")
    said = root.run("offsets", "compare", "sp-1", "--savepoint", "sp-2", code=3).stdout
    assert "1 partitions cannot be compared" in said
    assert "another log" in said


def test_ten_thousand_partitions_are_summed_unless_all_are_asked_for(root: Root):
    take(root, "sp-1", dict.fromkeys(range(10000), 5))
    take(root, "sp-2", {number: 5 + (number == 4711) for number in range(10_000)})
    brief = root.run("offsets", "compare", "sp-1", "--savepoint", "sp-2").stdout
    assert "1 offsets behind savepoint sp-2 over 10,000 partitions" in brief
    assert "9,800 partitions are not listed" in brief
    first = brief.splitlines()[2].split()
    assert first[3] == "4711", "the partition that differs stands first"
    assert len(root.run("offsets", "show", "sp-1").stdout.splitlines()) < 10
    assert len(root.run("offsets", "show", "sp-1", "--all").stdout.splitlines()) > 10_000


@pytest.mark.parametrize(
    "args",
    [
        ("compare", "sp-1"),
        ("compare", "sp-1", "--ends", "--group", "g"),
        ("compare", "sp-1", "--ends"),
        ("plan", "sp-1"),
        ("plan", "sp-1", "--target-config", "a", "--target-conn-id", "b"),
        ("plan", "sp-1", "--target-config", "{clusters}", "--rename", "no equals"),
        ("plan", "sp-1", "--target-config", "{clusters}", "--sources", "[1]"),
        ("plan", "sp-1", "--target-config", "{clusters}", "--sources", "{{"),
    ],
)
def test_a_command_line_that_says_too_little_or_too_much_ends_with_2(root: Root, args: tuple[str, ...]):
    take(root, "sp-1", {0: 7})
    clusters = root.folder / "new.properties"
    clusters.write_text("bootstrap.servers=127.0.0.1:1\n")
    root.run("offsets", *(arg.format(clusters=clusters) for arg in args), code=2)


@pytest.mark.parametrize("content", [None, b"\xff", b"{", b'{"format_version": 99}'])
def test_a_file_that_is_no_plan_is_refused_before_any_cluster_is_asked(root: Root, content: bytes | None):
    file = root.folder / "plan.json"
    if content is not None:
        file.write_bytes(content)
    said = root.run("offsets", "apply", str(file), code=1).stderr
    assert said.startswith(("BAD_INPUT: ", "PLAN_FORMAT: "))


@pytest.fixture
def airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Put a command ``airflow`` beside this Python that answers what the test says."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))

    def answer(stdout: str, stderr: str = "") -> None:
        command = tmp_path / "airflow"
        command.write_text(f"#!/bin/sh\necho '{stderr}' >&2\necho '{stdout}'\n")
        command.chmod(0o755)

    return answer


def test_an_airflow_connection_becomes_a_cluster(airflow: Answer):
    extra = {"bootstrap.servers": "h:1", "enable.auto.commit": "False", "sasl.password": "hidden"}
    airflow(json.dumps([{"conn_id": "old", "conn_type": "kafka", "extra_dejson": extra}]))
    cluster = cluster_of_connection("old")
    assert dict(cluster.config) == {**extra, "enable.auto.commit": "false"}
    assert "hidden" not in f"{cluster} {cluster!r}"


@pytest.mark.parametrize(
    ("stdout", "stderr", "found"),
    [
        (json.dumps([{"conn_type": "http", "password": "hidden"}]), "", "of type 'http'"),
        ("", "Connection not found.", "Connection not found"),
        (json.dumps([{"conn_type": "kafka", "extra_dejson": {"oauth_cb": "hidden"}}]), "", "oauth_cb"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_without_its_values(
    airflow: Answer, stdout: str, stderr: str, found: str
):
    airflow(stdout, stderr)
    with pytest.raises(BadInputError, match=found) as refused:
        cluster_of_connection("old")
    assert "hidden" not in str(refused.value)


def test_without_airflow_a_connection_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match="no command airflow"):
        cluster_of_connection("old")
