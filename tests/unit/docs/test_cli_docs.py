"""docs/cli.md says what the command line does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.cli.output import ExitCode
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from tools import cli_docs

TEXT = cli_docs.DOCUMENT.read_text(encoding="utf-8")
EXAMPLES = json.loads(cli_docs.DOCUMENT.with_name("cli-answers.json").read_text(encoding="utf-8"))
PREPARATIONS = {
    "savepoint list": ("savepoint verify sp-2", "savepoint pin sp-2 --reason x"),
    "savepoint import {export}": ("savepoint export sp-1 --to {export}",),
}
"""What makes the answer hold every field."""
GOLDEN = Path(__file__).parents[2] / "golden"


def shape(value: object) -> object:
    """Return the fields of a document; what is empty or null may hold anything."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()} or None
    if isinstance(value, list):
        return [shape(value[0])] if value else None
    return None if value is None else type(value).__name__


def differences(documented: object, real: object, where: str = "") -> list[str]:
    if documented is None or real is None:
        return []
    if isinstance(documented, dict) and isinstance(real, dict):
        both = documented.keys() & real.keys()
        found = [f"{where}.{key}" for key in sorted(documented.keys() ^ real.keys())]
        return found + [d for key in both for d in differences(documented[key], real[key], f"{where}.{key}")]
    if isinstance(documented, list) and isinstance(real, list):
        return differences(documented[0], real[0], f"{where}[]")
    return [] if documented == real else [f"{where}: {documented} instead of {real}"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    repository = SavepointRepository(LocalStore(tmp_path / "root"), "orders")
    for number in (1, 2):
        checkpoint = LocalStore(GOLDEN / ("3.5.9" if number == 1 else "4.2.0") / "rocksdb")
        label = SavepointLabel(
            savepoint_id=f"sp-{number}", taken_at_ms=number, spark_version="4.2.0", taken_from_generation=1
        )
        take_savepoint(repository, [QuerySource(name="totals", checkpoint=checkpoint, kafka={})], label)
    return {"FLINKSTYLE_ROOT": str(tmp_path / "root"), "FLINKSTYLE_JOB": "orders"}


@pytest.mark.parametrize(("command", "example"), EXAMPLES.items(), ids=EXAMPLES)
def test_documented_json_has_the_fields_of_the_real_one(
    command: str, example: dict[str, object], env: dict[str, str], tmp_path: Path
):
    if command == "error":
        command = "savepoint show sp-9"
    exported = str(tmp_path / "export")
    runner = CliRunner()
    for prepare in PREPARATIONS.get(command, ()):
        args = prepare.format(export=exported).split()
        assert runner.invoke(app, args, env=env).exit_code == 0
    args = command.format(folder=tmp_path / "new", export=exported).split()
    done = runner.invoke(app, [*args, "--json"], env=env)
    real = json.loads(done.stdout or done.stderr)
    assert differences(shape(example), shape(real)) == []


def test_a_field_that_is_not_documented_is_found():
    documented = {"a": 1, "b": [{"c": "x"}]}
    assert differences(shape(documented), shape({"a": 1, "b": [{"c": "y"}]})) == []
    assert differences(shape(documented), shape({"a": 1, "b": [{"c": 1}]})) == [".b[].c: str instead of int"]
    assert differences(shape(documented), shape({"a": 1, "b": [], "d": 1})) == [".d"]


def test_the_reference_is_the_real_help():
    assert cli_docs.render() == TEXT, "run: python -m tools.cli_docs"


def test_every_exit_code_is_documented():
    section = TEXT.partition("## Exit codes")[2].partition("\n## ")[0]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)] == [*ExitCode]
