"""A new version that begins behind the empty batch of a repartition: what counts as run, and as written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint import offset_log
from airflow_flinkstyle.checkpoint.stores_in_use import SHUFFLE_PARTITIONS
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.upgrade.repartition import begun_at, with_changes, with_partitions
from airflow_flinkstyle.jobs.upgrade.rollback import FailedVersion, _as_saved
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.savepoint.compat import (
    HDFS_CLASS,
    PROVIDER,
    ROCKSDB_CLASS,
    repartitioned_id,
    state_changes_asked,
)
from airflow_flinkstyle.savepoint.files.derive import publish_derived
from airflow_flinkstyle.savepoint.manifest import KafkaPosition, QuerySnapshot
from airflow_flinkstyle.types import BatchId
from tests.manifests import a_manifest
from tests.unit.jobs.specs import a_spec

if TYPE_CHECKING:
    from tests.unit.jobs.conftest import World

SAVED = a_manifest(
    QuerySnapshot(
        name="a",
        query_id="qa",
        batch_id=BatchId(7),
        checkpoint_location="x",
        planned_offsets=None,
        pinned_confs={},
        kafka={},
        files=(),
    )
)


def failed(*, committed: int, planned: int | None = None) -> FailedVersion:
    found = {} if planned is None else {"a": (BatchId(planned), "v1\n{}\n{}")}
    return FailedVersion(committed={"a": BatchId(committed)}, planned=found, last_status={})


@pytest.mark.parametrize("given", ["changes:of_orders", '{"0": []}', {"0": [{"does": "DropKeys"}]}])
def test_changes_of_state_go_with_the_version_that_brings_them(given: str | dict[str, list[object]]):
    spec = with_changes(a_spec(), given, asked="run-1", before=3)
    [asked] = state_changes_asked(spec.conf)
    assert (asked.asked, asked.up_to) == ("run-1", 3)
    assert asked.changes == (given if isinstance(given, str) else json.dumps(given))
    assert with_changes(spec, given, asked="run-1", before=4) == spec, "a retry behind the takeover"
    assert len(state_changes_asked(with_changes(spec, given, asked="run-2", before=4).conf)) == 2
    assert with_changes(a_spec(), None, asked="run-1", before=3) == a_spec()


@pytest.mark.parametrize("given", ["changes", "[1]", "{", "a b:c"])
def test_what_names_no_changes_of_state_is_refused(given: str):
    with pytest.raises(BadInputError, match="module:name or as a JSON object"):
        with_changes(a_spec(), given, asked="run-1", before=3)


def test_batches_begin_behind_the_one_of_the_repartition(world: World):
    client = world.start()
    saved = client.requests.finish_savepoint(client.requests.begin_savepoint("s", timeout_s=10), timeout_s=10)
    manifest = world.repository.read(saved.savepoint_id)
    at = {query.name: int(query.batch_id) for query in manifest.queries}
    spec = with_partitions(a_spec(), 16)
    assert begun_at(at, spec, manifest.savepoint_id, world.repository) == at
    publish_derived(
        manifest,
        world.repository,
        repartitioned_id(manifest.savepoint_id, 16),
        lambda query: replace(query, batch_id=BatchId(query.batch_id + 1)),
    )
    later = {name: batch + 1 for name, batch in at.items()}
    assert begun_at(at, spec, manifest.savepoint_id, world.repository) == later
    assert begun_at(at, a_spec(), manifest.savepoint_id, world.repository) == at


def test_batch_of_the_repartition_is_none_that_the_new_version_committed():
    assert failed(committed=8).why_no_rollback(SAVED, {"a": 8}) is None
    for began, committed in ((7, 8), (8, 9)):
        why = failed(committed=committed).why_no_rollback(SAVED, {"a": began})
        assert why == f"batches {{'a': {committed}}} were committed"


def test_batch_that_was_planned_behind_a_repartition_is_not_written_under_another_number():
    why = failed(committed=8, planned=9).why_no_rollback(SAVED, {"a": 8})
    assert why is not None
    assert "batch 9 of query a was planned behind a repartition" in why


def test_batch_of_another_query_is_not_planned_anew_where_one_begins_behind_a_repartition():
    """The old version would start from the savepoint alone, and plan other records for that batch."""
    both = replace(SAVED, queries=(*SAVED.queries, replace(SAVED.queries[0], name="b", query_id="qb")))
    committed = {"a": BatchId(8), "b": BatchId(7)}
    failed = FailedVersion(committed=committed, planned={"b": (BatchId(8), "v1\n{}\n{}")}, last_status={})
    why = failed.why_no_rollback(both, {"a": 8, "b": 7})
    assert why is not None
    assert "batch 8 of query b was planned behind a repartition" in why
    quiet = FailedVersion(committed=committed, planned={}, last_status={})
    assert quiet.why_no_rollback(both, {"a": 8, "b": 7}) is None


def test_batch_that_was_planned_in_another_provider_is_run_again_in_that_of_the_saved_state():
    (saved,) = SAVED.queries
    saved = replace(saved, pinned_confs={PROVIDER: HDFS_CLASS, SHUFFLE_PARTITIONS: "2"})
    planned = offset_log.parse('v1\n{"conf":{}}\n{"orders":{"0":5}}').with_confs(
        {PROVIDER: ROCKSDB_CLASS, SHUFFLE_PARTITIONS: "2", "more": "1"}
    )
    carried = offset_log.parse(_as_saved(planned.render(), saved))
    assert carried.confs == {PROVIDER: HDFS_CLASS, SHUFFLE_PARTITIONS: "2", "more": "1"}
    assert carried.sources == planned.sources


def test_batch_that_was_planned_with_other_names_of_sources_is_not_carried_over():
    (saved,) = SAVED.queries
    of_orders = KafkaPosition(cluster_id=None, topic_ids={}, offsets=Offsets(), log_range={})
    text = 'v1\n{"conf":{}}\n{"orders":{"0":5}}'
    version = FailedVersion(committed={}, planned={"a": (BatchId(8), text)}, last_status={})
    named = replace(SAVED, queries=(replace(saved, kafka={"orders": of_orders}),))
    assert "other names of its sources" in str(version.why_no_rollback(named, {"a": 7}))
