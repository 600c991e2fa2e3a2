from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.run import rehearsal
from airflow_flinkstyle.agent.core.run.comparison import StateWritten
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from tests.small_spark import SmallSpark, SmallStart
from tests.unit.agent.conftest import G1
from tests.unit.agent.drivers import SmallDriver
from tests.unit.agent.job_queries import a_query

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.clocks import SleptClock as Clock

SAVED: Any = SimpleNamespace(savepoint_id="sp-1", query=lambda _name: object())


def test_record_of_a_rehearsal_is_written_through_a_bad_moment_of_the_store(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = SmallDriver(tmp_path, clock=clock)
    manifest: Any = SimpleNamespace(spark_version="4.2.0", savepoint_id="sp-1", queries=())
    run = rehearsal.RehearsalRun(driver, manifest, Rehearse())  # type: ignore[arg-type]
    write, failures = driver.board.write_rehearsal, [StoreUnavailableError("SlowDown", "Nothing.", "Wait.")]

    def write_at_last(*args: Any) -> None:
        if failures:
            raise failures.pop()
        write(*args)

    monkeypatch.setattr(driver.board, "write_rehearsal", write_at_last)
    run.write()
    assert driver.board.rehearsal(G1) is not None


def test_table_says_how_long_the_window_will_write_the_state(tmp_path: Path, clock: Clock) -> None:
    driver = SmallDriver(tmp_path, clock=clock)
    manifest: Any = SimpleNamespace(spark_version="4.2.0", savepoint_id="sp-2", queries=())
    written = StateWritten(before="sp-1", now="sp-2", seconds=12.34)
    rehearsal.RehearsalRun(driver, manifest, Rehearse(), written).write()  # type: ignore[arg-type]
    told = driver.board.rehearsal(G1)
    assert told is not None
    assert "| state | sp-1 | sp-2 | compatible | Written anew, every key compared, in 12.3 s" in (
        told.as_markdown()
    )


@pytest.mark.parametrize("mode", ["archive", "DELETE"])
def test_query_whose_source_removes_what_it_has_read_is_not_rehearsed(mode: str) -> None:
    query = a_query("orders")
    query.start = SmallStart(SmallSpark())
    query.sources = [
        StreamingSource(position=0, name=None, provider="FileSource[in]", options={"cleansource": mode})
    ]
    assert "cleanSource" in (rehearsal._not_rehearsed(SAVED, query) or "")


def test_end_of_a_rehearsed_query_is_forgotten_in_its_own_session() -> None:
    query, own, other = a_query("orders"), SmallSpark(), SmallSpark()
    query.start, own.has_ended, other.has_ended = SmallStart(own), True, True
    driver: Any = SimpleNamespace(queries=SimpleNamespace(spark=other), held=SimpleNamespace(count=0))
    rehearsal._forget_end(driver, query)
    assert (own.has_ended, other.has_ended, driver.held.count) == (False, True, 1)
