"""``flinkstyle savepoint state|state-diff|repartition``: a command without PySpark asks one with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.savepoint.blobs.references import pin
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from testbed import paths
from testbed.jvm import spark_options
from testbed.spark import spark_paths
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

CASE = paths.ROOT / "tests/golden/4.2.0/rocksdb-changelog"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a root with two savepoints of one batch of a query."""
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "totals")
    for number in (1, 2):
        label = SavepointLabel(
            savepoint_id=f"sp-{number}", taken_at_ms=number, spark_version="4.2.0", taken_from_generation=None
        )
        take_savepoint(repository, [QuerySource(name="q", checkpoint=LocalStore(CASE), kafka={})], label)
    return tmp_path / "root"


def environment() -> dict[str, str]:
    """Return one whose JVMs start quickly; the commands have no option for that."""
    java = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {spark_options()}"
    return {**os.environ, **spark_paths().env, "PYTHONPATH": str(paths.ROOT), "JDK_JAVA_OPTIONS": java}


def command(root: Path, *args: str, python: Path | str = paths.VENV_SPARK / "bin/python") -> Result:
    words = ["savepoint", *args, "--root", str(root), "--job", "totals", "--python", str(python)]
    return CliRunner().invoke(app, words, env=environment())


def test_one_key_is_found_by_a_condition(root: Path):
    done = command(root, "state", "sp-1", "--where", "key.k = 2", "--json")
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert [(row["key"], row["value"]) for row in found["rows"]] == [({"k": 2}, {"count": 10, "sum": 245})]


@pytest.mark.matrix
def test_a_repartitioned_savepoint_is_made_beside_the_old_one(root: Path):
    done = command(root, "repartition", "sp-1", "--partitions", "3", "--json")
    assert done.exit_code == 0, done.stderr
    [row] = json.loads(done.stdout)["rows"]
    assert (row["parent"], row["keys"]) == ("sp-1", 5)
    query = SavepointRepository(LocalStore(root), "totals").read(row["savepoint"]).queries[0]
    assert query.pinned_confs["spark.sql.shuffle.partitions"] == "3"
    again = command(root, "repartition", row["savepoint"], "--partitions", "3")
    assert again.exit_code == 1
    assert again.stderr.startswith("REPARTITION: Expected savepoint")


def test_keys_are_dropped_after_a_look_at_what_would_change(root: Path):
    drop = ("transform", "sp-1", "--drop-keys", "key.k = 2", "--json")
    looked = command(root, *drop, "--dry-run")
    assert looked.exit_code == 0, looked.stderr
    [row] = json.loads(looked.stdout)["rows"]
    assert (row["key"], row["change"], row["after"]) == ({"k": 2}, "removed", None)
    repository = SavepointRepository(LocalStore(root), "totals")
    assert repository.ids() == ("sp-1", "sp-2")
    done = command(root, *drop)
    assert done.exit_code == 0, done.stderr
    [row] = json.loads(done.stdout)["rows"]
    told = row.pop("savepoint")
    assert row.pop("held_by") == ["sp-1", "sp-2"]
    assert row == {"parent": "sp-1", "operator": 0, "added": 0, "removed": 1, "changed": 0, "kept": 4}
    assert repository.read(told).parent == "sp-1"
    verify_savepoint(repository.read(told), repository, level="full")
    pin(repository, "sp-2", reason="audit", by="ada", at_ms=1)
    asked = command(root, "with-keys", "key.k = 2", "--dispose", "--yes", "--json")
    assert asked.exit_code == 3, asked.stderr
    gone, kept = json.loads(asked.stdout)["rows"]
    assert gone == {"savepoint": "sp-1", "keys": 1, "why": "", "disposed": True}
    assert (kept["savepoint"], kept["disposed"]) == ("sp-2", False)
    assert "it is pinned" in kept["why"]
    assert sorted(repository.ids()) == sorted(["sp-2", told])
    other = command(root, "with-keys", "key.customer = 2")
    assert other.exit_code == 1
    assert other.stderr.startswith("STATE_READ: Expected a condition in SQL over struct<key")
    unknown = command(root, "with-keys", "key.k = 2", "--query", "total")
    assert unknown.exit_code == 1
    assert unknown.stderr.startswith("STATE_READ: Expected the name of one of the queries of savepoint ")


@pytest.mark.matrix
def test_schema_is_changed_after_a_look_at_what_would_change(root: Path):
    words = ["transform", "sp-1", "--drop-keys", "key.k > 2", "--add-column", "n=CAST(7 AS INT)", "--before"]
    words += ["sum", "--rename-column", "key.k=id", "--widen", "value.n=BIGINT", "--limit", "9", "--json"]
    looked = command(root, *words, "--dry-run")
    assert looked.exit_code == 0, looked.stderr
    rows = {row["key"]: row for row in json.loads(looked.stdout)["rows"]}
    assert rows['{"k":2}']["change"] == "removed"
    assert rows['{"id":2}']["after"] == [{"value": {"count": 10, "n": 7, "sum": 245}}]
    assert '{"id":3}' not in rows
    done = command(root, *words)
    assert done.exit_code == 0, done.stderr
    [row] = json.loads(done.stdout)["rows"]
    assert (row["added"], row["removed"], row["changed"], row["kept"]) == (3, 5, 0, 0)
    read = command(root, "state", row["savepoint"], "--where", "key.id = 2", "--json")
    assert json.loads(read.stdout)["rows"][0]["value"] == {"count": 10, "n": 7, "sum": 245}
    gone = command(root, "transform", "sp-1", "--drop-operator-state", "--json")
    assert gone.exit_code == 0, gone.stderr
    [row] = json.loads(gone.stdout)["rows"]
    assert row["removed"] == 5
    files = SavepointRepository(LocalStore(root), "totals").read(row["savepoint"]).queries[0].files
    assert not [entry.path for entry in files if entry.path.startswith("state/")]


@pytest.mark.matrix
def test_a_script_changes_state_and_one_without_changes_is_refused(root: Path, tmp_path: Path):
    script = tmp_path / "changes.py"
    script.write_text("changes = {0: lambda state: state.where('key.k > 2')}")
    done = command(root, "transform", "sp-1", "--script", str(script), "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["removed"] == 3
    script.write_text("nothing = 1")
    refused = command(root, "transform", "sp-1", "--script", str(script))
    assert refused.exit_code == 1
    assert refused.stderr.startswith("STATE_TRANSFORM: Expected")
    script.write_text("changes = {0: lambda state: stat}")
    wrong = command(root, "transform", "sp-1", "--script", str(script))
    assert wrong.exit_code == 1
    assert "found NameError: name 'stat' is not defined" in wrong.stderr
    both = command(root, "transform", "sp-1", "--script", str(script), "--drop-keys", "true")
    assert "give what to change, or --script" in both.stderr


@pytest.mark.matrix
def test_state_that_is_in_rocksdb_is_not_moved_there(root: Path):
    done = command(root, "convert", "sp-1")
    assert done.exit_code == 1
    assert done.stderr.startswith("STATE_TRANSFORM: Expected query q to keep its state in Spark's default")


@pytest.mark.matrix
def test_transformation_that_is_killed_leaves_no_savepoint_and_is_in_nobodys_way(root: Path, tmp_path: Path):
    script, begun = tmp_path / "changes.py", tmp_path / "begun"
    script.write_text(
        "import pathlib, threading\n"
        "def wait(state):\n"
        f"    pathlib.Path({str(begun)!r}).touch()\n"
        "    threading.Event().wait()\n"
        "changes = {0: wait}\n"
    )
    words = [
        "savepoint",
        "transform",
        "sp-1",
        "--script",
        str(script),
        "--root",
        str(root),
        "--job",
        "totals",
    ]
    words += ["--python", str(paths.VENV_SPARK / "bin/python")]
    command_line = [sys.executable, "-m", "airflow_flinkstyle.cli", *words]
    with subprocess.Popen(command_line, env=environment(), start_new_session=True) as running:
        wait_until("the function runs", begun.exists, timeout_s=600)
        os.killpg(running.pid, signal.SIGKILL)
    repository = SavepointRepository(LocalStore(root), "totals")
    assert repository.ids() == ("sp-1", "sp-2")
    done = command(root, "transform", "sp-1", "--set", "sum=0", "--json")
    assert done.exit_code == 0, done.stderr


@pytest.mark.matrix
def test_what_the_reader_refuses_is_told(root: Path):
    done = command(root, "state-diff", "sp-1", "sp-2", "--where", "nothing = 1")
    assert done.exit_code == 1
    assert done.stderr.startswith("STATE_READ: Expected a condition in SQL over struct<key")
    assert "change:string" in done.stderr


def test_an_interpreter_without_pyspark_is_named(root: Path):
    done = command(root, "state", "sp-1", python=sys.executable)
    assert done.exit_code == 1
    assert "found that" in done.stderr
    assert "--python" in done.stderr
