"""Which queries may have their batches stored before they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_flinkstyle.sinks.errors import SINK_CONFIG
from airflow_flinkstyle.sinks.foreach_batch import materialised
from testbed.refusals import refuses

if TYPE_CHECKING:
    from pathlib import Path


class OnDisk:
    """A query whose checkpoint is a local folder."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = str(folder)
        self.folder = folder

    def folders(self, name: str) -> list[str]:
        found = self.folder / name
        return [one.name for one in found.iterdir()] if found.exists() else []

    def planned(self, batch_id: int) -> str:
        raise PlanReadError(batch_id)


class PlanReadError(Exception):
    """The batch would have been stored."""


def store(folder: Path) -> None:
    no_rows: Any = None  # they are not looked at before
    materialised(no_rows, cast("Any", OnDisk(folder)), "line", 3)


def test_query_with_state_is_refused_before_anything_is_stored(tmp_path: Path) -> None:
    (tmp_path / "state/0/_metadata").mkdir(parents=True)  # as Spark makes it when it plans the first batch
    with refuses(SINK_CONFIG, match="expected a query without state"):
        store(tmp_path)
    assert not (tmp_path / "materialised").exists()


def test_query_without_state_goes_on(tmp_path: Path) -> None:
    with pytest.raises(PlanReadError):
        store(tmp_path)
