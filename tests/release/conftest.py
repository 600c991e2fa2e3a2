"""The artefacts of this checkout, built once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.client import JobClient
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.open import open_store
from testbed.keys import SIGNER
from tests.release.installing import Environment, Job
from tools import dist

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build the wheel and the source distribution."""
    return dist.build(tmp_path_factory.mktemp("built") / "dist", python=Path(sys.executable))


@pytest.fixture(scope="session")
def wheel(artefacts: tuple[Path, Path]) -> Path:
    """The wheel."""
    return artefacts[0]


@pytest.fixture
def job_of(tmp_path: Path) -> Iterator[Callable[[Environment, Path], Job]]:
    """Return what makes a job; its drivers end with the test."""

    def make(cli: Environment, driver: Path) -> Job:
        return Job(cli, driver, tmp_path)

    yield make
    store = open_store(str(tmp_path / "savepoints"))
    client = JobClient(
        view=JobView(
            board=JobBoard(store, "ticks"),
            repository=SavepointRepository(store, "ticks"),
            deployment=DetachedDeployment(),
            signer=SIGNER,
        )
    )
    for generation in client.view.board.generations():
        client.drivers.end_driver(generation)
