"""Whose a transaction is, by the records of the jobs below a root: without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.cli.kafka.transactions import _owners
from tests.unit.cli.conftest import Root

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("query_id", ["q-1", None])
def test_query_that_never_started_owns_no_transaction(tmp_path: Path, query_id: str | None):
    root = Root(tmp_path)
    root.seem_running(state="closed", query_id=query_id)
    assert list(_owners(root.uri)) == ([query_id] if query_id else [])
