"""Temporary credentials: what is assumed is handed on, and everybody outlives the tokens that it gives."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.job import StreamingJobHook
from airflow_flinkstyle.operators.retention import VerifySavepointOperator
from airflow_flinkstyle.sensors.freshness import SavepointFreshnessSensor
from airflow_flinkstyle.storage.errors import CredentialsExpiredError, StoreDeniedError
from airflow_flinkstyle.storage.open import impatient, open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from airflow_flinkstyle.triggers.savepoint import FreshSavepointTrigger
from testbed.keys import SIGNING_KEY
from testbed.s3 import S3Server
from testbed.sts import ROLE, TokenService
from tests.unit.airflow_layer.conftest import a_context
from tests.unit.rewrite.golden_savepoint import Savepoint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.nightly, pytest.mark.integration, pytest.mark.airflow]
ROOT = "s3://savepoints/jobs"
LIVES = 6
FOR_EVER_S = 1e12
WRITES = textwrap.dedent("""\
    import sys, time
    from airflow_flinkstyle.storage.open import open_store
    store = open_store(sys.argv[1])
    for number in range(int(sys.argv[2])):
        store.write(f"driver/{number}", b"x")
        assert store.head(f"driver/{number}").size_bytes == 1
        time.sleep(0.5)
    """)
"""As an agent does: one store for as long as the driver runs, by what the environment says."""


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("open-s3"), authorization="none") as server:
        server.create_bucket("savepoints")
        yield server


@pytest.fixture
def service(upstream: S3Server) -> Iterator[TokenService]:
    """Tokens that end after a second, though it says an hour: nothing but the refusal tells."""
    with TokenService(upstream, life_s=1.0, told_s=3600.0) as service:
        yield service


def connect(monkeypatch: pytest.MonkeyPatch, service: TokenService, **extra: Any) -> StreamingJobHook:
    """Set up connections whose amazon one assumes a role."""
    aws = {
        "region_name": "us-east-1",
        "role_arn": ROLE,
        "service_config": {
            "s3": {"endpoint_url": service.endpoint},
            "sts": {"endpoint_url": service.endpoint},
        },
        **extra,
    }
    login = {} if "assume_role_method" in extra else {"login": "AKIA-LONG-LIVED", "password": "long-lived"}
    flinkstyle = {"savepoint_root": ROOT, "aws_conn_id": "aws_default"}
    for name, kind, more, fields in (
        ("aws_default", "aws", aws, login),
        ("flinkstyle_default", "flinkstyle", flinkstyle, {"password": SIGNING_KEY}),
    ):
        value = json.dumps({"conn_type": kind, "extra": more, **fields})
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", value)
    return StreamingJobHook()


def web_identity(folder: Path) -> dict[str, str]:
    (folder / "token").write_text("who-i-am")
    return {
        "assume_role_method": "assume_role_with_web_identity",
        "assume_role_with_web_identity_federation": "file",
        "assume_role_with_web_identity_token_file": str(folder / "token"),
    }


def outlived(service: TokenService, lives: int = LIVES) -> bool:
    return service.seen.expired >= lives and len(service.seen.assumed) > lives


@pytest.mark.parametrize("how", ["role", "web identity"])
def test_store_of_a_hook_outlives_its_tokens(
    service: TokenService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
):
    extra = {} if how == "role" else web_identity(tmp_path)
    hook = connect(monkeypatch, service, **extra)
    store, number = hook.store, 0
    (tmp_path / "file").write_bytes(b"y" * (9 << 20))
    while not outlived(service):
        store.write(f"hook/{number}", b"x")
        assert store.head(f"hook/{number}") is not None
        store.upload("hook/large", tmp_path / "file")
        number += 1
        time.sleep(0.2)
    assert set(service.seen.by_key) == ({"AKIA-LONG-LIVED"} if how == "role" else {""})


def test_heartbeats_client_that_tries_nothing_again_outlives_its_tokens(
    service: TokenService, monkeypatch: pytest.MonkeyPatch
):
    store = impatient(connect(monkeypatch, service).store, answer_s=20.0)
    while not outlived(service, 3):
        store.write("heartbeat", b"x")
        time.sleep(0.2)


@pytest.mark.parametrize("how", ["role", "web identity"])
def test_driver_assumes_by_itself_and_outlives_its_tokens(
    service: TokenService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: str
):
    extra = {} if how == "role" else web_identity(tmp_path)
    given = connect(monkeypatch, service, **extra).secret_env
    assert service.seen.assumed == [], "nothing is assumed for the driver"
    assert not given.get("AWS_SESSION_TOKEN")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS")}
    env = {**inherited, **{name: value for name, value in given.items() if value}}
    done = subprocess.run(
        [sys.executable, "-c", WRITES, ROOT, "16"],
        check=False, env=env, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert service.seen.expired >= 3
    assert len(service.seen.assumed) > 3


def test_operator_sensor_and_trigger_outlive_their_tokens(
    service: TokenService, monkeypatch: pytest.MonkeyPatch
):
    hook = connect(monkeypatch, service)
    golden = Savepoint("rocksdb")
    job = golden.repository.job
    trigger = FreshSavepointTrigger(
        job=job, flinkstyle_conn_id="flinkstyle_default", poll_interval_s=0.2, max_age_s=FOR_EVER_S
    )
    fired: list[Any] = []

    async def watch() -> None:
        fired.extend([event async for event in trigger.run()])

    thread = threading.Thread(target=lambda: asyncio.run(watch()), daemon=True)
    thread.start()
    while not outlived(service):
        assert thread.is_alive(), fired
        time.sleep(0.2)
    for info in golden.store.list():
        hook.store.write(info.key, golden.store.read(info.key))
    thread.join(60)
    assert [event.payload for event in fired] == [{"savepoint_id": "sp-1"}]
    sensor = SavepointFreshnessSensor(task_id="fresh", job=job, max_age_s=FOR_EVER_S)
    verify = VerifySavepointOperator(task_id="verify", job=job, savepoint_id="sp-1")
    for _ in range(3):
        before = len(service.seen.assumed)
        assert sensor.poke(a_context("fresh")).xcom_value == "sp-1"
        verify.execute(a_context("verify"))
        assert len(service.seen.assumed) > before, "each look asks for itself"
        time.sleep(1.2)


def test_token_that_stands_in_a_connection_is_expired_and_may_be_tried_again(service: TokenService):
    service.life_s = 600.0
    given = service.give({"RoleSessionName": ["x"], "RoleArn": [ROLE], "Action": ["AssumeRole"]}, "")
    token = given.partition("<SessionToken>")[2].partition("<")[0]
    settings = S3Settings(endpoint=service.endpoint, access_key="a", secret_key="b", session_token=token)  # noqa: S106
    store = open_store(ROOT, settings)
    store.write("static/a", b"x")
    service.expire()
    with pytest.raises(CredentialsExpiredError) as refused:
        store.write("static/b", b"x")
    assert refused.value.retryable
    assert "role_arn" in refused.value.remedy
    with pytest.raises(StoreDeniedError):
        open_store(ROOT, replace(settings, session_token="wrong")).write("static/c", b"x")  # noqa: S106
