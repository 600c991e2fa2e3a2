from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.protocol.cuts import Cut, CutBoard, Place, Positions, furthest
from airflow_flinkstyle.types import NextOffset
from testbed.memory_store import MemoryStore

PLACES: st.SearchStrategy[dict[Place, NextOffset]] = st.dictionaries(
    st.tuples(st.sampled_from(["c1", "c2"]), st.sampled_from(["orders", "clicks"]), st.integers(0, 2)),
    st.integers(0, 50).map(NextOffset),
)
CUT = Cut(cut_id="cut-1", verdict="complete", members={"a": "sp-a"}, reason="", decided_at_ms=1)


@given(st.lists(PLACES))
def test_barrier_is_behind_nobody_and_no_further_than_somebody(all_places: list[dict[Place, NextOffset]]):
    barrier = furthest(all_places)
    assert set(barrier) == {place for places in all_places for place in places}
    for place, offset in barrier.items():
        stands = [places[place] for places in all_places if place in places]
        assert offset in stands
        assert all(at <= offset for at in stands)


@given(PLACES)
def test_positions_survive_the_store(places: dict[Place, NextOffset]):
    board = CutBoard(MemoryStore())
    board.create_barrier("cut-1", Positions.of(places))
    found = board.barrier("cut-1")
    assert found is not None
    assert found.places() == places


@pytest.mark.parametrize("first", ["complete", "abandoned"])
def test_first_decision_counts_for_everybody(first: str):
    board = CutBoard(MemoryStore())
    assert board.decision("cut-1") is None
    decided = replace(CUT, verdict=first)  # type: ignore[arg-type]
    assert board.decide(decided) == decided
    assert board.decide(replace(CUT, verdict="abandoned", reason="late")) == decided
    assert board.decide(CUT) == decided
    assert board.decision("cut-1") == decided


def test_cut_id_cannot_leave_its_folder():
    with pytest.raises(BadInputError):
        CutBoard(MemoryStore()).decision("../orders")
