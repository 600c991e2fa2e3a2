"""A held job's side of a cut over several jobs."""

from __future__ import annotations

from typing import NoReturn

import pytest

from airflow_flinkstyle.agent.core.run.held_cut import Agreement
from airflow_flinkstyle.errors import FlinkstyleError
from airflow_flinkstyle.protocol.cuts import Cut, CutBoard
from airflow_flinkstyle.savepoint.errors import TAKE_TIMED_OUT
from testbed.memory_store import MemoryStore


def out_of_time() -> NoReturn:
    raise TAKE_TIMED_OUT.error(what="job orders", timeout_s=1.0)


@pytest.mark.parametrize("verdict", ["complete", None])
def test_job_whose_time_is_up_stops_by_a_cut_that_was_complete_before(verdict: str | None) -> None:
    """The other jobs stop by it: one that ran on would read beyond it."""
    store = MemoryStore()
    agreement = Agreement(store, "orders", "c1", hold_s=5.0, require_wanted=out_of_time)
    if verdict is None:
        with pytest.raises(FlinkstyleError, match="job orders"):
            agreement.require_complete()
        return
    decided = Cut(cut_id="c1", verdict="complete", members={}, reason="", decided_at_ms=1)
    CutBoard(store).decide(decided)
    agreement.require_complete()
