"""A job of plain Spark moves in, stopped or running, and out again: each row is counted and written once."""

from __future__ import annotations

import os
import signal
import sys
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.adoption.ending import EndByCommand, EndProcess
from airflow_flinkstyle.jobs.adoption.taking import take_outside
from airflow_flinkstyle.jobs.drills import begin_drill, finish_drill
from airflow_flinkstyle.jobs.status import Running
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from testbed.waiting import PATIENCE_S, wait_until
from tests.integration.plain_lab import QUERIES, SCRIPT, Plain
from tests.nightly import matrix_but

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import KafkaPair

pytestmark = pytest.mark.e2e


def ended_by_command(process: subprocess.Popen[bytes]) -> EndByCommand:
    """Return what a cluster's tool would be: one command ends the driver, one looks whether it is gone."""
    Thread(target=process.wait, daemon=True).start()  # nobody would reap it else, and it would be there
    end = f"import contextlib, os\nwith contextlib.suppress(ProcessLookupError): os.killpg({process.pid}, 9)"
    gone = f"import os; raise SystemExit(os.path.exists('/proc/{process.pid}'))"
    return EndByCommand(command=[sys.executable, "-c", end], gone=[sys.executable, "-c", gone])


@pytest.fixture
def plain(request: pytest.FixtureRequest, tmp_path: Path, kafka_pair: KafkaPair) -> Iterator[Plain]:
    topic = f"plain-{abs(hash(request.node.name)) % 10**8}"
    on_s3 = getattr(request, "param", "local") == "s3"
    s3 = request.getfixturevalue("s3_server") if on_s3 else None
    job = Plain(tmp_path, kafka_pair.old, topic, s3)
    yield job
    job.close()


@pytest.mark.parametrize("plain", ["local", pytest.param("s3", marks=pytest.mark.matrix)], indirect=True)
def test_job_is_adopted_goes_on_is_left_runs_in_plain_spark_and_is_adopted_again(plain: Plain):
    own = plain.place("ck")
    plain.produce(200)
    plain.run_to_the_end(own)
    plain.judge()
    plain.produce(100)  # while nothing runs
    first = plain.adopt(own)
    assert first["batches"].keys() == set(QUERIES)
    plain.start("first")
    plain.judge()
    plain.produce(100)
    plain.judge()

    plain.delete(own)
    left = plain.cli("job", "leave", "--yes")  # to where the script looks for it
    assert left["checkpoints"] == {name: f"{own}/{name}" for name in QUERIES}
    assert str(SCRIPT) in left["spark_submit"]
    assert all(left["batches"][name] > first["batches"][name] for name in QUERIES)
    plain.produce(100)
    plain.run_to_the_end(own)
    plain.judge()

    second = plain.adopt(own)
    assert all(second["batches"][name] > left["batches"][name] for name in QUERIES)
    plain.produce(100)
    plain.start("second")
    plain.judge()


@pytest.mark.nightly
@pytest.mark.parametrize("by", matrix_but("process".__eq__, ["process", "command"]))
def test_running_job_is_adopted_with_seconds_of_downtime(plain: Plain, by: str):
    own = plain.folder / "ck"
    plain.produce(500)
    process = plain.submit(own, "on")
    wait_until("it commits", lambda: plain.has_committed(own))
    saved = take_outside(plain.client.view, plain.watched(own), "before", by="test")
    drilled = begin_drill(
        plain.client, plain.spec(), plain.target(), key="drill",
        savepoint_id=saved.savepoint_id, rehearse=Rehearse(batches=1),
    )  # fmt: skip
    assert finish_drill(plain.client, drilled, timeout_s=PATIENCE_S).savepoint_id == saved.savepoint_id
    ending = EndProcess(pid=process.pid) if by == "process" else ended_by_command(process)
    adoption = plain.adoption(own, ending)
    with plain.fed():
        done = adoption.run()
    print("down for", done.down_s, "s;", done.ended, adoption.journal.seconds())  # noqa: T201  (a figure to look at)
    process.wait(20)
    plain.produce(200)
    plain.judge()
    assert isinstance(plain.client.view.status(), Running)


@pytest.mark.nightly
@pytest.mark.parametrize("savepoints", matrix_but((25).__eq__, [25, 100]))
def test_savepoints_from_outside_of_a_running_job_are_restored_by_plain_spark_and_right(
    plain: Plain, savepoints: int
):
    own = plain.folder / "ck"
    plain.produce(100)
    process = plain.submit(own, "on")
    wait_until("it commits", lambda: plain.has_committed(own))
    taken = []
    with plain.fed():
        for number in range(savepoints):
            taken.append(take_outside(plain.client.view, plain.watched(own), f"take-{number}", by="test"))
            assert process.poll() is None, plain.logs()
    assert len({manifest.savepoint_id for manifest in taken}) == savepoints
    for manifest in taken:
        verify_savepoint(manifest, plain.client.view.repository, level="full")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(20)
    copies = [plain.copied(manifest) for manifest in taken]
    owns, outs = (",".join(str(place) for place in places) for places in zip(*copies, strict=True))
    assert plain.submit(owns, "counted", out=outs).wait(PATIENCE_S + 10 * savepoints) == 0, plain.logs()
    whole = (plain.produced, sum(range(plain.produced)))
    assert {copy.counted() for copy in copies} == {whole}
