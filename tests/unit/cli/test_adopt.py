"""``flinkstyle job adopt|leave`` and ``savepoint take --checkpoint``, on checkpoints that Spark wrote."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.checkpoint.inventory import read_inventory
from airflow_flinkstyle.storage.local import LocalStore
from tests.seeming_jobs import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

Root = Any


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The checkpoint of a job of plain Spark."""
    return shutil.copytree(GOLDEN / "4.2.0" / "rocksdb", tmp_path / "ck")


def test_job_is_adopted_once_and_left_again(root: Root, own: Path, tmp_path: Path):
    named = ("--checkpoint", f"totals={own}", "--still", "0")
    shown = root.run("job", "adopt", *named).stdout
    assert "batch 4" in shown
    assert "flinkstyle job start --job orders" in shown
    assert root.json("job", "status")["home"] == "adopted"
    again = root.json("job", "adopt", *named)
    assert again["batches"] == {"totals": 4}
    assert again["notes"] == ["It was adopted before, just so; nothing was done."]
    assert (
        "was expected to be empty" in root.run("job", "leave", "-y", "--to", f"totals={own}", code=1).stderr
    )
    out = tmp_path / "out"
    left = root.json("job", "leave", "--yes", "--to", f"totals={out}")
    assert left["way_back"] == f"flinkstyle job adopt --job orders --checkpoint totals={out}"
    assert left["spark_submit"] is None
    assert "left to plain Spark" in root.run("job", "status").stdout
    assert read_inventory(LocalStore(out)).committed == 4
    assert "NOT_ADOPTED" in root.run("job", "leave", "-y", "--to", "totals=/elsewhere", code=1).stderr


def test_health_names_an_old_job_that_went_on(root: Root, own: Path):
    root.run("job", "adopt", "--checkpoint", f"totals={own}", "--still", "0")
    (own / "offsets" / "5").write_bytes((own / "offsets" / "4").read_bytes())
    findings = root.json("job", "health", code=3)["findings"]
    assert [one for one in findings if "its old job runs too" in one and "planned batch 5" in one]


def test_savepoint_is_taken_from_outside_and_starts_nothing(root: Root, own: Path):
    named = ("--checkpoint", f"totals={own}")
    taken = root.json("savepoint", "take", *named, "--key", "one")
    assert root.json("savepoint", "take", *named, "--key", "one") == taken
    assert root.json("savepoint", "verify", taken["savepoint_id"], "--full")["files"] > 0
    assert root.json("savepoint", "show", taken["savepoint_id"])["taken_from_generation"] is None


@pytest.mark.parametrize("wrong", ["totals", "=/ck", "totals="])
def test_location_without_a_query_or_a_place_is_refused(root: Root, wrong: str):
    assert "QUERY=LOCATION" in root.run("job", "adopt", "--checkpoint", wrong, code=2).stderr


def test_query_that_is_named_twice_is_refused(root: Root, own: Path):
    twice = ("--checkpoint", f"totals={own}") * 2
    assert "named twice" in root.run("job", "adopt", *twice, code=2).stderr


def test_adoption_of_a_running_job_needs_a_process_that_is_one(root: Root, own: Path, tmp_path: Path):
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text("job: orders\nscript: /jobs/orders.py\n")
    where = ("--file", str(jobs), "--master", "local[1]", "--python", "/opt/python")
    named = ("--checkpoint", f"totals={own}", *where, "--yes")
    both = root.run("job", "adopt-running", *named, "--end-pid", "4", "--end-command", "true", code=2)
    assert "not both" in both.stderr
    no_key = root.run("job", "adopt-running", *named, "--give-up", code=2)
    assert "with the --key of the call" in no_key.stderr
    unknown = root.run("job", "adopt-running", *named, "--give-up", "--key", "mistyped", code=1)
    assert "with key mistyped was expected to have begun, found none" in unknown.stderr
