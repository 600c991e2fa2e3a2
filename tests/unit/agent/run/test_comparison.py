from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.errors import VERSION_INCOMPATIBLE
from airflow_flinkstyle.agent.core.job_query import JobQuery, Sink
from airflow_flinkstyle.agent.core.run.comparison import (
    DriverVersion,
    compare,
    compare_job,
    require_no_obstacle,
    with_refused_state,
    with_state,
)
from airflow_flinkstyle.agent.core.spark import StreamingSource
from airflow_flinkstyle.protocol.query_records import QueryStatus, SinkLineage, Sinks
from airflow_flinkstyle.protocol.records import Heartbeat
from airflow_flinkstyle.protocol.rehearsal_records import Compared, Rehearsal, RehearsedQuery
from airflow_flinkstyle.types import Incarnation
from testbed.refusals import refuses
from tests.unit.agent.job_queries import a_query
from tests.unit.savepoint.manifests import a_manifest

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import Manifest

PARTITIONS = "spark.sql.shuffle.partitions"
LINEAGE = SinkLineage(
    lineage="out", shards=2, control_topic="c", cluster_id="k", completed_batch=3, markers={}
)
TOLD = Heartbeat(
    incarnation=Incarnation(1),
    state="running",
    beat=1,
    written_at_ms=0,
    spark_version="4.2.0",
    application_id="app",
    python_version="3.11.7",
    queries={
        "totals": QueryStatus(
            query_id="q", batch_id=None, batch_committed_at_ms=None, sources={}, output_mode="append"
        )
    },
)


def of_topics(*topics: str) -> JobQuery:
    query = a_query("totals")
    query.sink = Sink(name="foreachBatch")
    query.sources = [
        StreamingSource(position=number, name=None, provider="kafka", options={"Subscribe": names})
        for number, names in enumerate(topics)
    ]
    return query


def compared(query: JobQuery, manifest: Manifest | None = None, **given: str) -> dict[str, Compared]:
    confs = {PARTITIONS: given["partitions"]} if "partitions" in given else {}
    return {one.what: one for one in compare(query, manifest or a_manifest(), confs, TOLD)}


def written(lineage: SinkLineage) -> Manifest:
    manifest = a_manifest()
    (query,) = manifest.queries
    return replace(manifest, queries=(replace(query, sinks=Sinks(lineages=(lineage,))),))


def test_version_that_changes_nothing_is_compatible_in_every_row():
    found = compared(of_topics("orders"))
    assert list(found) == [PARTITIONS, "source 0", "output mode", "sink"]
    job = compare_job(a_manifest(), DriverVersion(spark="4.2.0", python="3.11.7"), TOLD)
    assert [(one.what, one.before) for one in job] == [("Spark", "4.2.0"), ("Python", "3.11.7")]
    assert {(one.verdict, one.reason) for one in (*found.values(), *job)} == {("compatible", "")}
    assert {one.query for one in found.values()} == {"totals"}


def test_other_versions_of_spark_and_python_say_what_follows():
    newer = compare_job(a_manifest(), DriverVersion(spark="4.3.0", python="3.12.1"), TOLD)
    assert [one.verdict for one in newer] == ["compatible", "compatible"]
    assert all(one.reason for one in newer)
    older, python = compare_job(a_manifest(), DriverVersion(spark="4.1.0", python="3.12.1"), None)
    assert (older.verdict, python.before) == ("incompatible", "unknown")
    assert "4.2 or newer" in older.reason


@pytest.mark.parametrize(
    ("topics", "source"),
    [(("payments",), "source 0"), (("orders", "payments"), "source 1"), ((), "source 0")],
    ids=["renamed", "added", "removed"],
)
def test_source_that_the_savepoint_does_not_know_needs_an_identity(topics: tuple[str, ...], source: str):
    found = compared(of_topics(*topics))
    assert found.pop(source).verdict == "needs a new source identity"
    assert {one.verdict for one in found.values()} == {"compatible"}


def test_another_number_of_partitions_needs_a_repartition():
    row = compared(of_topics("orders"), partitions="16")[PARTITIONS]
    assert (row.verdict, row.now) == ("needs repartition", "16")
    assert "shuffle_partitions" in row.reason


def test_another_output_mode_and_sink_say_what_follows():
    query = of_topics("orders")
    query.sink, query.output_mode = Sink(name="delta"), "update"
    found = compared(query)
    assert (found["output mode"].before, found["output mode"].now) == ("append", "update")
    assert {what for what, one in found.items() if one.reason} == {"output mode", "sink"}
    assert {one.verdict for one in found.values()} == {"compatible"}


@pytest.mark.parametrize("recorded", ["out", "out.7"], ids=["as named", "begun by a rewind"])
def test_sink_of_the_same_lineage_is_compatible(recorded: str):
    query = of_topics("orders")
    query.sink = Sink(name="foreachBatch", lineage="out")
    assert (
        compared(query, written(replace(LINEAGE, lineage=recorded)))["sink lineage"].verdict == "compatible"
    )


def test_sink_of_another_lineage_would_be_refused_after_the_takeover_and_is_now():
    query = of_topics("orders")
    query.sink = Sink(name="foreachBatch", lineage="other")
    found = compared(query, written(LINEAGE))
    assert found["sink lineage"].verdict == "incompatible"
    with refuses(VERSION_INCOMPATIBLE, match="lineage is out there and other here: The new one has"):
        require_no_obstacle("totals", found.values())
    query.sink = Sink(name="foreachBatch")  # a function around it tells nothing
    assert "sink lineage" not in compared(query, written(LINEAGE))


def test_state_is_added_once_it_was_rehearsed():
    found = list(compared(of_topics("orders")).values())
    assert with_state(found, RehearsedQuery(batches=0)) == found
    ran = RehearsedQuery(
        batches=1, state_schema="changed", state_changes=("value.n widened from integer to long",)
    )
    state = with_state(found, ran)[-1]
    assert (state.query, state.what, state.now, state.verdict) == (
        *("totals", "state schema"),
        *("changed", "compatible"),
    )
    assert state.reason.startswith("Value.n widened from integer to long. Spark accepts it")
    shown = Rehearsal(
        incarnation=Incarnation(1),
        savepoint_id="sp-1",
        queries={"totals": ran},
        compared=(state,),
        seconds=1,
        ended_at_ms=1,
    )
    assert "| state schema | as saved | changed | compatible | Value.n" in shown.as_markdown()
    assert Rehearsal.from_bytes(shown.to_bytes()) == shown
    both = replace(shown, compared=(state, replace(state, query="more")))
    assert "| state schema of more |" in both.as_markdown()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            "Please check number and type.\nExisting value_schema=StructType(StructField(n,LongType,"
            "true),StructField(kept,StringType,true)) and new value_schema=StructType(StructField(n,LongType,"
            "true),StructField(kept,ArrayType(LongType,true),true)).\nIf you want",
            "In the value: kept changed from string to array(long). Spark does not accept it.",
        ),
        (
            "Schema evolution is not possible new value_schema=StructType(StructField(n,IntegerType,true))"
            " and old value_schema=StructType(StructField(n,LongType,true))\nPlease check",
            "In the value: n changed from long to integer. Spark does not accept it.",
        ),
    ],
    ids=["another type", "narrowed"],
)
def test_state_that_spark_refuses_is_told_by_its_columns(error: str, says: str):
    rows = list(compared(of_topics("orders")).values())
    found = with_refused_state(rows, RuntimeError(error))[-1]
    assert (found.verdict, found.reason) == ("incompatible", says)
    assert with_refused_state(rows, RuntimeError("division by zero")) == rows


def test_query_that_the_savepoint_does_not_hold_is_not_compared():
    assert compare(replace(of_topics("orders"), name="more"), a_manifest(), {}, TOLD) == []
