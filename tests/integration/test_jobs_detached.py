"""The client with real drivers: detached spark-submit processes of the Spark environment, a local store."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.deployments import class_archive
from airflow_flinkstyle.jobs.deployments.base import Gone
from airflow_flinkstyle.jobs.deployments.class_archive import FOLDER
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.errors import DriverFailedError, JobNotRunningError, JobRunningError
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.jobs.request import Stopped
from airflow_flinkstyle.jobs.start.origins import FromCheckpoint, FromSavepoint
from airflow_flinkstyle.jobs.status import Dead, Running, Sightings
from airflow_flinkstyle.jobs.upgrade.upgrade import UPGRADE_PHASES, Upgrade
from airflow_flinkstyle.protocol.driver_log import MOST_BYTES
from testbed.drivers import spark_conf
from testbed.keys import SIGNER
from testbed.waiting import wait_until
from tests.integration.detached_lab import COUNTS, FROM_FILES, TIMEOUT_S, Lab
from tests.integration.numbered_files import NumberedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.jobs.client import JobClient
    from tests.integration.warm_lab import WarmJvms

pytestmark = pytest.mark.integration


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path, warm=warm_jvms)
    yield lab
    lab.close()


@pytest.fixture
def detached(tmp_path: Path) -> Iterator[Lab]:
    """The same where each driver is a process of its own, which is what is shown."""
    lab = Lab(tmp_path)
    yield lab
    lab.close()


def test_job_is_started_saved_stopped_resumed_and_relaunched_after_kill_9_and_sigterm(detached: Lab):
    client = detached.client
    patient = replace(detached.spec(), lease_s=2 * TIMEOUT_S)  # who waited for it would be too late
    handle = client.starts.start(patient, detached.target(), claim_key="run-1/start")
    client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    (log,) = (detached.folder / "logs").glob("counts-*-000001-*.log")
    with log.open("ab") as written:
        written.truncate(MOST_BYTES + 1)
    with pytest.raises(JobRunningError, match="run-1/start"):
        client.starts.start(detached.spec(), detached.target(), claim_key="run-2/start")
    batch = detached.until_committed_beyond(1)

    _, hot = client.requests.wait(client.requests.request_savepoint("run-1/hot"), timeout_s=TIMEOUT_S)
    assert hot.outcome == "done", hot.detail
    wait_until("the log is rotated", lambda: "Rotated this log" in log.read_text())
    assert log.with_name(f"{log.name}.1").stat().st_size > MOST_BYTES

    os.kill(int(handle.native_id["pid"]), signal.SIGKILL)
    while not isinstance(client.view.deployment.state(handle.native_id), Gone):
        time.sleep(0.05)
    client.drivers.ensure_running()
    client.drivers.wait_running(1, timeout_s=TIMEOUT_S)
    batch = detached.until_committed_beyond(batch + 1)
    assert client.view.status().heartbeat.incarnation == 2

    stopped = client.requests.stop("run-1/stop", savepoint=True, timeout_s=TIMEOUT_S)
    assert isinstance(stopped, Stopped)
    assert stopped.batches["counts"] >= batch
    with pytest.raises(JobNotRunningError):
        client.requests.request_savepoint("run-1/too-late")

    origin = FromSavepoint(savepoint_id=stopped.savepoint_id or "")
    second = client.starts.start(detached.spec(), detached.target(), claim_key="run-3/start", origin=origin)
    client.drivers.wait_running(second.generation, timeout_s=TIMEOUT_S)
    detached.until_committed_beyond(stopped.batches["counts"])
    os.kill(int(second.native_id["pid"]), signal.SIGTERM)
    detached.until_told_to_end_and_again()
    client.requests.stop("run-3/stop", savepoint=False, timeout_s=TIMEOUT_S)
    detached.judge()


@pytest.mark.nightly
def test_supervisor_starts_a_killed_driver_again_with_nobody_looking(tmp_path: Path):
    lab = Lab(tmp_path, supervised=True)
    client = lab.client
    patient = replace(lab.spec(), lease_s=2 * TIMEOUT_S)
    try:
        handle = client.starts.start(patient, lab.target(), claim_key="start")
        client.drivers.wait_running(1, timeout_s=TIMEOUT_S)
        batch = lab.until_committed_beyond(0)
        os.kill(int(handle.native_id["pid"]), signal.SIGKILL)
        wait_until("the next driver speaks", lambda: spoken(client) == 2, timeout_s=TIMEOUT_S)
        lab.until_committed_beyond(batch + 1)
        client.requests.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
        lab.judge()
        log = next((tmp_path / "logs").glob("counts-*-000001-*.log"))
        wait_until("the supervisor's last line", lambda: "its last heartbeat is closed" in log.read_text())
    finally:
        lab.close()


@pytest.mark.nightly
def test_supervisor_starts_a_driver_again_whose_jvm_is_killed_before_its_query_runs(tmp_path: Path):
    """Its script learns of that at once, and is not to report it as a failure of its own."""
    begun = tmp_path / "begun"
    hang = (
        f"from pathlib import Path\nif not Path({str(begun)!r}).exists():\n"
        f"    Path({str(begun)!r}).touch()\n    spark._jvm.java.lang.Thread.sleep(600000)\n"
    )
    lab = Lab(tmp_path, supervised=True)
    spec = replace(lab.spec(COUNTS.replace("rows = ", hang + "rows = ")), lease_s=2 * TIMEOUT_S)
    try:
        handle = lab.client.starts.start(spec, lab.target(), claim_key="start")
        wait_until("the script waits for its JVM", begun.exists, timeout_s=TIMEOUT_S)
        wait_until("a heartbeat", lambda: lab.client.view.board.heartbeat(1) is not None)
        os.kill(int(handle.native_id["pid"]), signal.SIGKILL)
        lab.until_committed_beyond(0)
        assert spoken(lab.client) == 2
        lab.judge()
    finally:
        lab.close()


@pytest.mark.matrix
def test_driver_starts_from_the_archive_of_classes_that_the_first_one_had_made(tmp_path: Path):
    lab = Lab(tmp_path, archives=True)
    conf = {name: value for name, value in spark_conf().items() if not name.endswith("extraJavaOptions")}
    target = replace(lab.target(), conf=conf)  # without the archive of the test bed
    try:
        first = lab.client.starts.start(lab.spec(), target, claim_key="start")
        batch = lab.until_committed_beyond(0)
        folder = tmp_path / "logs" / FOLDER
        wait_until("the archive is made", lambda: is_made(folder), timeout_s=TIMEOUT_S)
        assert not maps_archive(first.native_id)
        assert isinstance(lab.client.drivers.end_driver(1), Gone)
        lab.client.drivers.ensure_running()
        lab.until_committed_beyond(batch + 1)
        submit = lab.client.view.board.submit(1)
        assert submit.value.number == 2
        assert maps_archive(submit.value.native_id)
        lab.judge()
    finally:
        lab.close()


def is_made(folder: Path) -> bool:
    """Return whether a folder has an archive; what makes it steps back behind the other tests no more."""
    for process in class_archive._making:
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpriority(os.PRIO_PGRP, process.pid, 0)
    return any(folder.glob("*.jsa"))


def maps_archive(native_id: Mapping[str, str]) -> bool:
    """Return whether a driver's JVM has mapped an archive of classes that it was told of."""
    return f"/{FOLDER}/" in Path(f"/proc/{native_id['pid']}/maps").read_text()


def spoken(client: JobClient) -> int:
    """Return which driver spoke last, without starting any."""
    return client.view.board.current_heartbeat().incarnation


@pytest.mark.matrix
def test_job_of_a_lost_host_is_started_again_once_though_two_others_try(detached: Lab):
    client = detached.client
    handle = client.starts.start(detached.spec(), detached.target(), claim_key="start")
    client.drivers.wait_running(1, timeout_s=TIMEOUT_S)
    batch = detached.until_committed_beyond(0)
    others = [
        replace(
            client,
            view=replace(
                client.view, deployment=DetachedDeployment(namespace=f"elsewhere {n}"), sightings=Sightings()
            ),
        )
        for n in range(2)
    ]
    assert [type(other.view.settled_status()) for other in others] == [Running, Running]
    client.drivers.end_driver(handle.generation)  # as with its host: the others see no process
    found = [other.view.settled_status() for other in others]
    while not all(isinstance(status, Dead) for status in found):
        found = [other.view.status() for other in others]
        time.sleep(0.2)
    for other, status in zip(others, found, strict=True):
        other.drivers.ensure_running(status)
    assert client.view.board.newest_submit(1) == 2

    client.drivers.wait_running(1, timeout_s=TIMEOUT_S)
    run = client.view.run(1)
    surplus = detached.client.view.deployment.submit(client.view.submission(1, run.claim, 2))
    while client.view.board.incarnations(1)[-1] < 3:
        assert isinstance(client.view.status(), Running)
        time.sleep(0.2)
    _, hot = client.requests.wait(client.requests.request_savepoint("hot"), timeout_s=TIMEOUT_S)
    assert hot.outcome == "done", hot.detail
    while not isinstance(client.view.deployment.state(surplus), Gone):
        assert isinstance(client.view.status(), Running)
        time.sleep(0.2)
    detached.until_committed_beyond(batch + 1)
    assert client.view.status().heartbeat.incarnation == 2
    client.requests.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
    detached.judge()


@pytest.mark.matrix
def test_upgrade_to_a_script_that_fails_in_its_first_batch_goes_back_by_itself(lab: Lab):
    """Offsets of files are numbers of what the source has logged: that goes back with the planned batch."""
    with NumberedFiles(lab.folder).fed(every_s=0.3):
        fail_in_first_batch(lab)


def fail_in_first_batch(lab: Lab) -> None:
    client = lab.client
    handle = client.starts.start(lab.spec(FROM_FILES), lab.target(), claim_key="start")
    client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(1)
    broken = FROM_FILES.replace("    total =", "    raise ValueError('broken on purpose')\n    total =")
    upgrade = Upgrade(
        client=client,
        journal=CutoverJournal(client.view.board.store, "counts", "up-1", UPGRADE_PHASES, signer=SIGNER),
        spec=lab.spec(broken, "broken.py"),
        target=lab.target(),
        settings=CutoverSettings(first_commit_timeout_s=TIMEOUT_S),
    )
    with pytest.raises(Exception, match="broken on purpose") as error:
        upgrade.run()
    assert "The old version runs again" in str(error.value)
    stop_batch = client.view.board.heartbeat(handle.generation).value.batches()["counts"]
    lab.until_committed_beyond(stop_batch)
    client.requests.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
    lab.judge()


@pytest.mark.nightly
def test_job_that_is_stopped_and_started_again_alike_goes_on_with_its_batches_and_state(lab: Lab):
    client = lab.client
    first = client.starts.start(lab.spec(), lab.target(), claim_key="run-1/start")
    client.drivers.wait_running(first.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(2)
    stopped = client.requests.stop("run-1/stop", savepoint=True, timeout_s=TIMEOUT_S)
    assert isinstance(stopped, Stopped)
    at = stopped.batches["counts"]

    second = client.starts.start(lab.spec(), lab.target(), claim_key="run-2/start")
    assert second.checkpoint_location == first.checkpoint_location
    client.drivers.wait_running(second.generation, timeout_s=TIMEOUT_S)
    reached = lab.until_committed_beyond(at + 1)
    client.requests.stop("run-2/stop", savepoint=True, timeout_s=TIMEOUT_S)

    shutil.rmtree(second.checkpoint_location)  # the disk is gone, the savepoint of the stop is the same state
    third = client.starts.start(lab.spec(), lab.target(), claim_key="run-3/start")
    client.drivers.wait_running(third.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(reached + 1)
    client.drivers.end_driver(third.generation)
    shutil.move(third.checkpoint_location, lab.folder / "aside")
    client.drivers.ensure_running()
    with pytest.raises(DriverFailedError, match="CHECKPOINT_LOST"):
        client.drivers.wait_running(third.generation, timeout_s=TIMEOUT_S)
    numbers = [json.loads(line)["batch"] for line in lab.out.read_text().splitlines()]
    assert numbers == list(range(len(numbers))), "no batch number twice, none left out"
    lab.judge()


def test_script_that_raises_at_import_is_reported_with_its_traceback(lab: Lab):
    client = lab.client
    handle = client.starts.start(lab.spec("import nonsense_module\n"), lab.target(), claim_key="start")
    with pytest.raises(DriverFailedError, match="nonsense_module"):
        client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    assert client.view.board.current() is None


@pytest.mark.nightly
def test_killed_job_is_upgraded_from_its_checkpoint_behind_a_fence(lab: Lab):
    client = lab.client
    handle = client.starts.start(lab.spec(), lab.target(), claim_key="start")
    client.drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
    batch = lab.until_committed_beyond(1)
    client.drivers.end_driver(handle.generation)
    second = client.starts.start(lab.spec(), lab.target(), claim_key="second", origin=FromCheckpoint())
    client.drivers.wait_running(second.generation, timeout_s=TIMEOUT_S)
    lab.until_committed_beyond(batch)
    client.requests.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
    lab.judge()
