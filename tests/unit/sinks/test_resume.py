"""Under which lineage a sink goes on, and where it may begin one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from airflow_flinkstyle.sinks.errors import SINK_LINEAGE
from airflow_flinkstyle.sinks.resume import (
    Resume,
    SinkState,
    expect,
    expected,
    failure,
    listen,
    note_failure,
    note_state,
    states,
)
from testbed.refusals import refuses

_numbers = itertools.count()
K = 10
"""The savepoint's last batch."""


@pytest.fixture
def query_id() -> str:
    return f"query-{next(_numbers)}"


def a_resume(**changed: Any) -> Resume:
    given = {"mode": "continue", "after_batch": K, "lineage": "line", "cluster_id": "old", "suffix": "7"}
    return Resume(**{**given, **changed})


@pytest.mark.parametrize(
    ("mode", "cluster", "completed", "behind"),
    [
        # The same cluster: what is not there was lost, and is refused later.
        ("continue", "old", None, None),
        ("continue", "old", K - 1, None),
        ("continue", "old", K, None),
        ("continue", "old", K + 1, None),
        # Moved: unknown there, or known from before it moved away.
        ("continue", "new", None, K),
        ("continue", "new", K - 3, K),
        ("continue", "new", K, None),
        ("continue", "new", K + 1, None),
        # A new lineage begins once; what it has is then its own.
        ("fork", "old", None, K),
        ("fork", "new", None, K),
        ("fork", "old", K, None),
        ("fork", "old", K - 3, None),
        ("re-emit", "old", None, K),
        ("re-emit", "old", K + 1, None),
    ],
)
def test_lineage_begins_only_where_nothing_is_left_out_or_doubled(
    mode: str, cluster: str, completed: int | None, behind: int | None
):
    resume = a_resume(mode=mode)
    assert resume.begins_behind(cluster_id=cluster, batch_id=K + 1, completed=completed) == behind


@pytest.mark.parametrize("batch_id", [K - 1, K, K + 2])
def test_lineage_begins_at_the_savepoints_next_batch_only(batch_id: int):
    for mode in ("continue", "fork", "re-emit"):
        resume = a_resume(mode=mode)
        assert resume.begins_behind(cluster_id="new", batch_id=batch_id, completed=None) is None


def test_sink_never_moves_away_from_a_batch_that_may_be_half_written():
    resume = a_resume(under_way=True)
    for completed in (None, K - 1, K):
        with refuses(SINK_LINEAGE, match=r"from Kafka cluster old to new .* batch 11 was planned already"):
            resume.begins_behind(cluster_id="new", batch_id=K + 1, completed=completed)
    assert resume.begins_behind(cluster_id="old", batch_id=K + 1, completed=None) is None
    assert resume.begins_behind(cluster_id="new", batch_id=K + 2, completed=K + 1) is None


def test_sink_that_the_query_did_not_have_begins_behind_the_savepoint():
    resume = a_resume(lineage=None, cluster_id="", under_way=True)
    assert resume.begins_behind(cluster_id="new", batch_id=K + 1, completed=None) == K
    assert resume.begins_behind(cluster_id="new", batch_id=K + 1, completed=K) is None


def test_cluster_that_is_not_known_did_not_change():
    assert a_resume(cluster_id=None).begins_behind(cluster_id="new", batch_id=K + 1, completed=None) is None


def test_continue_goes_on_with_the_savepoints_lineage():
    assert a_resume(lineage="line.3").lineage_of("line") == "line.3"
    assert a_resume(lineage=None).lineage_of("line") == "line"


def test_new_lineage_is_named_after_the_generation_and_does_not_grow():
    assert a_resume(mode="fork", lineage="line.3").lineage_of("line") == "line.7"
    assert a_resume(mode="re-emit", lineage=None).lineage_of("line") == "line.7"


def test_each_sink_of_a_query_finds_what_is_about_it(query_id: str):
    lines, more = a_resume(lineage="line.3"), a_resume(lineage="line.3.more")
    late, other = a_resume(lineage="line.late.3"), a_resume(lineage="other")
    expect(query_id, late, more, lines, other)
    assert expected(query_id, "other") == other
    assert expected(query_id, "line") == lines
    assert expected(query_id, "line.late") == late
    assert expected(query_id, "line.3.more") == more
    assert expected(query_id, "renamed") is None  # and is then refused, since it has written nothing
    assert expected("another query", "line") is None


def test_sink_goes_on_with_the_lineage_of_its_very_name_before_any_generation_of_it(query_id: str):
    expect(query_id, a_resume(lineage="line.3"), a_resume(lineage="line"))
    assert expected(query_id, "line") == a_resume(lineage="line")


def test_sink_never_goes_on_with_another_one_whose_name_begins_like_its_own(query_id: str):
    expect(query_id, a_resume(lineage="line.late.7"), a_resume(mode="fork", lineage=None))
    found = expected(query_id, "line")
    assert found is not None
    assert found.lineage_of("line") == "line.7"


def test_fork_is_for_every_sink_whatever_its_lineage_was(query_id: str):
    fork = a_resume(mode="fork", lineage="the old query's id")
    expect(query_id, fork)
    assert expected(query_id, "the new query's id") == fork


def a_state(lineage: str, batch: int, *, cluster_id: str = "old") -> SinkState:
    return SinkState(
        lineage=lineage,
        shards=2,
        control_topic=f"flinkstyle-{lineage}.internal",
        cluster_id=cluster_id,
        completed_batch=batch,
        markers={0: batch, 1: batch},
    )


def test_newest_state_of_each_sink_is_told(query_id: str):
    assert states(query_id) == ()
    for state in (a_state("b", 1), a_state("a", 1), a_state("b", 2)):
        note_state(query_id, state)
    assert states(query_id) == (a_state("a", 1), a_state("b", 2))


def test_who_listens_hears_of_a_new_place_only_and_may_end_the_batch(query_id: str):
    heard: list[str] = []
    listen(heard.append)
    for state, times in (
        (a_state("a", 1), 1),
        (a_state("a", 2), 1),
        (a_state("b", 2), 2),
        (a_state("a", 3, cluster_id="new"), 3),
    ):
        note_state(query_id, state)
        assert heard == [query_id] * times


def test_refusal_is_kept_by_query_until_it_goes_on(query_id: str):
    error = SINK_LINEAGE.with_text("Found another.", state_after="Nothing was written.", remedy="Fork.")
    note_failure(query_id, error)
    assert failure(query_id) is error
    assert failure("another query") is None
    note_state(query_id, a_state("line", 1))
    assert failure(query_id) is None
