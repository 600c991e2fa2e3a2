from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.queries import JobQuery
from airflow_flinkstyle.agent.sinks import Sink, admit, left_out, sink_of
from airflow_flinkstyle.agent.wrapping import Remembered
from airflow_flinkstyle.protocol.records import Go
from airflow_flinkstyle.savepoint.errors import SinkSkipsError
from airflow_flinkstyle.savepoint.repository import SavepointRepository
from airflow_flinkstyle.storage.memory import MemoryStore
from airflow_flinkstyle.types import BatchId
from tests.declared import AS_BEFORE

if TYPE_CHECKING:
    from airflow_flinkstyle.protocol.records import Rewind

NOTHING: Any = None


def a_checkpoint(*, planned: int, committed: int) -> MemoryStore:
    store = MemoryStore()
    for batch in range(planned + 1):
        store.write(f"offsets/{batch}", b"")
    for batch in range(committed + 1):
        store.write(f"commits/{batch}", b"")
    return store


def a_query(checkpoint: MemoryStore) -> JobQuery:
    sink = Sink(name="json", path="/out")
    return JobQuery(
        name="files", writer=NOTHING, run=lambda: NOTHING, checkpoint=checkpoint, location="x", sources=(),
        sink=sink, declared=AS_BEFORE,
    )  # fmt: skip


def a_go(rewind: Rewind = "continue", *, skip_known_batches: bool = False) -> Go:
    return Go(
        savepoint_id=None, carry_pending=False, closed_at=None, expected={}, rewind=rewind,
        skip_known_batches=skip_known_batches,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("planned", "committed", "newest", "batches"),
    [
        (5, 5, 5, []),
        (6, 5, 6, []),  # killed before its commit: it is run again with the same offsets
        (5, 5, 7, [6, 7]),
        (6, 5, 7, [6, 7]),
        (-1, -1, 2, [0, 1, 2]),  # from scratch, into an old output path
        (-1, -1, None, []),
    ],
)
def test_batches_are_left_out_if_the_sink_knows_more_than_the_checkpoint(
    planned: int, committed: int, newest: int | None, batches: list[int]
) -> None:
    checkpoint = a_checkpoint(planned=planned, committed=committed)
    assert list(left_out(checkpoint, BatchId(newest) if newest is not None else None)) == batches


def test_batches_that_the_sink_knows_are_refused_unless_accepted() -> None:
    query = a_query(a_checkpoint(planned=2, committed=2))
    repository = SavepointRepository(MemoryStore(), "job")
    with pytest.raises(
        SinkSkipsError, match=r"json of query files in /out, .* leave out batches 3 to 5"
    ) as refused:
        admit(query, BatchId(5), a_go("re-emit"), None, repository)
    assert "rewind='fork'" in refused.value.remedy
    admit(query, BatchId(5), a_go("re-emit", skip_known_batches=True), None, repository)
    admit(query, BatchId(2), a_go(), None, repository)


def test_sink_is_known_by_what_the_script_set() -> None:
    seen = Remembered()
    seen.format = "Parquet"
    seen.set_target("start", "/out")
    assert sink_of(NOTHING, seen) == Sink(name="parquet", path="/out")
    seen.format = "foreachBatch"
    assert sink_of(NOTHING, seen).name == "foreachBatch"
