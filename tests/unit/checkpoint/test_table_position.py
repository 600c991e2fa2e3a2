"""Versions of tables in offset logs, and in what Delta and Iceberg say of a version."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_flinkstyle.checkpoint.table_position import (
    TableCommit,
    TablePosition,
    delta_commit,
    iceberg_commit,
    newest_up_to,
    source_position,
)
from airflow_flinkstyle.types import BatchId

DELTA = {
    "sourceVersion": 1,
    "reservoirId": "t-1",
    "reservoirVersion": 7,
    "index": 2,
    "isStartingVersion": False,
}
ICEBERG = {"version": 1, "snapshot_id": 8148462573526143459, "position": 3, "scan_all_files": False}


def test_delta_says_version_and_newest_file_read():
    found = source_position(json.dumps(DELTA))
    assert found == TablePosition(format="delta", table_id="t-1", version=7, files_read=3)
    assert str(found) == "delta version 7, 3 of its files read"


@pytest.mark.parametrize("index", [-1, -20, -100])
def test_deltas_marks_before_a_version_are_no_files(index: int):
    found = source_position(json.dumps({**DELTA, "index": index}))
    assert found is not None
    assert (found.version, found.files_read, str(found)) == (7, 0, "delta version 7")


def test_iceberg_says_snapshot_and_number_of_files_read():
    found = source_position(json.dumps(ICEBERG))
    assert found == TablePosition(format="iceberg", table_id=None, version=8148462573526143459, files_read=3)
    assert str(found) == "iceberg snapshot 8148462573526143459, 3 of its files read"


@pytest.mark.parametrize(
    "raw",
    [
        "-",
        "",
        "7",
        "[1]",
        '{"orders":{"0":12}}',
        '{"logOffset":3}',
        json.dumps({**ICEBERG, "snapshot_id": -1}),
        json.dumps({**DELTA, "reservoirVersion": "7"}),
        json.dumps({**DELTA, "reservoirId": ""}),
    ],
)
def test_other_sources_and_tables_without_a_version_have_no_position(raw: str):
    assert source_position(raw) is None


def commit(**action: Any) -> str:
    return "\n".join(
        map(json.dumps, [{"commitInfo": {"operation": "STREAMING UPDATE"}}, action, {"add": {}}])
    )


def test_commit_of_another_query_is_none_of_this_ones():
    assert delta_commit(7, commit(txn={"appId": "q-1", "version": 4})).batch_of("q-1") == 4
    assert delta_commit(7, commit(txn={"appId": "q-2", "version": 4})).batch_of("q-1") is None
    assert delta_commit(7, commit(remove={})).batch_of("q-1") is None
    assert delta_commit(7, "no json\n").batch_of("q-1") is None


def delta_changes(*actions: Any) -> bool:
    return delta_commit(3, "\n".join(map(json.dumps, actions))).changes


def test_commit_changes_a_delta_table_unless_it_only_compacts_or_notes():
    compacted = {"path": "a", "dataChange": False}
    assert not delta_changes({"commitInfo": {"operation": "OPTIMIZE"}}, {"add": compacted})
    assert not delta_changes({"commitInfo": {"operation": "VACUUM END"}})
    assert not delta_changes({"txn": {"appId": "q-1", "version": 4}})
    assert delta_changes({"add": compacted}, {"remove": {"path": "a", "dataChange": True}})
    assert delta_changes({"metaData": {"id": "t"}})
    assert delta_changes({"domainMetadata": {}})


def test_restored_delta_table_is_made_of_the_version_that_it_was_put_back_to():
    def restored(version: str | int | None) -> TableCommit:
        parameters = {"version": version, "timestamp": None}
        info = {"operation": "RESTORE", "operationParameters": parameters}
        return delta_commit(9, "\n".join(map(json.dumps, [{"commitInfo": info}, {"metaData": {}}])))

    for version in (2, "2"):
        assert (restored(version).parent, restored(version).changes) == (2, False)
    assert (restored(None).parent, restored(None).changes) == (8, True)  # by a time: which one is not said
    assert (delta_commit(0, "").parent, delta_commit(1, "").parent) == (None, 0)


def test_rows_of_a_delta_commit_are_those_of_the_files_that_it_adds():
    def rows(*stats: str | None) -> int | None:
        return delta_commit(1, "\n".join(json.dumps({"add": {"stats": one}}) for one in stats)).rows

    assert rows('{"numRecords":3}', '{"numRecords":4}') == 7
    assert rows('{"numRecords":3}', None) is None
    assert rows() == 0


def test_snapshot_names_its_query_and_epoch():
    summary = {"spark.sql.streaming.queryId": "q-1", "spark.sql.streaming.epochId": "4"}
    found = iceberg_commit(2, 1, "append", {**summary, "added-records": "5"})
    assert (found.batch_of("q-1"), found.batch_of("q-2"), found.rows, found.changes) == (4, None, 5, True)
    half = iceberg_commit(2, 1, "replace", {"spark.sql.streaming.queryId": "q-1"})
    assert (half.batch_of("q-1"), half.changes) == (None, False)


def test_version_of_the_cut_is_the_newest_that_is_not_of_a_later_batch():
    found = [(9, None), (8, BatchId(6)), (7, None), (6, BatchId(4)), (5, BatchId(3))]
    assert newest_up_to(BatchId(6), found) == 8
    assert newest_up_to(BatchId(5), found) == 6  # batch 5 wrote nothing
    assert newest_up_to(BatchId(2), found) is None
