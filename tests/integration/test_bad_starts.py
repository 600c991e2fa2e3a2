"""Starts that real drivers must refuse: damaged savepoints, keys that the store does not know."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.errors import DriverFailedError
from airflow_flinkstyle.jobs.start.origins import FromSavepoint
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed.drivers import s3_env, s3_settings
from testbed.keys import SIGNER
from tests.integration.detached_lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from airflow_flinkstyle.types import Generation
    from testbed.s3 import S3Server
    from tests.integration.warm_lab import WarmJvms

pytestmark = pytest.mark.integration
TIMEOUT_S = 300


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path, warm=warm_jvms)
    yield lab
    lab.close()


def damage(lab: Lab, savepoint_id: str) -> Mapping[Path, bytes]:
    """Alter two files where they are stored; returns what their blobs held."""
    snapshot = lab.client.view.repository.read(savepoint_id).queries[0]
    commit, metadata = (snapshot.file(path) for path in (f"commits/{snapshot.batch_id}", "metadata"))
    assert commit is not None
    assert metadata is not None
    blobs = lab.folder / "root" / "counts" / "blobs"
    held = {blobs / entry.blob: (blobs / entry.blob).read_bytes() for entry in (commit, metadata)}
    for entry in (commit, metadata):
        altered = bytearray((blobs / entry.blob).read_bytes())
        altered[(entry.offset or 0) + entry.size_bytes - 3] ^= 1
        (blobs / entry.blob).write_bytes(altered)
    return held


def refused(lab: Lab, generation: Generation) -> None:
    """Wait until the generation's driver has refused to start, and read what it says."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (run := lab.client.view.run(generation)).is_over:
        assert time.monotonic() < deadline, lab.logs()
        time.sleep(0.2)
    text = str(lab.client.drivers.driver_failed(run))
    assert "SAVEPOINT_DAMAGED" in text
    assert re.search(r"commits/\d+ was altered", text)
    assert "metadata was altered" in text
    assert "from which Spark refuses to start" in text
    assert "Resume from another savepoint, or put the files back" in text


def current_generation(lab: Lab) -> Generation:
    current = lab.client.view.board.current()
    assert current is not None
    return current.value.generation


@pytest.mark.nightly
def test_damaged_savepoint_is_refused_beside_a_running_job_and_before_a_stopped_ones_first_batch(lab: Lab):
    client = lab.client
    client.starts.start(lab.spec(), lab.target(), claim_key="first")
    lab.until_committed_beyond(1)
    _, taken = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=TIMEOUT_S)
    hot = taken.savepoint_id
    assert hot is not None
    held = damage(lab, hot)
    waiting = client.starts.standby(lab.spec(), lab.target(), claim_key="standby", prepare_savepoint_id=hot)
    refused(lab, waiting.generation)
    assert current_generation(lab) == 1
    lab.until_committed_beyond(lab.until_committed_beyond(0))

    put_back(held)
    savepoint_id = client.requests.stop("stop", savepoint=True, timeout_s=TIMEOUT_S).savepoint_id
    assert savepoint_id is not None
    written = lab.out.read_bytes()
    held = damage(lab, savepoint_id)
    origin = FromSavepoint(savepoint_id=savepoint_id)
    damaged = client.starts.start(lab.spec(), lab.target(), claim_key="damaged", origin=origin)
    refused(lab, damaged.generation)
    assert current_generation(lab) == 1
    assert lab.out.read_bytes() == written

    put_back(held)
    whole = client.starts.start(lab.spec(), lab.target(), claim_key="whole", origin=origin)
    client.drivers.wait_running(whole.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(client.view.repository.read(savepoint_id).queries[0].batch_id)
    lab.judge()


def put_back(held: Mapping[Path, bytes]) -> None:
    for path, content in held.items():
        path.write_bytes(content)


def test_driver_with_wrong_s3_keys_runs_nothing_and_its_log_says_why(lab: Lab, s3_server: S3Server):
    s3_server.create_bucket("wrong-keys-of-a-driver")
    store = open_store("s3://wrong-keys-of-a-driver/root", s3_settings(s3_server))
    wrong = {**s3_env(s3_server), "AWS_SECRET_ACCESS_KEY": "not-the-secret"}
    client = JobClient(
        view=JobView(
            board=JobBoard(store, "counts"),
            repository=SavepointRepository(store, "counts"),
            deployment=lab.client.view.deployment,
            signer=SIGNER,
            secret_env=wrong,
        )
    )
    target = replace(lab.target(), secret_env=wrong)
    handle = client.starts.start(lab.spec(), target, claim_key="first")
    with pytest.raises(DriverFailedError) as failed:
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    text = str(failed.value)
    assert "STORE_DENIED: The store s3://wrong-keys-of-a-driver/root" in text
    assert "Nothing was changed. Correct the access key and secret key" in text
    assert "not-the-secret" not in text
    assert client.view.board.current() is None
    assert not (lab.folder / "checkpoints").exists()
    assert not lab.out.exists()
