"""Which lineage a sink goes on with, over restarts, relaunches, rewinds and moves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.agent.core.guards import lineages
from airflow_flinkstyle.agent.core.guards.lineages import Origin, carried, origins, resumes
from airflow_flinkstyle.agent.core.job_query import recorded
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.query_records import QueryStatus, SinkLineage, Sinks
from airflow_flinkstyle.protocol.records import Heartbeat, TakeoverOrder
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
from airflow_flinkstyle.sinks.errors import SINK_LINEAGE
from airflow_flinkstyle.sinks.resume import Resume, SinkState, expect, expected
from airflow_flinkstyle.types import BatchId, Generation, Incarnation
from testbed.refusals import refuses
from tests.declared import AS_BEFORE
from tests.small_spark import SmallSpark, SmallStart, queries_at

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_flinkstyle.types import Rewind

K = BatchId(10)
"""The last batch of what is gone on from; batch 11 comes first."""


def a_lineage(name: str = "out", cluster: str = "old") -> SinkLineage:
    return SinkLineage(
        lineage=name, shards=2, control_topic="c", cluster_id=cluster, completed_batch=K, markers={0: K, 1: K}
    )


SAVED = Sinks(lineages=(a_lineage(),))


def a_savepoint(sinks: Sinks | None, *, planned: bool = False) -> Manifest:
    query = QuerySnapshot(
        name="totals", query_id="q", batch_id=K, checkpoint_location="x", pinned_confs={}, kafka={},
        planned_offsets="v1\n{}\n-" if planned else None, sinks=sinks, files=(),
    )  # fmt: skip
    return Manifest(
        savepoint_id="sp-1", job="job", parent=None, alignment="none", taken_at_ms=1, taken_from_generation=1,
        batches_run=1,
        spark_version="4.2.0", evidence={}, queries=(query,),
    )  # fmt: skip


def an_order(rewind: Rewind = "continue", **changes: Any) -> TakeoverOrder:
    order = TakeoverOrder(savepoint_id="sp-1", closed_at=None, expected={}, parent=BEGINNING, rewind=rewind)
    return replace(order, **changes)


def an_origin(rewind: Rewind = "continue", sinks: Sinks | None = SAVED, *, generation: int = 7) -> Origin:
    return origins(an_order(rewind), a_savepoint(sinks), None, Generation(generation))["totals"]


def last_words(sinks: Sinks | None) -> Heartbeat:
    beat = QueryStatus(query_id="q", batch_id=K, batch_committed_at_ms=1, sources={}, sinks=sinks)
    return Heartbeat(
        incarnation=Incarnation(1), state="closed", beat=9, written_at_ms=1, spark_version="4.2.0",
        application_id="a", queries={"totals": beat},
    )  # fmt: skip


_numbers = iter(range(1000))


def goes_on(origin: Origin | None, told: Sinks | None = None, *, own: str = "out") -> Resume | None:
    """Return what the sink whose lineage the job names so hears."""
    query_id = f"lineages-{next(_numbers)}"
    expect(query_id, *resumes(origin, told))
    return expected(query_id, own)


def begins(resume: Resume | None, cluster: str, completed: int | None) -> int | None:
    assert resume is not None
    return resume.begins_behind(cluster_id=cluster, batch_id=K + 1, completed=completed)


def test_continue_goes_on_with_the_lineage_and_cluster_of_the_savepoint():
    found = goes_on(an_origin())
    assert found is not None
    assert (found.lineage_of("out"), found.cluster_id, found.under_way) == ("out", "old", False)
    assert begins(found, "old", None) is None  # what is gone there is lost, and refused
    assert begins(found, "new", None) == K


def test_adopted_checkpoint_says_the_same_as_a_savepoint():
    order = an_order(savepoint_id=None)
    assert origins(order, None, last_words(SAVED), Generation(7))["totals"] == an_origin()
    assert origins(order, None, None, Generation(7)) == {}


@pytest.mark.parametrize("rewind", ["fork", "re-emit"])
def test_rewind_begins_a_lineage_of_this_generation_and_the_same_one_at_a_relaunch(rewind: Rewind):
    first = goes_on(an_origin(rewind))
    assert first is not None
    assert first.lineage_of("out") == "out.7"
    assert begins(first, "old", None) == K
    told = Sinks(lineages=(a_lineage("out.7"),))
    again = goes_on(an_origin(rewind), told)
    assert again is not None
    assert again.lineage_of("out") == "out.7"
    assert begins(again, "old", None) is None  # it was there: now it is lost


def test_rewind_of_which_no_batch_ran_is_carried_out_by_whoever_goes_on():
    before = carried(an_origin("re-emit"), None, is_new=False)
    assert before == Sinks(lineages=SAVED.lineages, begins="7")
    found = goes_on(an_origin(sinks=before, generation=8))
    assert found is not None
    assert (found.lineage_of("out"), begins(found, "old", None)) == ("out.7", K)


def test_rewind_chosen_anew_replaces_one_that_was_not_carried_out():
    found = goes_on(an_origin("fork", sinks=Sinks(lineages=SAVED.lineages, begins="7"), generation=8))
    assert found is not None
    assert found.lineage_of("out") == "out.8"


def test_sink_that_moved_in_this_generation_does_not_move_again_at_a_relaunch():
    moved = goes_on(an_origin(), Sinks(lineages=(a_lineage(cluster="new"),)))
    assert moved is not None
    assert (moved.cluster_id, moved.under_way) == ("new", True)
    unmoved = goes_on(an_origin(), SAVED)  # carried from the savepoint: the first batch may still move it
    assert unmoved is not None
    assert begins(unmoved, "new", None) == K


def test_planned_batch_keeps_the_sink_where_it_may_have_written_a_part_of_it():
    manifest = a_savepoint(SAVED, planned=True)
    found = goes_on(origins(an_order(), manifest, None, Generation(7))["totals"])
    with refuses(SINK_LINEAGE, match="batch 11 was planned already"):
        begins(found, "new", None)
    assert begins(found, "old", K) is None


def test_batch_that_may_be_half_written_is_handed_on_until_a_sink_has_looked():
    order, planned = an_order(), a_savepoint(SAVED, planned=True)
    first = origins(order, planned, None, Generation(7))["totals"]
    told = carried(first, None, is_new=False)
    assert told == replace(SAVED, under_way=True)
    # That driver dies before its first batch: nothing is planned in its checkpoint.
    manifest = a_savepoint(told)
    assert manifest_json.from_json(manifest_json.to_json(manifest)) == manifest
    adopted = origins(an_order(savepoint_id=None), None, last_words(told), Generation(8))
    for origin in (origins(order, manifest, None, Generation(8))["totals"], adopted["totals"]):
        with refuses(SINK_LINEAGE, match="batch 11 was planned already"):
            begins(goes_on(origin), "new", None)


def test_query_that_gets_its_first_transactional_sink_begins_behind_the_savepoint():
    found = goes_on(an_origin(sinks=Sinks()))
    assert begins(found, "old", None) == K


def test_what_nobody_recorded_changes_nothing():
    assert goes_on(an_origin(sinks=None)) is None
    assert goes_on(an_origin(), own="renamed") is None
    assert goes_on(None) is None


def test_savepoint_that_is_gone_leaves_what_this_generation_told():
    order, told = an_order(), Sinks(lineages=(a_lineage("out.7"),))
    assert origins(order, None, last_words(SAVED), Generation(7)) == {}
    found = goes_on(None, told)
    assert found is not None
    assert found.lineage_of("out") == "out.7"


def test_driver_without_a_batch_hands_on_what_it_goes_on_from():
    assert carried(an_origin(), None, is_new=False) == SAVED
    told = Sinks(lineages=(a_lineage(cluster="new"),))
    assert carried(an_origin(), told, is_new=False) == told
    assert carried(None, None, is_new=True) == Sinks()
    assert carried(None, None, is_new=False) is None
    assert carried(an_origin("fork", sinks=None), None, is_new=False) == Sinks(begins="7")


def test_shard_of_which_only_the_number_of_shards_was_noted_has_written_nothing():
    state = SinkState(
        lineage="out", shards=4, control_topic="c", cluster_id="old",
        completed_batch=K, markers={0: K, 1: K, 2: -1, 3: -1},
    )  # fmt: skip
    told = recorded(state)
    assert told.markers == {0: K, 1: K}
    manifest = a_savepoint(Sinks(lineages=(told,)))
    assert manifest_json.from_json(manifest_json.to_json(manifest)) == manifest


def test_query_that_its_script_starts_again_is_still_known_by_what_it_goes_on_from(tmp_path: Path):
    queries = queries_at(tmp_path)
    query = queries.register("totals", SmallStart(SmallSpark()), (), AS_BEFORE)
    query.carried = SAVED
    queries.settle(query, None)
    assert queries.register("totals", SmallStart(SmallSpark()), (), AS_BEFORE).written() == SAVED


def test_batch_that_was_planned_before_is_under_way_until_it_is_committed(tmp_path: Path):
    queries = queries_at(tmp_path)
    query = queries.register("totals", SmallStart(SmallSpark()), (), AS_BEFORE)
    query.carried, query.before = Sinks(under_way=True), None
    assert query.written() == Sinks(under_way=True)
    query.checkpoint.write("commits/0", b"")
    assert query.written() == Sinks()
    queries.settle(query, None)
    again = queries.register("totals", SmallStart(SmallSpark()), (), AS_BEFORE)  # its script's next start
    assert again.written() == Sinks()


def test_query_that_its_driver_has_not_started_yet_is_told_by_the_id_in_its_checkpoint(tmp_path: Path):
    """Else callers would not know how far the query was whose driver died in its start."""
    queries = queries_at(tmp_path)
    query = queries.register("totals", SmallStart(SmallSpark()), (), AS_BEFORE)
    lineages.expect(query, None, None)
    assert query.status().query_id is None
    query.checkpoint.write("metadata", b'{"id":"39b0b8ae-0d5c-4b7e-9e13-7d9ac4b58d19"}')
    query.checkpoint.write(f"commits/{K}", b"v1")
    lineages.expect(query, an_origin(), None)
    queries.settle(query, None)
    again = queries.register("totals", SmallStart(SmallSpark()), (), AS_BEFORE)
    for beat in (query.status(), again.status()):
        assert (beat.query_id, beat.batch_id) == ("39b0b8ae-0d5c-4b7e-9e13-7d9ac4b58d19", K)
