"""Where secrets go when a job is started from connections: to the driver's environment, and nowhere else."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.jobs.signing import KEY_VARIABLE
from airflow_flinkstyle.operators import StartStreamingJobOperator
from testbed.keys import SIGNING_KEY
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import SimpleNamespace

pytestmark = pytest.mark.airflow
SECRET = "s3cr3t-that-nobody-may-see"  # noqa: S105
IN_ENVIRONMENT = "s3cr3t-of-the-environment"


@pytest.fixture
def spark(connections: SimpleNamespace, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A Spark connection whose spark-submit waits; what it started is ended afterwards."""
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text('#!/bin/sh\necho "$@"\nsleep 300\n')
    submit.chmod(0o755)
    root = str(connections.root)
    keys = {"login": "the-key", "password": SECRET}
    connections.set("aws_default", "aws", {"endpoint_url": "http://127.0.0.1:9"}, **keys)
    connections.set(
        "flinkstyle_default",
        "flinkstyle",
        {"savepoint_root": root, "aws_conn_id": "aws_default", "log_dir": str(tmp_path / "logs")},
        password=SIGNING_KEY,
    )
    yield {"python": str(tmp_path / "bin" / "python"), "conf": {"spark.ui.enabled": "false"}}
    client = StreamingJobHook().client("orders")
    for generation in client.view.board.generations():
        submit = client.view.board.submit(generation)
        if submit is not None and submit.value.native_id:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(submit.value.native_id["pid"]), signal.SIGKILL)


def everywhere(folder: Path, shown: str) -> dict[str, str]:
    """Return all that others can read: files, command lines of all processes, and what was shown."""
    found = {
        str(path): path.read_bytes().decode("utf-8", "replace")
        for path in folder.rglob("*")
        if path.is_file()
    }
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            found[f"{process}/cmdline"] = (process / "cmdline").read_bytes().decode("utf-8", "replace")
    return {**found, "shown": shown}


def environment(pid: str) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("connection", "spark.hadoop.fs.s3a.secret.key"),
        ("connection", "spark.ssl.keyStorePassword"),
        ("conf", "spark.hadoop.fs.s3a.secret.key"),
        ("env", "DB_PASSWORD"),
    ],
)
def test_secret_among_what_is_recorded_is_refused_and_stands_nowhere(
    spark: dict[str, Any],
    connections: SimpleNamespace,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    where: str,
    name: str,
):
    caplog.set_level(logging.DEBUG)
    given: dict[str, Any] = {} if where == "connection" else {where: {name: SECRET}}
    if where == "connection":
        spark = {**spark, "conf": {name: SECRET}}
    connections.set("spark_default", "spark", spark, host="local[1]")
    context = a_context("start")
    operator = StartStreamingJobOperator(task_id="start", job="orders", script="s.py", **given)
    with pytest.raises(AirflowFailException, match=f"BAD_INPUT.*{name}") as refused:
        operator.execute(context)
    shown = f"{refused.value!r} {refused.value.__cause__!r} {caplog.text} {json.dumps(context['ti'].xcoms)}"
    assert [place for place, text in everywhere(tmp_path, shown).items() if SECRET in text] == []
    assert not connections.root.exists() or list(connections.root.rglob("claim.json")) == []


def test_keys_of_the_store_and_of_the_workers_environment_reach_the_driver_and_stand_nowhere(
    spark: dict[str, Any],
    connections: SimpleNamespace,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
):
    caplog.set_level(logging.DEBUG)
    connections.set("spark_default", "spark", spark, host="local[1]")
    monkeypatch.setenv("DB_PASSWORD", IN_ENVIRONMENT)
    monkeypatch.setenv(KEY_VARIABLE, SIGNING_KEY)
    hook = StreamingJobHook()
    client = hook.client("orders")
    handle = client.starts.start(hook.spec("orders", "s.py"), hook.target("spark_default"), claim_key="start")
    places = everywhere(tmp_path, f"{handle!r} {caplog.text}")
    assert any("--claim" in text for place, text in places.items() if place.endswith("cmdline"))
    for secret in (SECRET, IN_ENVIRONMENT):
        assert secret in environment(handle.native_id["pid"])
        assert [place for place, text in places.items() if secret in text] == []
    assert SIGNING_KEY not in environment(handle.native_id["pid"])
    assert [place for place, text in places.items() if SIGNING_KEY in text] == []
