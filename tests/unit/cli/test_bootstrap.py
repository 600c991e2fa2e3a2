from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.cli.state import _table_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "query", "operator", "state"),
    [
        ("0=SELECT 1", None, 0, None),
        ("totals/1=SELECT 1", "totals", 1, None),
        ("2/left=SELECT 1", None, 2, "left"),
        ("q1/0/last=SELECT 1", "q1", 0, "last"),
    ],
)
def test_table_is_named_by_query_operator_and_state(
    text: str, query: str | None, operator: int, state: str | None
) -> None:
    assert _table_of(text) == {"query": query, "operator": operator, "state": state, "sql": "SELECT 1"}


@pytest.mark.parametrize(
    ("option", "given", "expected"),
    [
        ("--table", "SELECT 1", "expected OPERATOR=SQL"),
        ("--table", "left=SELECT 1", "expected OPERATOR=SQL"),
        ("--position", "0=orders", "expected SOURCE=TOPICS@START"),
        ("--position", "orders@latest", "expected source=topics@start"),
        ("--position", "0=orders@latest", "give --kafka-config or --kafka-conn-id"),
    ],
)
def test_what_cannot_be_understood_is_refused_before_spark_is_asked(
    tmp_path: Path, option: str, given: str, expected: str
) -> None:
    script = tmp_path / "job.py"
    script.write_text("")
    words = ["savepoint", "bootstrap", str(script), "--root", str(tmp_path), "--job", "totals"]
    done = CliRunner().invoke(app, [*words, "--python", "/nonexistent", option, given])
    assert done.exit_code == 2
    assert expected in " ".join(done.stderr.replace("│", " ").split())
