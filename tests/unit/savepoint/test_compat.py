from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.checkpoint.offset_log import SOURCE_EVOLUTION
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.compat import (
    REPARTITION,
    ROCKSDB_CLASS,
    SOURCE_NAMES,
    STATE_CHANGES,
    STATE_PROVIDER,
    SparkRuntime,
    StateChanges,
    as_asked,
    check,
    check_confs,
    require_compatible,
    source_names_asked,
    state_changes_asked,
    state_changes_due,
    with_state_changes,
)
from airflow_flinkstyle.savepoint.errors import SPARK_INCOMPATIBLE
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.compat import Incompatibility
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def manifest(
    repository: SavepointRepository, a_checkpoint: Callable[..., object], take: Callable[..., Manifest]
) -> Manifest:
    taken = replace(take(repository, a_checkpoint()), spark_version="4.2.1")
    pinned = {
        PARTITIONS: "8",
        PROVIDER: ROCKSDB,
        "spark.sql.streaming.stateStore.rowChecksum.enabled": "true",
    }
    return replace(taken, queries=tuple(replace(query, pinned_confs=pinned) for query in taken.queries))


def found(manifest: Manifest, version: str = "4.2.1", **confs: str) -> tuple[Incompatibility, ...]:
    named = {name.replace("_", "."): value for name, value in confs.items()}
    return check(manifest, SparkRuntime(version=version, confs=named))


@pytest.mark.parametrize("version", ["4.2.1", "4.2.0", "4.3.0", "5.0.0-preview1", ""])
def test_same_minor_and_newer_sparks_go_on(manifest: Manifest, version: str) -> None:
    assert found(manifest, version) == ()


@pytest.mark.parametrize("version", ["4.1.4", "3.5.9"])
def test_older_spark_is_found_with_the_version_to_use(manifest: Manifest, version: str) -> None:
    (finding,) = found(manifest, version)
    assert (finding.what, finding.saved, finding.found) == ("Spark", "4.2.1", version)
    assert "Spark 4.2 or newer" in finding.remedy


def test_changed_settings_are_found_each_with_what_to_do(manifest: Manifest) -> None:
    confs = {PARTITIONS: "16", PROVIDER: HDFS, "spark.sql.streaming.stateStore.rowChecksum.enabled": "false"}
    findings = check(manifest, SparkRuntime(version="4.2.1", confs=confs))
    by_name = {finding.what.partition(" of query")[0]: finding.remedy for finding in findings}
    assert by_name.keys() == confs.keys()
    assert "flinkstyle savepoint repartition" in by_name[PARTITIONS]
    assert "flinkstyle savepoint convert" in by_name[PROVIDER]
    assert "ignore yours" in by_name["spark.sql.streaming.stateStore.rowChecksum.enabled"]


def test_equal_settings_and_those_nobody_made_are_no_findings() -> None:
    assert check_confs("q", {"a": "true", "b": "1"}, {"a": " True ", "c": "2"}) == ()


def test_what_is_asked_for_is_what_the_state_will_pin() -> None:
    pinned = {PARTITIONS: "8", PROVIDER: HDFS}
    asked = {REPARTITION: "16", STATE_PROVIDER: "rocksdb"}
    assert as_asked(pinned, {}) == pinned
    assert as_asked(pinned, asked) == {PARTITIONS: "16", PROVIDER: ROCKSDB_CLASS}
    assert as_asked({PARTITIONS: "8", PROVIDER: "com.example.Store"}, asked)[PROVIDER] == "com.example.Store"


def test_names_of_sources_are_asked_for_by_query() -> None:
    confs = {SOURCE_NAMES: '{"totals": {"0": "orders"}}', SOURCE_EVOLUTION: "true"}
    assert source_names_asked(confs) == {"totals": {"0": "orders"}}
    assert source_names_asked({}) == {}
    pinned = {SOURCE_EVOLUTION: "false"}
    assert as_asked(pinned, confs) == {SOURCE_EVOLUTION: "true"}
    assert as_asked(pinned, {SOURCE_EVOLUTION: "true"}) == pinned, "a version that nobody named sources for"
    for text in ("no", "[1]", '{"totals": "orders"}'):
        with pytest.raises(BadInputError, match="query -> source -> name"):
            source_names_asked({SOURCE_NAMES: text})


def test_changes_of_state_are_due_for_savepoints_from_before_them(manifest: Manifest) -> None:
    first = StateChanges(asked="upgrade-1", up_to=4, changes="changes:one")
    second = StateChanges(asked="upgrade-2", up_to=7, changes='{"0": []}')
    confs = with_state_changes(with_state_changes({"a": "b"}, first), second)
    assert with_state_changes(confs, replace(first, up_to=9)) == confs, "a retry asks for the same"
    asked = state_changes_asked(confs)
    assert asked == (first, second)
    due = {
        taken: state_changes_due(replace(manifest, taken_from_generation=taken), asked)
        for taken in (None, 4, 5, 7, 8)
    }
    assert due == {None: [], 4: [first, second], 5: [second], 7: [second], 8: []}
    assert state_changes_asked({}) == ()
    for text in ("no", "[1]", '[{"asked": "x"}]', "1"):
        with pytest.raises(ValueError, match=r"."):
            state_changes_asked({STATE_CHANGES: text})


def test_all_findings_are_named_at_once(manifest: Manifest) -> None:
    findings = check(manifest, SparkRuntime(version="3.5.9", confs={PARTITIONS: "16"}))
    with refuses(SPARK_INCOMPATIBLE, match=r"Spark is 4\.2\.1 there.*is 8 there and 16 here"):
        require_compatible("savepoint sp-1", findings, state_after="Nothing was stopped.")
    require_compatible("savepoint sp-1", (), state_after="Nothing was stopped.")
