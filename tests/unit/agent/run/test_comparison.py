from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_flinkstyle.agent.job_query import JobQuery, Sink
from airflow_flinkstyle.agent.jvm.sources import Source
from airflow_flinkstyle.agent.run.comparison import compare, with_state
from airflow_flinkstyle.protocol.rehearsal_records import Rehearsal, RehearsedQuery
from airflow_flinkstyle.types import Incarnation
from tests.unit.agent.job_queries import a_query
from tests.unit.savepoint.manifests import a_manifest


def of_topics(*topics: str) -> JobQuery:
    query = a_query("totals")
    query.sink = Sink(name="foreachBatch")
    query.sources = [
        Source(position=number, name=None, provider="kafka", options={"Subscribe": names})
        for number, names in enumerate(topics)
    ]
    return query


def verdicts(*topics: str) -> dict[str, str]:
    return {one.what: one.verdict for one in compare(of_topics(*topics), a_manifest(), "4.2.0")}


def test_version_that_changes_nothing_is_compatible_in_every_row():
    found = compare(of_topics("orders"), a_manifest(), "4.2.0")
    assert [one.what for one in found] == ["Spark", "spark.sql.shuffle.partitions", "source 0", "sink"]
    assert {(one.verdict, one.reason) for one in found} == {("compatible", "")}


@pytest.mark.parametrize(
    ("topics", "source"),
    [(("payments",), "source 0"), (("orders", "payments"), "source 1"), ((), "source 0")],
    ids=["renamed", "added", "removed"],
)
def test_source_that_the_savepoint_does_not_know_needs_an_identity(topics: tuple[str, ...], source: str):
    found = verdicts(*topics)
    assert found.pop(source) == "needs a new source identity"
    assert set(found.values()) == {"compatible"}


def test_other_spark_and_sink_say_what_follows_and_the_state_is_added_once_it_was_rehearsed():
    query = of_topics("orders")
    query.sink = Sink(name="delta")
    found = compare(query, a_manifest(), "4.3.0")
    assert {one.what for one in found if one.reason} == {"Spark", "sink"}
    assert with_state(found, None) == found
    ran = RehearsedQuery(batches=1, state_schema="changed")
    state = with_state(found, ran)[-1]
    assert (state.what, state.now) == ("state schema", "changed")
    shown = Rehearsal(
        incarnation=Incarnation(1),
        savepoint_id="sp-1",
        queries={"totals": ran},
        compared=(state,),
        seconds=1,
        ended_at_ms=1,
    )
    assert "| state schema | as saved | changed | compatible | Spark accepted" in shown.as_markdown()
    assert Rehearsal.from_bytes(shown.to_bytes()) == shown


def test_query_that_the_savepoint_does_not_hold_is_not_compared():
    assert compare(replace(of_topics("orders"), name="more"), a_manifest(), "4.2.0") == ()
