"""``flinkstyle job replay``, ``bisect`` and ``compare``, with drivers in threads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.cli import compare, replay
from airflow_flinkstyle.cli.app import app
from tests.unit.jobs.conftest import Mood, World
from tests.unit.jobs.drivers import hurry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def worlds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, World]]:
    """A job with a savepoint and more records behind it, and another one by the name that a replay has."""
    hurry(monkeypatch)
    job = World(tmp_path, job="orders")
    beside = World(tmp_path, job="again", store=job.store)
    found = {"orders": job, "again": beside}
    for module in (compare, replay):
        monkeypatch.setattr(module, "client_of", lambda _root, name: found[name].client())
        monkeypatch.setattr(module, "require_job", lambda *_: None)
    client = job.start(10)
    pending = client.requests.request_savepoint("sp")
    client.requests.finish_savepoint(pending, timeout_s=10.0)
    job.logs.produce(30)
    beside.logs.records = job.logs.records
    yield found
    for world in found.values():
        world.kill_all()


def flinkstyle(worlds: dict[str, World], command: str, *args: str, code: int = 0) -> Any:  # noqa: ANN401 - JSON
    """Run a command on the job, with a script of the second version."""
    job = worlds["orders"]
    script = job.folder / "v2.py"
    script.write_text("")
    given = ["job", command, "--root", str(job.folder), "--job", "orders", "--script", str(script)]
    done = CliRunner().invoke(app, [*given, "--timeout", "60", *args])
    assert done.exit_code == code, (done.output, done.exception)
    return json.loads(done.stdout) if "--json" in args else done.output


def test_replay_is_told_in_numbers(worlds: dict[str, World]) -> None:
    (savepoint_id,) = worlds["orders"].repository.ids()
    said = ["--from", savepoint_id, "--as", "again", "--until", '{"orders": {"0": 125}}']
    refused = flinkstyle(worlds, "replay", *said, code=1)
    assert "--own-output" in refused
    told = flinkstyle(worlds, "replay", *said, "--own-output", "orders", "--json")
    assert told["queries"]["orders"]["offsets"] == 15
    assert dict(worlds["again"].logs.counted) == dict.fromkeys(range(10, 25), 1)


def test_replay_is_told_in_a_sentence_and_a_table(worlds: dict[str, World]) -> None:
    (savepoint_id,) = worlds["orders"].repository.ids()
    said = ["--from", savepoint_id, "--until", '{"orders": {"0": 125}}']
    said += ["--own-output", "orders", "--as", "again"]
    told = flinkstyle(worlds, "replay", *said)
    assert "Job again has replayed orders from " in told
    assert "_Table(" not in told
    assert "last batch" in told


def test_bisect_of_what_cannot_be_compared_says_so(worlds: dict[str, World]) -> None:
    job = worlds["orders"]
    job.moods["v1.py"] = Mood(finds_no_records=True)
    told = flinkstyle(worlds, "bisect", "--batches", "2", code=3)
    assert "Nothing is known of the batches, in 1 pass: not comparable" in told


def test_bisect_and_compare_name_the_batch(worlds: dict[str, World]) -> None:
    job = worlds["orders"]
    job.moods[str(job.folder / "v2.py")] = Mood(differs_at=126)
    size = ["--batches", "2", "--records", "20"]
    said = flinkstyle(worlds, "bisect", *size, "--narrow", "5")
    assert "Query orders differs first in batch" in said
    assert "orders-0 126 to 128" in said
    compared = flinkstyle(worlds, "compare", *size, code=3)
    assert "(orders-0 110 to 130)" in compared
