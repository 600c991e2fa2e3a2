from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.hooks.airflow_versions import AirflowFailException
from airflow_flinkstyle.operators import ExportSavepointOperator, TakeSavepointOperator
from airflow_flinkstyle.savepoint.exchange.importing import import_archive, import_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from tests.unit.airflow_layer.conftest import a_context

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.jobs.conftest import World

pytestmark = pytest.mark.airflow


def export(world: World, to: object, **kwargs: Any) -> dict[str, Any]:
    operator = ExportSavepointOperator(task_id="export", job=world.job, to=str(to), **kwargs)
    return operator.execute(a_context("export"))


def test_newest_savepoint_is_copied_to_a_folder_and_a_retry_writes_nothing_again(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    world.start()
    taken = TakeSavepointOperator(task_id="take", job=world.job, deferrable=False).execute(a_context("take"))
    with caplog.at_level(logging.INFO):
        first, again = (export(world, tmp_path / "out") for _ in range(2))
    assert first["savepoint_id"] == again["savepoint_id"] == taken
    assert (again["files_written"], again["files_kept"]) == (0, first["files_written"])
    elsewhere = SavepointRepository(MemoryStore(), world.job)
    import_savepoint(LocalStore(tmp_path / "out"), elsewhere)
    assert elsewhere.read(taken).total_bytes == first["size_bytes"]


def test_named_savepoint_is_copied_to_one_file(world: World, tmp_path: Path):
    world.start()
    taken = TakeSavepointOperator(task_id="take", job=world.job, deferrable=False).execute(a_context("take"))
    export(world, tmp_path / "out.tar", savepoint_id=taken)
    elsewhere = SavepointRepository(MemoryStore(), world.job)
    assert import_archive(tmp_path / "out.tar", elsewhere).savepoint_id == taken


@pytest.mark.parametrize(("to", "code"), [("", "BAD_INPUT"), ("ftp://away", "BAD_INPUT")])
def test_place_that_is_none_is_refused(world: World, to: str, code: str):
    world.start()
    TakeSavepointOperator(task_id="take", job=world.job, deferrable=False).execute(a_context("take"))
    with pytest.raises(AirflowFailException, match=code):
        export(world, to)


def test_savepoint_that_is_gone_fails_the_task(world: World, tmp_path: Path):
    world.start()
    with pytest.raises(AirflowFailException, match="SAVEPOINT_MISSING"):
        export(world, tmp_path / "out", savepoint_id="sp-gone")
