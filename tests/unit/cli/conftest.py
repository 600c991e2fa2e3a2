"""Roots with savepoints of real checkpoints, and jobs that seem to run on another machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from airflow_flinkstyle.cli.app import app
from tests.seeming_jobs import SeemingJob

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Root(SeemingJob):
    """A savepoint root in a folder, used through the command line."""

    @property
    def env(self) -> dict[str, str]:
        return {"FLINKSTYLE_ROOT": self.uri, "FLINKSTYLE_JOB": self.job}

    def run(self, *args: str, code: int = 0, answer: str | None = None) -> Result:
        """Run a command line and require its exit code."""
        result = CliRunner().invoke(app, args, env={**self.env, "COLUMNS": "240"}, input=answer)
        assert result.exit_code == code, f"{result.exit_code}: {result.output}"
        return result

    def json(self, *args: str, code: int = 0) -> dict[str, Any]:
        return json.loads(self.run(*args, "--json", code=code).stdout)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)
