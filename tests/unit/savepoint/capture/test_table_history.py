"""The version that a batch wrote, in logs of Delta and metadata of Iceberg as both lay them down."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_flinkstyle.checkpoint.table_position import TableFormat, TablePosition
from airflow_flinkstyle.savepoint.capture.table_history import (
    LINES,
    MOST_VERSIONS,
    delta_line,
    iceberg_line,
    written_to,
)
from airflow_flinkstyle.types import BatchId
from testbed.memory_store import MemoryStore


def delta(*writers: tuple[str, int] | None) -> MemoryStore:
    table = MemoryStore()
    for version, writer in enumerate(writers):
        actions: list[dict[str, Any]] = [{"commitInfo": {"operation": "WRITE"}}, {"add": {"path": "p"}}]
        if writer is not None:
            actions.append({"txn": {"appId": writer[0], "version": writer[1], "lastUpdated": 1}})
        table.write(f"_delta_log/{version:020d}.json", "\n".join(map(json.dumps, actions)).encode())
        table.write(f"_delta_log/{version:020d}.crc", b"{}")
    return table


def iceberg(*writers: tuple[str, int] | None) -> MemoryStore:
    table = MemoryStore()
    snapshots = []
    for number, writer in enumerate(writers, start=1):
        keys = ("spark.sql.streaming.queryId", "spark.sql.streaming.epochId")
        summary = {"operation": "append"} | (dict(zip(keys, map(str, writer), strict=True)) if writer else {})
        at = number + (1 << 60)
        snapshots.append({"snapshot-id": at, "parent-snapshot-id": at - 1, "summary": summary})
        text = json.dumps({"current-snapshot-id": at, "snapshots": snapshots}).encode()
        table.write(f"metadata/v{number}.metadata.json", text)
    table.write("metadata/version-hint.text", b"3")
    return table


def version(table: MemoryStore, sink: TableFormat, batch: int) -> int | None:
    found = written_to(lambda: LINES[sink](table), sink, "q-1", BatchId(batch))
    assert found is None or (found.format, found.files_read) == (sink, None)
    return None if found is None else found.version


def test_delta_version_is_the_newest_of_the_cut_whatever_others_and_later_batches_wrote():
    table = delta(None, ("q-1", 0), ("q-1", 1), ("q-2", 9), ("q-1", 2), None)
    assert [version(table, "delta", batch) for batch in (0, 1, 2, 3)] == [1, 2, 4, 4]


def test_iceberg_snapshot_is_the_newest_of_the_cut():
    table = iceberg(("q-1", 0), ("q-2", 7), ("q-1", 2), None)
    assert [version(table, "iceberg", batch) for batch in (0, 1, 2)] == [n + (1 << 60) for n in (1, 1, 3)]


def test_newest_of_ten_and_more_iceberg_files_is_found_by_number():
    table = iceberg(*(("q-1", batch) for batch in range(11)))
    assert version(table, "iceberg", 10) == 11 + (1 << 60)
    named = MemoryStore()
    named.write("metadata/00011-2b.metadata.json", table.read("metadata/v11.metadata.json"))
    named.write("metadata/00002-ff.metadata.json", table.read("metadata/v2.metadata.json"))
    assert version(named, "iceberg", 10) == 11 + (1 << 60)


def test_long_delta_log_is_read_from_its_checkpoint_on_and_not_far_back():
    table = delta(("q-1", 0), *[None] * MOST_VERSIONS)
    assert version(table, "delta", 0) is None
    later = delta(*[None] * (MOST_VERSIONS + 5), ("q-1", 3))
    later.write("_delta_log/_last_checkpoint", json.dumps({"version": MOST_VERSIONS + 4}).encode())
    assert version(later, "delta", 3) == MOST_VERSIONS + 5


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_table_that_cannot_be_read_fails_no_savepoint(sink: TableFormat, caplog: pytest.LogCaptureFixture):
    assert version(MemoryStore(), sink, 0) is None
    broken = MemoryStore()
    broken.write("_delta_log/00000000000000000000.json", b"\xff")
    broken.write("metadata/v1.metadata.json", b"{}")
    assert version(broken, sink, 0) is None
    assert "is not known" in caplog.text


def test_position_of_a_sink_says_no_more_than_the_version():
    assert written_to(lambda: delta_line(delta(("q-1", 0))), "delta", "q-1", BatchId(0)) == TablePosition(
        format="delta", table_id=None, version=0, files_read=None
    )


def test_what_was_taken_back_is_in_no_line():
    table = delta(("q-1", 0), ("q-1", 1), ("q-1", 2), None, ("q-2", 1))
    info = {"operation": "RESTORE", "operationParameters": {"version": "1"}}
    table.write(f"_delta_log/{3:020d}.json", json.dumps({"commitInfo": info}).encode())
    assert [one.version for one in delta_line(table)] == [4, 3, 1, 0]
    assert version(table, "delta", 9) == 1

    table = iceberg(("q-1", 0), ("q-1", 1), ("q-1", 2))
    metadata = json.loads(table.read("metadata/v3.metadata.json"))
    back = {**metadata, "current-snapshot-id": 2 + (1 << 60)}
    table.write("metadata/v4.metadata.json", json.dumps(back).encode())
    assert [one.version - (1 << 60) for one in iceberg_line(table)] == [2, 1]
    assert version(table, "iceberg", 9) == 2 + (1 << 60)
