"""Names from outside are checked where they enter, and every write again: nothing leaves its folder."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_flinkstyle.errors import FlinkstyleError, MessageFormatError
from airflow_flinkstyle.rewrite.errors import PLAN_FORMAT
from airflow_flinkstyle.rewrite.plan import FORMAT_VERSION, OffsetRewritePlan
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.errors import ManifestFormatError
from airflow_flinkstyle.savepoint.exchange.export import export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_archive, import_savepoint
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import BadKeyError, StoreDeniedError
from airflow_flinkstyle.storage.keys import below, is_name
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from testbed.refusals import refuses
from tests import hostile
from tests.unit.savepoint.manifests import a_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from tests.unit.savepoint.conftest import Checkpoint


@pytest.fixture
def export(
    repository: SavepointRepository,
    a_checkpoint: Callable[..., Checkpoint],
    take: Callable[..., Manifest],
    tmp_path: Path,
) -> Path:
    """An exported savepoint, as a folder."""
    take(repository, a_checkpoint())
    export_savepoint(repository, "sp-1", LocalStore(tmp_path / "export"))
    return tmp_path / "export"


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", ["../../../x", "../x", "/etc/cron.d/x", "a/b", ".."])
def test_imported_archive_with_a_query_that_leaves_its_target_is_refused(
    export: Path, tmp_path: Path, name: str
):
    hostile.rename_in_export(export, name)
    packed = hostile.archive(export, tmp_path / "hostile.tar")
    before = everything(tmp_path)
    place = tmp_path / "a" / "b" / "c" / "checkpoints"
    other = SavepointRepository(LocalStore(tmp_path / "root"), "orders")
    with pytest.raises(ManifestFormatError, match="name"):
        restore_savepoint(import_archive(packed, other), other, lambda query: open_store(f"{place}/{query}"))
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", hostile.NAMES, ids=ascii)
def test_no_hostile_name_passes_in_a_manifest(name: str):
    good = manifest_json.to_json(a_manifest())
    for change, query in (
        ({}, {"name": name}),
        ({"cut_id": name}, {}),
        ({"parent": name}, {}),
        ({"savepoint_id": name}, {}),
        ({"job": name}, {}),
    ):
        with pytest.raises(ManifestFormatError):
            manifest_json.from_json(hostile.manifest(good, change, query))


@pytest.mark.parametrize("name", hostile.NAMES, ids=ascii)
def test_no_hostile_name_passes_in_a_record(name: str):
    for kind, field, data in hostile.records(name):
        with pytest.raises(MessageFormatError, match=field):
            kind.from_bytes(data)


@pytest.mark.parametrize("name", hostile.NAMES, ids=ascii)
def test_no_hostile_name_passes_in_a_plan(name: str):
    strategy = {"query": "q", "source": "0", "strategy": "proved", "precondition": "", "consequence": ""}
    good: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "savepoint_id": "sp-1", "job": "orders", "batches": {"q": 1}, "tables": {},
        "target": {"cluster_id": "c", "topics": {}}, "moves": [], "planned": [], "settled": True,
        "unread": [], "evidence": {}, "strategies": [strategy], "source_cluster_id": None,
    }  # fmt: skip
    assert OffsetRewritePlan.from_json(json.dumps(good)).job == "orders"
    for wrong in (
        {"savepoint_id": name},
        {"job": name},
        {"batches": {name: 1}},
        {"strategies": [{**strategy, "query": name}]},
    ):
        with refuses(PLAN_FORMAT):
            OffsetRewritePlan.from_json(json.dumps({**good, **wrong}))


def test_records_of_the_corpus_are_good_with_a_good_name():
    for name in ("orders", "sp-1-2-0123abc", "A.b_c-9"):
        for kind, _, data in hostile.records(name):
            assert kind.from_bytes(kind.from_bytes(data).to_bytes()) == kind.from_bytes(data)
    for kind, good, fields in hostile.GOOD:
        for field in fields:
            for wrong in (5, True, ["a/b"], {"a/b": 1}, [5], [["a"]]):
                with pytest.raises(FlinkstyleError):
                    kind.from_bytes(json.dumps({**good, field: wrong}).encode())


@pytest.mark.parametrize("name", hostile.NAMES, ids=ascii)
@pytest.mark.parametrize("root", ["/data/checkpoints", "s3a://bucket/c", "hdfs://name:9000/c"])
def test_no_hostile_name_makes_a_place_below_a_location(root: str, name: str):
    with pytest.raises(BadKeyError):
        below(root, name)


@given(st.text(max_size=20) | st.sampled_from(hostile.NAMES))
@settings(deadline=None)
def test_any_name_stays_directly_below_its_location_or_is_refused(name: str):
    try:
        place = below("/data/checkpoints", name)
    except BadKeyError:
        assert not is_name(name)
        return
    assert is_name(name)
    assert Path(os.path.normpath(place)).parent == Path("/data/checkpoints")


@given(st.text(max_size=20) | st.sampled_from(hostile.NAMES), st.integers(0, len(hostile.GOOD) - 1))
@settings(deadline=None)
def test_record_with_any_name_is_refused_or_holds_a_name(name: str, which: int):
    kind, good, fields = hostile.GOOD[which]
    for field in fields:
        data = json.dumps({**good, field: hostile.put(good[field], name)}).encode()
        try:
            kind.from_bytes(data)
        except MessageFormatError:
            assert not is_name(name)
        else:
            assert is_name(name)


# --- writes are checked again ---------------------------------------------------------------------


def test_no_write_follows_a_link_out_of_the_root(tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "root" / "job").mkdir(parents=True)
    (tmp_path / "root" / "job" / "blobs").symlink_to(tmp_path / "outside")
    (tmp_path / "source").write_bytes(b"x")
    store = LocalStore(tmp_path / "root")
    for write in (
        lambda: store.write("job/blobs/a", b"x"),
        lambda: store.create("job/blobs/a", b"x"),
        lambda: store.replace("job/blobs/a", b"x", expected="v"),
        lambda: store.upload("job/blobs/a", tmp_path / "source"),
        lambda: store.upload_by_content(tmp_path / "source", "job/blobs", lambda digest, _: digest),
        lambda: store.upload_by_content(tmp_path / "source", "job", lambda *_: "blobs/a"),
        lambda: store.write("job/blobs/new/folder/a", b"x"),
    ):
        with pytest.raises(StoreDeniedError, match="leads outside"):
            write()
    (tmp_path / "outside" / "a").write_bytes(b"theirs")
    with pytest.raises(StoreDeniedError, match="leads outside"):
        store.delete("job/blobs/a")
    assert everything(tmp_path / "outside") == {"a"}


def test_links_that_stay_below_the_root_and_a_root_that_is_a_link_are_no_matter(tmp_path: Path):
    (tmp_path / "disk" / "job").mkdir(parents=True)
    (tmp_path / "disk" / "alias").symlink_to(tmp_path / "disk" / "job")
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    store = LocalStore(tmp_path / "root")
    store.write("alias/a", b"x")
    assert store.read("job/a") == b"x"


def test_import_from_a_folder_reads_no_file_through_a_link(export: Path, tmp_path: Path):
    blobs = tmp_path / "elsewhere"
    (export / "blobs").rename(blobs)
    (export / "blobs").symlink_to(blobs)
    other = SavepointRepository(LocalStore(tmp_path / "root"), "orders")
    with pytest.raises(FlinkstyleError, match="link"):
        import_savepoint(LocalStore(export), other)
    assert other.ids() == ()
