"""Changes of state by name or as data, as an upgrade gives them to the driver."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.savepoint.manifest import QuerySnapshot
from airflow_flinkstyle.state.asked import by_query
from airflow_flinkstyle.state.edits import (
    AddColumn,
    DropKeys,
    DropOperatorState,
    InTurn,
    WidenColumn,
    as_change,
    as_data,
    described,
    from_data,
)
from airflow_flinkstyle.state.errors import STATE_TRANSFORM
from airflow_flinkstyle.types import BatchId
from testbed.refusals import refuses
from tests.manifests import a_manifest

if TYPE_CHECKING:
    from pathlib import Path

QUERY = QuerySnapshot(
    name="totals",
    query_id="id",
    batch_id=BatchId(7),
    checkpoint_location="x",
    planned_offsets=None,
    pinned_confs={},
    kafka={},
    files=(),
)
ONE = a_manifest(QUERY)
TWO = a_manifest(QUERY, replace(QUERY, name="views", query_id="other"))
DROP = DropKeys("key.k = 1")


def test_ready_made_changes_are_data_and_back():
    changes = [DROP, AddColumn("max", "0", before="sum"), WidenColumn("n", "BIGINT"), DropOperatorState()]
    assert [from_data(json.loads(json.dumps(as_data(change)))) for change in changes] == changes
    given = {"0": as_data(DROP), "2": [as_data(DROP), as_data(WidenColumn("n", "BIGINT"))]}
    assert by_query(ONE, json.dumps(given)) == {
        "totals": {0: DROP, 2: InTurn((DROP, WidenColumn("n", "BIGINT")))}
    }


def test_changes_are_by_query_where_there_are_several_and_by_side_of_a_join():
    given = {"views": {"1": {"left": [as_data(DROP)]}}}
    assert by_query(TWO, json.dumps(given)) == {"views": {1: {"left": DROP}}}
    with refuses(STATE_TRANSFORM, match="by query, since the job has several, totals, views"):
        by_query(TWO, json.dumps({"0": as_data(DROP)}))


def test_changes_are_found_in_a_module_beside_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "of_totals.py").write_text(
        "from airflow_flinkstyle.state.edits import DropKeys\n"
        "drop = DropKeys('key.k = 1')\n"
        "as_dict = {0: drop}\n"
        "def returned(): return {'totals': {0: [drop, lambda state: state]}}\n"
        "def fails(): raise OSError('no such table')\n"
        "number, empty = 7, {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert by_query(ONE, "of_totals:as_dict") == {"totals": {0: DROP}}
    found = by_query(ONE, "of_totals:returned")["totals"][0]
    assert isinstance(found, InTurn)
    assert described(found).startswith("DropKeys(where='key.k = 1'), returned.<locals>.<lambda> sha256:")
    for text, why in (
        ("of_totals:nothing", "AttributeError"),
        ("of_nothing:changes", "ModuleNotFoundError"),
        ("of_totals:fails", "OSError: no such table"),
        ("of_totals:number", "found 7"),
        ("of_totals:empty", "found {}"),
        ('{"totals": 7}', "found"),
    ):
        with refuses(STATE_TRANSFORM, match=why):
            by_query(ONE, text)


@pytest.mark.parametrize("given", ["x", 7, None, {"does": "Nothing"}, {"does": "DropKeys", "what": 1}, {}])
def test_what_is_no_change_is_refused(given: object):
    with refuses(STATE_TRANSFORM, match="Expected"):
        by_query(ONE, json.dumps({"0": [given]}))


def test_operator_that_goes_is_not_changed_too():
    with refuses(STATE_TRANSFORM, match="the only change of its operator"):
        as_change([DropOperatorState(), DROP])
