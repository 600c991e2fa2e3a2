from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.errors import REHEARSAL_TIMEOUT
from airflow_flinkstyle.agent.core.run import scratch_batches
from airflow_flinkstyle.agent.core.run.scratch_batches import ScratchBatches
from airflow_flinkstyle.protocol.rehearsal_records import Rehearse
from testbed.refusals import refuses
from tests.small_spark import SmallHandle, SmallQuery, SmallRun
from tests.unit.agent.job_queries import a_query_of_two_batches

if TYPE_CHECKING:
    import pytest


def batches_whose_end_takes(seconds: float, until_s: float) -> tuple[ScratchBatches, threading.Thread]:
    """Return batches of a query that has run enough, with the thread in which Spark ends its last one."""
    engine: Any = threading.Thread(target=time.sleep, args=(seconds,), daemon=True)

    class Ending(SmallQuery):
        """It has ended for Spark, and its thread lives."""

        has_thread = property(lambda _: engine.is_alive())  # type: ignore[assignment]
        stop = staticmethod(engine.join)  # type: ignore[assignment]

        def await_end(self, timeout_ms: int) -> bool:
            return True

    handle = Ending(SmallHandle("q", SmallRun()))
    driver: Any = SimpleNamespace(leave_if_ending=lambda: None)
    batches = ScratchBatches(driver, a_query_of_two_batches(committed=2), Rehearse(), until_s)
    batches._start = lambda *, once: (engine.start(), handle)[1]  # type: ignore[method-assign]
    return batches, engine


def test_rehearsed_query_has_ended_before_its_copy_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_batches, "_STOP_S", 0.01)
    batches, engine = batches_whose_end_takes(0.3, time.monotonic() + 60)
    batches._as_they_come()
    assert not engine.is_alive()


def test_rehearsed_query_that_does_not_end_fails_the_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_batches, "_STOP_S", 0.01)
    batches, _ = batches_whose_end_takes(60, time.monotonic() + 0.2)
    with refuses(REHEARSAL_TIMEOUT):
        batches._as_they_come()
