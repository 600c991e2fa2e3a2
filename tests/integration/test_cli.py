"""The command line with a real driver, which runs on while its savepoints are taken or cancelled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import Generation
from testbed.keys import SIGNING_ENV
from tests.integration.agent_lab import COUNT_JOB, Lab, logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.s3 import S3Server
    from tests.integration.warm_lab import WarmJvms

pytestmark = pytest.mark.integration

SCRIPT = Path(sys.executable).with_name("flinkstyle")


@pytest.fixture
def lab(tmp_path: Path, warm_jvms: WarmJvms | None) -> Iterator[Lab]:
    lab = Lab(tmp_path / "lab", warm=warm_jvms)
    yield lab
    lab.close()


def begin(lab: Lab, *args: str) -> subprocess.Popen[str]:
    env = {**os.environ, **SIGNING_ENV, "FLINKSTYLE_ROOT": str(lab.root), "FLINKSTYLE_JOB": lab.job}
    return subprocess.Popen(
        [SCRIPT, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(lab: Lab, *args: str) -> dict[str, Any]:
    """Run a command to its end and return its JSON document."""
    process = begin(lab, *args, "--json")
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr
    answer: dict[str, Any] = json.loads(stdout)
    return answer


def cancel_a_take(lab: Lab, checkpoint: Path) -> str:
    """Interrupt a take that cannot go on: the driver reads a pipe that nobody writes to."""
    pipe = checkpoint / "counts" / "sources" / "pipe"
    os.mkfifo(pipe)
    before = _slot(lab).request_id
    process = begin(lab, "savepoint", "take")
    lab.until("a take begins", lambda: _slot(lab).request_id != before and _slot(lab).state == "accepted")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "was cancelled; the job keeps running" in said
    known = f"{_slot(lab).request_id} was cancelled"
    lab.until("the driver knows of the cancel", lambda: known in lab.drivers[-1].text)
    os.close(os.open(pipe, os.O_WRONLY))
    pipe.unlink()
    end = lab.until("the end", lambda: lab.board.end(Generation(1), _slot(lab).request_id))
    assert end.outcome == "cancelled", end
    return str(_slot(lab).savepoint_id)


def _slot(lab: Lab) -> Any:  # noqa: ANN401 - a request
    slot = lab.board.request(Generation(1))
    assert slot is not None
    return slot.value


@pytest.mark.matrix
def test_a_job_is_saved_while_it_runs_stopped_and_saved_again(lab: Lab):
    checkpoint = Path(lab.claim(1))
    lab.order_takeover(1)
    driver = lab.launch(1, lab.script(COUNT_JOB))
    lab.until_batch(1)
    hot = run(lab, "savepoint", "take")
    run(lab, "savepoint", "verify", hot["savepoint_id"], "--full")

    cancelled = cancel_a_take(lab, checkpoint)
    assert lab.repository.find(cancelled) is None
    lab.until_batch(1, above=lab.until_batch(1))  # it runs on

    stopped = run(lab, "job", "stop", "--yes")
    assert driver.wait() == 0
    last = max(logs_of(str(checkpoint))[1])
    assert (stopped["stopped"], stopped["batches"]) == (True, {"counts": last})
    cold = run(lab, "savepoint", "take")
    assert cold["batches"] == {"counts": last}

    (query,) = run(lab, "savepoint", "diff", hot["savepoint_id"], cold["savepoint_id"])["queries"]
    assert (query["before"], query["after"], query["same_query_id"]) == (
        hot["batches"]["counts"],
        last,
        True,
    )
    target = str(lab.folder / "restored")
    run(lab, "savepoint", "restore", hot["savepoint_id"], "--to", target)
    offsets, commits = logs_of(target)
    planned = lab.repository.read(hot["savepoint_id"]).queries[0].planned_offsets is not None
    assert (max(offsets) - planned, max(commits)) == (hot["batches"]["counts"],) * 2


@pytest.mark.nightly
def test_a_savepoint_moves_into_a_bucket_and_is_restored_from_there(s3_server: S3Server, tmp_path: Path):
    golden = Path(__file__).parents[1] / "golden" / "4.2.0" / "rocksdb"
    here = SavepointRepository(LocalStore(tmp_path / "root"), "orders")
    label = SavepointLabel(
        savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=None
    )
    manifest = take_savepoint(
        here, [QuerySource(name="totals", checkpoint=LocalStore(golden), kafka={})], label
    )
    s3_server.create_bucket("command-line")
    keys = {
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_ACCESS_KEY_ID": s3_server.access_key,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_key,
        "FLINKSTYLE_JOB": "orders",
    }

    def flinkstyle(root: str, *args: str) -> Any:  # noqa: ANN401 - a JSON document
        env = {**keys, "FLINKSTYLE_ROOT": root}
        done = CliRunner().invoke(app, [*args, "--json"], env=env)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    bucket = "s3://command-line/root"
    export = "s3://command-line/exported/sp-1"
    flinkstyle(str(tmp_path / "root"), "savepoint", "export", "sp-1", "--to", export)
    flinkstyle(bucket, "savepoint", "import", export)
    assert [job["job"] for job in flinkstyle(bucket, "job", "list")["jobs"]] == ["orders"]
    flinkstyle(bucket, "savepoint", "verify", "sp-1", "--full")
    flinkstyle(bucket, "savepoint", "restore", "sp-1", "--to", str(tmp_path / "new"))
    found = {
        str(p.relative_to(tmp_path / "new" / "totals")) for p in (tmp_path / "new").rglob("*") if p.is_file()
    }
    assert found == {entry.path for entry in manifest.queries[0].files}
    freed = flinkstyle(bucket, "savepoint", "dispose", "sp-1", "--despite", "last_good", "--yes")
    assert freed["freed_blobs"] == len(manifest.blobs)
    assert flinkstyle(bucket, "savepoint", "list")["savepoints"] == []
