"""By which schema a script reads a table of Delta, and that its query goes on with the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.errors import SCHEMA_LOG
from airflow_flinkstyle.agent.core.stream_options import schema_locations
from airflow_flinkstyle.protocol.line import BEGINNING
from airflow_flinkstyle.protocol.records import TakeoverOrder
from airflow_flinkstyle.savepoint.files.derive import changed_file
from airflow_flinkstyle.savepoint.manifest import Manifest, QuerySnapshot
from airflow_flinkstyle.types import BatchId
from testbed.refusals import refuses
from tests.unit.agent.conftest import G1
from tests.unit.agent.drivers import SmallDriver
from tests.unit.agent.job_queries import a_query

if TYPE_CHECKING:
    from airflow_flinkstyle.agent.core.job_query import JobQuery
    from airflow_flinkstyle.storage.base import ObjectStore

TABLE = "_schema_log_t-1"


def entry(version: int, place: str = "file:/x/sources/0") -> bytes:
    fields = {"tableId": "t-1", "deltaCommitVersion": version, "sourceMetadataPath": place}
    return f"v1\n{json.dumps(fields)}".encode()


def log_of(*versions: int, name: str = "_schema") -> dict[str, bytes]:
    return {f"sources/schema/{name}/{TABLE}/{n}": entry(version) for n, version in enumerate(versions)}


def put(checkpoint: ObjectStore, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        checkpoint.write(path, content)


@pytest.fixture
def driver(tmp_path: Path) -> SmallDriver:
    return SmallDriver(tmp_path)


def save(driver: SmallDriver, savepoint_id: str, **queries: dict[str, bytes]) -> None:
    """Publish a savepoint of these queries and files, and order to start from it."""
    snapshots = [
        QuerySnapshot(
            name=name,
            query_id="q",
            batch_id=BatchId(1),
            checkpoint_location="x",
            planned_offsets=None,
            pinned_confs={},
            kafka={},
            files=tuple(changed_file(driver.repository, path, content) for path, content in files.items()),
        )
        for name, files in queries.items()
    ]
    manifest = Manifest(
        savepoint_id=savepoint_id,
        job="orders",
        parent=None,
        alignment="none",
        taken_at_ms=1,
        taken_from_generation=None,
        batches_run=1,
        spark_version="4.2.0",
        evidence={},
        queries=tuple(snapshots),
    )
    driver.repository.publish(manifest)
    order = TakeoverOrder(savepoint_id=savepoint_id, closed_at=None, expected={}, parent=BEGINNING)
    driver.board.create_takeover_order(G1, order)


def loaded(driver: SmallDriver, location: str) -> dict[str, bytes]:
    """Return what Delta finds in the folder that a reader is sent to, by path below it."""
    folder = Path(driver.schema_logs.at_load(location).removeprefix("file://"))
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def reading(driver: SmallDriver, location: str, query: JobQuery) -> JobQuery:
    """Return the query as its start leaves it: with what the script has read its table by."""
    name, log = driver.schema_logs._loaded[driver.schema_logs.at_load(location)]
    query.schema_logs[name] = log
    return query


def test_location_is_found_under_both_names_whatever_their_case_and_only_where_delta_means_it():
    assert schema_locations({"schemaTrackingLocation": "/a"}, None) == {"schematrackinglocation": "/a"}
    assert schema_locations({"SchemaLocation": "/a"}, "delta") == {"schemalocation": "/a"}
    assert schema_locations({"schemaLocation": "/a"}, "xml") == {}


def test_fresh_start_reads_the_table_as_it_is(driver: SmallDriver):
    assert loaded(driver, "s3a://b/home/copy/_schema") == {}


def test_start_from_a_savepoint_reads_by_its_log_of_that_name(driver: SmallDriver):
    save(driver, "sp-1", copy=log_of(2, 5), counts=log_of(2, name="_other"))
    assert loaded(driver, "/home/copy/_schema/") == {f"{TABLE}/0": entry(2), f"{TABLE}/1": entry(5)}
    assert loaded(driver, "/home/counts/_other") == {f"{TABLE}/0": entry(2)}


def test_driver_that_has_taken_over_reads_by_its_own_checkpoint(driver: SmallDriver):
    save(driver, "sp-1", copy=log_of(2))
    put(driver.queries.checkpoint("copy"), log_of(2, 5))
    assert list(loaded(driver, "/home/copy/_schema")) == [f"{TABLE}/0"]
    driver.schema_logs.is_ours = True
    assert sorted(loaded(driver, "/home/copy/_schema")) == [f"{TABLE}/0", f"{TABLE}/1"]


def test_query_goes_on_with_the_schema_that_the_script_has_read(driver: SmallDriver):
    save(driver, "sp-1", copy=log_of(2, 5))
    query = reading(driver, "/home/copy/_schema", a_query("copy"))
    moved = entry(5, place="s3a://elsewhere/sources/0")
    put(query.checkpoint, {**log_of(2), f"sources/schema/_schema/{TABLE}/1": moved})
    driver.schema_logs.require_same(query)
    put(query.checkpoint, {f"sources/schema/_schema/{TABLE}/2": entry(8)})
    with refuses(SCHEMA_LOG, match=r"query copy .*\.\.\./_schema"):
        driver.schema_logs.require_same(query)


def test_query_restored_behind_a_script_that_knew_no_savepoint_is_refused(driver: SmallDriver):
    query = reading(driver, "/home/copy/_schema", a_query("copy"))
    driver.schema_logs.require_same(query)
    put(query.checkpoint, log_of(2))
    with refuses(SCHEMA_LOG):
        driver.schema_logs.require_same(query)


def test_two_queries_with_one_name_for_their_logs_must_be_equally_far(driver: SmallDriver):
    save(driver, "sp-1", copy=log_of(2, 5), counts=log_of(2))
    with refuses(SCHEMA_LOG, match="query counts and another one"):
        driver.schema_logs.at_load("/home/copy/_schema")


def test_two_queries_that_are_equally_far_may_share_a_name(driver: SmallDriver):
    save(driver, "sp-1", copy=log_of(2, 5), counts=log_of(2, 5))
    assert sorted(loaded(driver, "/home/copy/_schema")) == [f"{TABLE}/0", f"{TABLE}/1"]
