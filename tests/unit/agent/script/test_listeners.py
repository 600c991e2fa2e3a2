"""What a script's listeners hear: everything but what the agent does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_flinkstyle.agent.spark.wrapping import _OwnEvents

QUERY, RUN = "q-1", "r-1"


class SmallAgent:
    """An agent that has done what it is told."""

    def __init__(self) -> None:
        self.runs_job, self.own = True, {"start": set[str](), "end": set[tuple[str, str]]()}
        self.held = SimpleNamespace(
            is_own_start=lambda query_id: query_id in self.own["start"],
            is_own_end=lambda query_id, run_id: (query_id, run_id) in self.own["end"],
        )


def an_event(query_id: str = QUERY, run_id: str = RUN, exception: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(id=query_id, runId=run_id, exception=exception)


@pytest.fixture
def agent() -> SmallAgent:
    return SmallAgent()


def test_what_the_script_starts_and_what_fails_is_heard(agent: SmallAgent) -> None:
    own = _OwnEvents(agent)  # type: ignore[arg-type]
    assert not own.is_start(an_event())
    assert not own.is_of_copy(an_event())
    assert not own.is_end(an_event())
    agent.own["end"].add((QUERY, RUN))
    assert not own.is_end(an_event(exception="it broke while it was held"))


def test_what_the_agent_holds_stops_and_lets_continue_is_not_heard(agent: SmallAgent) -> None:
    own = _OwnEvents(agent)  # type: ignore[arg-type]
    agent.own["start"].add(QUERY)
    agent.own["end"].add((QUERY, RUN))
    assert own.is_start(an_event())
    assert own.is_end(an_event())
    assert not own.is_end(an_event(run_id="r-2"))
    assert not own.is_start(an_event("q-2"))


def test_copies_that_are_tried_before_the_job_is_this_drivers_are_never_heard_of(agent: SmallAgent) -> None:
    own = _OwnEvents(agent)  # type: ignore[arg-type]
    agent.runs_job = False
    assert own.is_start(an_event("copy"))
    agent.runs_job = True  # its end comes late
    assert own.is_of_copy(an_event("copy"))
    assert own.is_end(an_event("copy"))
    assert not own.is_start(an_event())
