"""Sources replaced, added, removed and reordered in real checkpoints: what changes, and what does not."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.table_position import TablePosition
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.kafka.cluster import ClusterView, LogRange, TopicView
from airflow_flinkstyle.kafka.errors import OFFSET_BEYOND_END, PartitionSetError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.rewrite.apply import checked_position
from airflow_flinkstyle.rewrite.errors import PLANNED_BATCH, SOURCE_CHANGE
from airflow_flinkstyle.rewrite.identity import change_sources, preview_changes
from airflow_flinkstyle.rewrite.source_changes import (
    AddSource,
    RemoveSource,
    RenameSources,
    ReorderSources,
    ReplacePosition,
    SourceChange,
)
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.types import NextOffset
from testbed.refusals import refuses
from tests.unit.rewrite.golden_savepoint import QUERY, Savepoint

if TYPE_CHECKING:
    from airflow_flinkstyle.savepoint.manifest import KafkaPosition, Manifest


def a_view(ends: dict[int, int], *, topic: str = "orders") -> ClusterView:
    logs = {
        number: LogRange(start=NextOffset(0), end=NextOffset(end), last_stable=NextOffset(end))
        for number, end in ends.items()
    }
    return ClusterView(cluster_id="new", topics={topic: TopicView(topic_id="t-new", partitions=logs)})


def a_position(*offsets: int, topic: str = "orders") -> KafkaPosition:
    view = a_view(dict.fromkeys(range(len(offsets)), 100), topic=topic)
    wanted = Offsets({(topic, number): NextOffset(offset) for number, offset in enumerate(offsets)})
    return checked_position(view, wanted, "new")


def untouched(manifest: Manifest) -> dict[str, str]:
    """Return everything but offset logs and sources, by path."""
    files = manifest.queries[0].files
    return {file.path: file.blob for file in files if not file.path.startswith(("offsets/", "sources/"))}


def test_replaced_position_changes_the_source_in_both_logs_and_nothing_else():
    savepoint = Savepoint("kafka")
    result = savepoint.change(ReplacePosition(query=QUERY, source="0", position=a_position(7, 3)))
    now = '{"orders":{"0":7,"1":3}}'
    assert savepoint.text("offsets/4", result) == savepoint.text("offsets/4").replace(
        '{"golden":{"0":5}}', now
    )
    assert savepoint.text("offsets/3", result) == savepoint.text("offsets/3").replace(
        '{"golden":{"0":4}}', now
    )
    assert savepoint.text("sources/0/0", result) == f"\0v1\n{now}"
    assert untouched(result) == untouched(savepoint.manifest)
    query = result.queries[0]
    assert query.kafka["0"].cluster_id == "new"
    assert replace(query, kafka={}, files=()) == replace(savepoint.manifest.queries[0], kafka={}, files=())
    assert savepoint.repository.read(result.savepoint_id) == result
    assert result.parent == "sp-1"


def test_added_source_pushes_those_behind_it_and_their_files():
    savepoint = Savepoint("kafka")
    result = savepoint.change(AddSource(query=QUERY, source="0", position=a_position(1)))
    assert savepoint.sources(result) == {"0": '{"orders":{"0":1}}', "1": '{"golden":{"0":5}}'}
    assert savepoint.sources(result, 3) == {"0": '{"orders":{"0":1}}', "1": '{"golden":{"0":4}}'}
    assert savepoint.text("sources/0/0", result) == '\0v1\n{"orders":{"0":1}}'
    assert savepoint.text("sources/1/0", result) == savepoint.text("sources/0/0")
    assert [p.cluster_id for p in result.queries[0].kafka.values()] == ["new", "old"]


def test_removed_source_takes_its_files_along_and_those_behind_it_move_up():
    savepoint = Savepoint("join")
    behind = {
        p: savepoint.text(p)
        for p in (f.path for f in savepoint.manifest.queries[0].files)
        if "sources/1/" in p
    }
    assert behind
    result = savepoint.change(RemoveSource(query=QUERY, source="0"))
    found = {f.path for f in result.queries[0].files if f.path.startswith("sources/")}
    assert found == {path.replace("sources/1/", "sources/0/") for path in behind}
    for path, text in behind.items():
        assert savepoint.text(path.replace("sources/1/", "sources/0/"), result) == text
    assert list(savepoint.sources(result)) == list(savepoint.sources(result, 3)) == ["0"]
    assert untouched(result) == untouched(savepoint.manifest)


def test_reordered_sources_swap_their_lines_files_and_positions():
    savepoint = Savepoint("kafka")
    two = savepoint.change(AddSource(query=QUERY, source="1", position=a_position(9)))
    change = ReorderSources(query=QUERY, order=("1", "0"))
    result = change_sources(two, savepoint.repository, [change])
    assert list(savepoint.sources(result).values()) == ['{"orders":{"0":9}}', '{"golden":{"0":5}}']
    assert savepoint.text("sources/0/0", result) == savepoint.text("sources/1/0", two)
    assert savepoint.text("sources/1/0", result) == savepoint.text("sources/0/0", two)
    before, after = two.queries[0].kafka, result.queries[0].kafka
    assert (after["0"], after["1"]) == (before["1"], before["0"])


def test_several_changes_of_one_query_work_in_whatever_order_they_are_given():
    savepoint = Savepoint("kafka")
    two = savepoint.change(AddSource(query=QUERY, source="1", position=a_position(9)))
    changes: list[SourceChange] = [
        AddSource(query=QUERY, source="0", position=a_position(1)),
        ReplacePosition(query=QUERY, source="1", position=a_position(2)),
        RemoveSource(query=QUERY, source="0"),
        AddSource(query=QUERY, source="2", position=a_position(3)),
    ]
    one = change_sources(two, savepoint.repository, changes)
    other = change_sources(two, savepoint.repository, changes[::-1])
    assert [json.loads(line)["orders"]["0"] for line in savepoint.sources(one).values()] == [1, 2, 3]
    assert savepoint.sources(one) == savepoint.sources(other)


def test_named_sources_are_found_by_name_and_the_others_stay_byte_for_byte():
    savepoint = Savepoint("named-sources")
    result = savepoint.change(
        RemoveSource(query=QUERY, source="zeta"),
        AddSource(query=QUERY, source="beta", position=a_position(4)),
    )
    expected = savepoint.text("offsets/4").replace('zeta:{"logOffset":4}', 'beta:{"orders":{"0":4}}')
    assert savepoint.text("offsets/4", result) == expected
    paths = {file.path for file in result.queries[0].files}
    assert not any(path.startswith("sources/zeta/") for path in paths)
    assert "sources/alpha/4" in paths
    assert savepoint.text("sources/beta/0", result) == '\0v1\n{"orders":{"0":4}}'


def test_sources_of_a_log_v2_without_names_count_as_placed():
    two = '"conf":{}}\n1:{"b":{"0":1}}\n0:{"a":{"0":1}}'
    log = offset_log.parse(f'v2\n{{"batchWatermarkMs":0,"batchTimestampMs":1,{two}')
    assert log.by_position
    assert not offset_log.parse(log.render().replace("0:{", "zero:{")).by_position


def test_evidence_says_what_was_changed_and_what_becomes_of_the_watermark():
    savepoint = Savepoint("join")
    result = savepoint.change(RemoveSource(query=QUERY, source="1"))
    told = json.loads(result.evidence[f"{QUERY}/sources"])
    assert told["sources"] == {"0": "0"}
    (removed,) = told["changes"]
    assert "source 1 is no longer read" in removed
    assert "holds it back no longer (policy min)" in removed
    watermark = offset_log.parse(savepoint.text("offsets/4")).watermark_ms
    assert watermark > 0
    assert f"stays at {watermark} ms" in removed


def test_preview_tells_the_same_and_writes_nothing():
    savepoint = Savepoint("kafka")
    change = ReplacePosition(query=QUERY, source="0", position=a_position(7, 3))
    keys = [info.key for info in savepoint.store.list()]
    told = preview_changes(savepoint.manifest, savepoint.repository, [change])
    assert [info.key for info in savepoint.store.list()] == keys
    assert json.loads(savepoint.change(change).evidence[f"{QUERY}/sources"])["changes"] == list(told[QUERY])
    assert "begins at orders-0@7, orders-1@3 of cluster new" in told[QUERY][0]


@pytest.mark.parametrize(
    ("case", "version"), [("join", "3.5.9"), ("join", "4.2.0"), ("join-one-store", "4.2.0")]
)
def test_reorder_in_a_query_that_joins_is_refused(case: str, version: str):
    error = Savepoint(case, version).refusal(ReorderSources(query=QUERY, order=("1", "0")))
    assert "sides could take each other's state" in error.problem


def test_change_beside_a_log_of_schemas_is_refused_since_it_names_its_sources_number():
    savepoint = Savepoint("kafka")
    query = savepoint.manifest.queries[0]
    entry = replace(query.files[0], path="sources/schema/_schema/_schema_log_t/0")
    savepoint.manifest = replace(savepoint.manifest, queries=(replace(query, files=(*query.files, entry)),))
    with refuses(SOURCE_CHANGE, match="schemaTrackingLocation"):
        savepoint.change(RemoveSource(query=QUERY, source="0"))


def test_versions_of_tables_move_with_their_sources():
    savepoint = Savepoint("kafka")
    position = TablePosition(format="delta", table_id="t", version=7, files_read=2)
    query = replace(savepoint.manifest.queries[0], tables={"0": position})
    savepoint.manifest = replace(savepoint.manifest, queries=(query,))
    added = AddSource(query=QUERY, source="0", position=a_position(7, 3))
    (changed,) = change_sources(savepoint.manifest, savepoint.repository, [added]).queries
    assert changed.tables == {"1": position}
    replaced = ReplacePosition(query=QUERY, source="0", position=a_position(7, 3))
    (changed,) = change_sources(savepoint.manifest, savepoint.repository, [replaced]).queries
    assert changed.tables == {}


def test_changes_that_name_what_is_not_there_are_refused():
    kafka, named = Savepoint("kafka"), Savepoint("named-sources")
    replaced = ReplacePosition(query=QUERY, source="1", position=a_position(0))
    assert "sources of the savepoint (0), found 1" in kafka.refusal(replaced).problem
    assert "(alpha, zeta), found 0" in named.refusal(RemoveSource(query=QUERY, source="0")).problem
    other = RemoveSource(query="other", source="0")
    assert "its queries (q), found other" in kafka.refusal(other).problem
    assert "found none" in kafka.refusal().problem


@pytest.mark.parametrize("place", ["2", "7", "x", "-1"])
def test_added_source_at_a_place_that_cannot_be_is_refused(place: str):
    change = AddSource(query=QUERY, source=place, position=a_position(0))
    assert f"0 to 1, found {place}" in Savepoint("kafka").refusal(change).problem


@pytest.mark.parametrize("name", ["alpha", "with space", "a:b", ""])
def test_added_source_whose_name_is_taken_or_none_is_refused(name: str):
    change = AddSource(query=QUERY, source=name, position=a_position(0))
    assert "a new name" in Savepoint("named-sources").refusal(change).problem


def test_query_left_without_sources_is_refused():
    error = Savepoint("kafka").refusal(RemoveSource(query=QUERY, source="0"))
    assert "at least one source to be left" in error.problem


def test_contradicting_changes_are_refused():
    savepoint = Savepoint("kafka")
    replaced = ReplacePosition(query=QUERY, source="0", position=a_position(0))
    assert (
        "one change per source" in savepoint.refusal(replaced, RemoveSource(query=QUERY, source="0")).problem
    )
    order = ReorderSources(query=QUERY, order=("0", "1"))
    assert "one order of exactly 0" in savepoint.refusal(order).problem
    added = AddSource(query=QUERY, source="1", position=a_position(0))
    assert "a place of its own" in savepoint.refusal(added, added).problem
    named = ReorderSources(query=QUERY, order=("zeta", "alpha"))
    assert "Spark finds them by name" in Savepoint("named-sources").refusal(named).problem


def test_planned_batch_is_refused():
    savepoint = Savepoint("kafka")
    planned = savepoint.text("offsets/4").replace('"0":5', '"0":6')
    query = replace(savepoint.manifest.queries[0], planned_offsets=planned)
    manifest = replace(savepoint.manifest, queries=(query,))
    change = ReplacePosition(query=QUERY, source="0", position=a_position(0))
    with refuses(PLANNED_BATCH, match="batch 5"):
        change_sources(manifest, savepoint.repository, [change])


def test_position_outside_the_log_or_not_of_all_partitions_is_refused():
    with refuses(OFFSET_BEYOND_END):
        a_position(101)
    with pytest.raises(PartitionSetError, match="orders-1"):
        checked_position(a_view({0: 5, 1: 5}), Offsets({("orders", 0): NextOffset(1)}), "new")
    empty = replace(a_position(0), offsets=Offsets())
    change = ReplacePosition(query=QUERY, source="0", position=empty)
    savepoint = Savepoint("kafka")
    with pytest.raises(BadInputError, match="there is none"):
        change_sources(savepoint.manifest, savepoint.repository, [change])


def test_store_that_fails_midway_leaves_the_savepoint_whole_or_absent():
    change = AddSource(query=QUERY, source="1", position=a_position(9))
    for call in range(1, 60):
        savepoint = Savepoint("kafka")
        savepoint.store.fail_at(call)
        try:
            change_sources(savepoint.manifest, savepoint.repository, [change])
            done = True
        except StoreUnavailableError:
            done = False
        savepoint.store.fail_at(None)
        result = savepoint.change(change)
        assert savepoint.change(change) == result
        if done:
            return
    pytest.fail("never went through")


def called_otherwise(names: dict[str, str]) -> RenameSources:
    return RenameSources(query=QUERY, names=names)


def test_sources_get_names_in_a_log_v2_and_their_places_back_in_a_log_v1():
    savepoint = Savepoint("join")
    named = savepoint.change(called_otherwise({"0": "orders", "1": "returns"}))
    query, before = named.queries[0], savepoint.manifest.queries[0]
    assert savepoint.text("offsets/4", named).startswith("v2\n")
    assert savepoint.sources(named) == {
        name: savepoint.sources(savepoint.manifest)[place]
        for name, place in (("orders", "0"), ("returns", "1"))
    }
    assert query.pinned_confs == {**before.pinned_confs, offset_log.SOURCE_EVOLUTION: "true"}
    assert savepoint.text("sources/returns/0", named) == savepoint.text("sources/1/0")
    assert untouched(named) == untouched(savepoint.manifest)
    back = change_sources(named, savepoint.repository, [called_otherwise({"returns": "1", "orders": "0"})])
    assert back.queries[0].pinned_confs == before.pinned_confs
    logs = {path: offset_log.parse(savepoint.text(path, back)) for path in ("offsets/3", "offsets/4")}
    assert [(log.version, list(log.sources.values())) for log in logs.values()] == [
        (1, list(savepoint.sources(savepoint.manifest, batch).values())) for batch in (3, 4)
    ]
    assert {file.path for file in back.queries[0].files} == {file.path for file in before.files}


def test_named_sources_get_other_names_and_keep_their_positions():
    savepoint = Savepoint("named-sources")
    result = savepoint.change(called_otherwise({"alpha": "a", "zeta": "z"}))
    assert savepoint.sources(result) == {"a": '{"logOffset":4}', "z": '{"logOffset":4}'}
    assert {file.path for file in result.queries[0].files} >= {"sources/a/4", "sources/z/4"}


def test_planned_batch_stays_where_only_names_change():
    savepoint = Savepoint("kafka")
    [query] = savepoint.manifest.queries
    planned = savepoint.text("offsets/4").replace('"0":5', '"0":6')
    hot = replace(
        savepoint.manifest, queries=(replace(query, planned_offsets=planned),), savepoint_id="sp-hot"
    )
    savepoint.repository.publish(hot)
    [changed] = change_sources(hot, savepoint.repository, [called_otherwise({"0": "orders"})]).queries
    assert changed.planned_offsets is not None
    assert dict(offset_log.parse(changed.planned_offsets).sources) == {"orders": '{"golden":{"0":6}}'}
    assert changed.kafka.keys() == {"orders"}


@pytest.mark.parametrize(
    ("case", "changes", "found"),
    [
        ("join", [{"0": "orders"}], "a name for each of its sources, 0, 1, found 0"),
        ("join", [{"0": "orders", "1": "orders"}], "different names .*found orders, orders"),
        ("join", [{"0": "my-orders", "1": "returns"}], "letters, digits and underscores.*found my-orders"),
        ("join", [{"0": "1", "1": "0"}], "different names .*found 1, 0"),
        ("named-sources", [{"alpha": "0", "zeta": "2"}], "back to the places 0 to 1, found 0, 2"),
        ("named-sources", [{"alpha": "a", "zeta": "z"}, {}], "nothing else of the query at once, found 2"),
    ],
)
def test_names_that_cannot_be_are_refused(case: str, changes: list[dict[str, str]], found: str):
    savepoint = Savepoint(case)
    assert re.search(found, savepoint.refusal(*map(called_otherwise, changes)).problem)
