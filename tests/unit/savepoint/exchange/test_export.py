from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError, FlinkstyleError
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import Claim
from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.errors import (
    EXPORT_FORMAT,
    TARGET_OCCUPIED,
    SavepointConflictError,
    SavepointDamagedError,
)
from airflow_flinkstyle.savepoint.exchange.export import export_archive, export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_archive, import_savepoint
from airflow_flinkstyle.savepoint.files.verified import check_savepoint, damaged_records, verified_records
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import Generation
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore

    Make = Callable[..., Any]

Repository = SavepointRepository


def contents(store: ObjectStore, prefix: str = "") -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list(prefix)}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def another(job: str = "orders") -> Repository:
    return Repository(MemoryStore("elsewhere"), job)


@pytest.fixture
def manifest(repository: Repository, a_checkpoint: Make, take: Make) -> Manifest:
    return take(repository, a_checkpoint())


@pytest.fixture
def archive(repository: Repository, manifest: Manifest, tmp_path: Path) -> Path:
    path = tmp_path / "sp-1.tar"
    export_archive(repository, "sp-1", path)
    return path


def from_outside(manifest: Manifest) -> Manifest:
    """Return it as a root has it that has no such run."""
    return replace(manifest, taken_from_generation=None)


@pytest.mark.parametrize(
    ("checkpoints", "generation"),
    [
        ("s3a://bucket/checkpoints/1", 1),
        ("s3a://bucket/checkpoints", 1),
        ("s3a://bucket/checkpoints/2", None),
    ],
)
def test_import_keeps_the_number_of_a_run_only_if_this_root_has_that_run(
    repository: Repository, manifest: Manifest, checkpoints: str, generation: int | None
):
    """Another root counts from 1 again: its run 7 is not the one behind this root's run 6."""
    queries = [
        replace(query, checkpoint_location="s3://bucket/checkpoints/1/q") for query in manifest.queries
    ]
    taken = replace(manifest, savepoint_id="sp-run", queries=tuple(queries))
    repository.publish(taken)
    folder, other = MemoryStore(), another()
    export_savepoint(repository, "sp-run", folder)
    claim = Claim(
        claim_key="start", follows=None, checkpoint_location=checkpoints, prepare_savepoint_id=None,
        overrides=(), lease_s=1.0, launch={}, claimed_at_ms=1,
    )  # fmt: skip
    JobBoard(other.store, "orders").create_claim(Generation(1), claim)
    assert import_savepoint(folder, other).taken_from_generation == generation


def test_exported_folder_becomes_the_same_savepoint_in_another_root(
    repository: Repository, manifest: Manifest
):
    folder, other = MemoryStore("folder"), another()
    export_savepoint(repository, "sp-1", folder)
    imported = from_outside(manifest)
    assert import_savepoint(folder, other) == imported
    assert other.read("sp-1") == imported
    verify_savepoint(manifest, other, level="full")


def test_exported_archive_becomes_the_same_savepoint_and_leaves_nothing_beside_it(
    archive: Path, manifest: Manifest
):
    other = another()
    assert import_archive(archive, other) == from_outside(manifest)
    verify_savepoint(manifest, other, level="full")
    assert names(archive.parent) == ["sp-1.tar"]


def test_sha256sum_accepts_what_was_exported(
    repository: Repository, manifest: Manifest, archive: Path, tmp_path: Path
):
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", unpacked], check=True)
    export_savepoint(repository, "sp-1", LocalStore(tmp_path / "folder"))
    for folder in (unpacked, tmp_path / "folder"):
        subprocess.run(["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"], cwd=folder, check=True)


@pytest.mark.parametrize("options", [[], ["--format=ustar"]])
def test_folder_packed_by_tar_is_an_archive(
    repository: Repository, manifest: Manifest, tmp_path: Path, options: list[str]
):
    export_savepoint(repository, "sp-1", LocalStore(tmp_path / "folder"))
    packed = tmp_path / "packed.tar"
    subprocess.run(["tar", *options, "-cf", packed, "-C", tmp_path / "folder", "."], check=True)
    assert import_archive(packed, another()) == from_outside(manifest)


def test_large_files_pass_through_both_forms(
    repository: Repository, a_checkpoint: Make, take: Make, tmp_path: Path
):
    checkpoint = a_checkpoint(store=LocalStore(tmp_path / "live"))
    large = next(info.key for info in checkpoint.store.list("state/0/0/SSTs/"))
    (tmp_path / "live" / large).write_bytes(os.urandom(3_000_001))
    manifest = take(repository, checkpoint)
    export_archive(repository, "sp-1", tmp_path / "sp-1.tar")
    export_savepoint(repository, "sp-1", LocalStore(tmp_path / "folder"))
    for number, store in enumerate((MemoryStore(), LocalStore(tmp_path / "root"))):
        other = Repository(store, "orders")
        if number:
            import_archive(tmp_path / "sp-1.tar", other)
        else:
            import_savepoint(LocalStore(tmp_path / "folder"), other)
        verify_savepoint(manifest, other, level="full")


def test_second_export_writes_nothing_and_archives_are_equal_byte_for_byte(
    repository: Repository, manifest: Manifest, archive: Path
):
    folder = MemoryStore()
    first = export_savepoint(repository, "sp-1", folder)
    before = [info.version for info in folder.list()]
    second = export_savepoint(repository, "sp-1", folder)
    assert (first.files_written, first.files_kept) == (len(manifest.contents), 0)
    assert (second.files_written, second.files_kept) == (0, len(manifest.contents))
    assert [info.version for info in folder.list()] == before
    content = archive.read_bytes()
    export_archive(repository, "sp-1", archive)
    assert archive.read_bytes() == content


def test_second_import_changes_nothing_even_where_the_savepoint_came_from(
    repository: Repository, manifest: Manifest
):
    folder, other = MemoryStore(), another()
    export_savepoint(repository, "sp-1", folder)
    for target in (other, other, repository):
        before = target.ids()
        found = import_savepoint(folder, target)
        assert replace(found, taken_from_generation=1) == manifest
        assert before in {(), target.ids()}


def test_other_savepoints_export_and_other_files_are_left_alone(
    repository: Repository, a_checkpoint: Make, take: Make, manifest: Manifest, archive: Path
):
    take(repository, a_checkpoint(), "sp-2")
    folder, precious = MemoryStore(), MemoryStore()
    export_savepoint(repository, "sp-1", folder)
    precious.write("precious.txt", b"")
    for target in (folder, precious):
        before = contents(target)
        with refuses(TARGET_OCCUPIED):
            export_savepoint(repository, "sp-2", target)
        assert contents(target) == before
    kept = archive.read_bytes()
    with refuses(TARGET_OCCUPIED, match=r"sp-1\.tar"):
        export_archive(repository, "sp-2", archive)
    assert archive.read_bytes() == kept
    assert names(archive.parent) == ["sp-1.tar"]


def test_damaged_savepoint_is_not_exported(repository: Repository, manifest: Manifest, tmp_path: Path):
    store = repository.place("x")[0]
    blob = manifest.queries[0].files[0].blob
    store.write(f"orders/blobs/{blob}", b"?")
    folder = MemoryStore()
    with pytest.raises(SavepointDamagedError, match="commits/2 has 1 bytes"):
        export_savepoint(repository, "sp-1", folder)
    assert not {"savepoint.json", "SHA256SUMS"} & contents(folder).keys()
    with pytest.raises(SavepointDamagedError):
        export_archive(repository, "sp-1", tmp_path / "sp-1.tar")
    assert names(tmp_path) == []


def test_blobs_copied_inside_a_store_are_exported_by_their_content(
    repository: Repository, manifest: Manifest
):
    store, folder, other = repository.place("x")[0], MemoryStore(), another()
    query = manifest.queries[0]
    entry = next(entry for entry in query.files if entry.path.endswith(".zip"))
    store.write("orders/blobs/origin/q/3.zip-9", repository.read_file(entry))
    copied = replace(entry, blob="origin/q/3.zip-9", digest=None, offset=None, pack_bytes=None)
    files = tuple(copied if e is entry else e for e in query.files)
    origin = replace(manifest, savepoint_id="sp-origin", queries=(replace(query, files=files),))
    repository.publish(origin)
    export_savepoint(repository, "sp-origin", folder)
    imported = import_savepoint(folder, other)
    assert {e.digest for e in imported.queries[0].files} == {e.digest for e in query.files}
    assert import_savepoint(folder, repository) == origin


def test_import_under_another_job_needs_the_name_of_the_one_it_came_from(
    repository: Repository, manifest: Manifest
):
    folder, other = MemoryStore(), another("orders-eu")
    export_savepoint(repository, "sp-1", folder)
    for wrong in (None, "orders-eu", "other"):
        with pytest.raises(BadInputError, match="found one of job orders"):
            import_savepoint(folder, other, from_job=wrong)
    assert list(other.place("x")[0].list()) == []
    imported = import_savepoint(folder, other, from_job="orders")
    assert imported == replace(manifest, job="orders-eu", taken_from_generation=None)
    assert imported.queries[0].kafka == manifest.queries[0].kafka


def test_another_savepoint_of_the_same_id_is_kept(
    repository: Repository, manifest: Manifest, a_checkpoint: Make, take: Make
):
    folder, other = MemoryStore(), another()
    export_savepoint(repository, "sp-1", folder)
    theirs = take(other, a_checkpoint(batches=2))
    with pytest.raises(SavepointConflictError):
        import_savepoint(folder, other)
    assert other.read("sp-1") == theirs


def test_savepoint_of_the_same_id_and_sizes_with_other_bytes_keeps_them(
    repository: Repository, a_checkpoint: Make, take: Make
):
    folder, other, checkpoint = MemoryStore(), another(), a_checkpoint()
    take(repository, checkpoint)
    export_savepoint(repository, "sp-1", folder)
    sst = next(iter(checkpoint.store.list("state/0/0/SSTs/"))).key
    content = checkpoint.store.read(sst)
    checkpoint.store.delete(sst)
    checkpoint.store.write(sst, content.swapcase())
    take(other, checkpoint)
    before = contents(other.store)
    with pytest.raises(SavepointConflictError):
        import_savepoint(folder, other)
    assert contents(other.store) == before


@pytest.mark.parametrize("how", ["missing", "cut", "altered"])
def test_import_over_the_same_savepoint_puts_its_damaged_files_back(
    repository: Repository, manifest: Manifest, how: str
):
    folder, before = MemoryStore(), contents(repository.store, "orders/blobs/")
    export_savepoint(repository, "sp-1", folder)
    key = f"orders/blobs/{max(manifest.blobs, key=lambda blob: manifest.blobs[blob])}"
    content = repository.store.read(key)
    repository.store.delete(key)
    if how != "missing":
        spoilt = content[:-1] + (b"" if how == "cut" else bytes([content[-1] ^ 1]))
        repository.store.write(key, spoilt)
    with pytest.raises(SavepointDamagedError):
        check_savepoint(repository, "sp-1", level="full", by="ann")
    assert "sp-1" in damaged_records(repository)
    assert import_savepoint(folder, repository) == manifest
    assert contents(repository.store, "orders/blobs/") == before
    assert damaged_records(repository) == {}
    assert verified_records(repository)["sp-1"].level == "full"


def test_export_that_lacks_a_file_puts_none_back_and_says_so(repository: Repository, manifest: Manifest):
    folder = MemoryStore()
    export_savepoint(repository, "sp-1", folder)
    entry = manifest.queries[0].files[0]
    repository.store.delete(f"orders/blobs/{entry.blob}")
    folder.delete(f"blobs/{entry.content.removeprefix('sha256:')}")
    with pytest.raises(SavepointDamagedError, match=r"is missing.*still damaged"):
        import_savepoint(folder, repository)


@pytest.mark.parametrize("how", ["flipped first", "flipped last", "cut", "missing", "longer"])
def test_export_with_one_damaged_file_is_never_imported(repository: Repository, manifest: Manifest, how: str):
    whole = MemoryStore()
    export_savepoint(repository, "sp-1", whole)
    for key, content in contents(whole).items():
        folder, other = MemoryStore(), another()
        damaged = {
            "flipped first": bytes([content[0] ^ 1]) + content[1:],
            "flipped last": content[:-1] + bytes([content[-1] ^ 1]),
            "cut": content[:-1],
            "longer": content + b"\n",
        }
        for name, original in contents(whole).items():
            if name != key:
                folder.write(name, original)
            elif how != "missing":
                folder.write(name, damaged[how])
        with pytest.raises(FlinkstyleError):
            import_savepoint(folder, other)
        assert other.ids() == ()


def test_every_cut_of_an_archive_and_every_flipped_byte_is_refused_or_harmless(
    archive: Path, manifest: Manifest, tmp_path: Path
):
    content = archive.read_bytes()
    damaged = tmp_path / "damaged.tar"
    refused = 0
    step = max(1, len(content) // 400)
    variants = [content[:end] for end in range(0, len(content), step)]
    for position in range(0, len(content), step):
        variants.append(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
    for variant in variants:
        damaged.write_bytes(variant)
        other = another()
        try:
            assert import_archive(damaged, other) == from_outside(manifest)  # a byte of padding
        except FlinkstyleError:
            refused += 1
            assert other.ids() == ()
        else:
            verify_savepoint(manifest, other, level="full")
    assert refused > len(variants) / 3


def hostile(path: Path, source: Path, *members: tarfile.TarInfo) -> Path:
    """Append members to a copy of a good archive."""
    shutil.copy(source, path)
    with tarfile.open(path, "a", format=tarfile.GNU_FORMAT) as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def a_member(name: str, *, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, size
    return member


@pytest.mark.parametrize(
    "member",
    [
        a_member("/etc/cron.d/x", size=1),
        a_member("../outside", size=1),
        a_member("blobs/../../outside", size=1),
        a_member("blobs/x", kind=tarfile.SYMTYPE, link="/etc/passwd"),
        a_member("blobs/x", kind=tarfile.LNKTYPE, link="savepoint.json"),
        a_member("blobs/x", kind=tarfile.CHRTYPE),
        a_member("blobs/x", kind=tarfile.FIFOTYPE),
        a_member("savepoint.json", size=1),
        a_member("x" * 300, size=1),
    ],
    ids=lambda member: f"{member.type!r} {member.name[:20]}",
)
def test_hostile_archives_are_refused_and_write_nothing(
    archive: Path, tmp_path: Path, member: tarfile.TarInfo
):
    folder = tmp_path / "hostile"
    folder.mkdir()
    path = hostile(folder / "a.tar", archive, member)
    root = LocalStore(tmp_path / "root")
    with refuses(EXPORT_FORMAT):
        import_archive(path, Repository(root, "orders"))
    assert names(tmp_path) == ["hostile", "sp-1.tar"]
    assert names(folder) == ["a.tar"]


@pytest.mark.parametrize("size_bytes", [1 << 20, 1 << 40, 1 << 62, -1])
def test_member_of_another_size_than_the_archive_can_hold_is_refused(
    archive: Path, tmp_path: Path, size_bytes: int
):
    member = a_member("blobs/huge")
    member.size = size_bytes
    header = member.tobuf(format=tarfile.GNU_FORMAT)
    path = tmp_path / "huge.tar"
    path.write_bytes(header + archive.read_bytes())
    with refuses(EXPORT_FORMAT, match="huge"):
        import_archive(path, another())


def test_manifest_of_endless_size_is_not_read(repository: Repository, manifest: Manifest, tmp_path: Path):
    export_savepoint(repository, "sp-1", LocalStore(tmp_path))
    os.truncate(tmp_path / "savepoint.json", 1 << 40)  # takes no space
    with refuses(EXPORT_FORMAT, match=f"{1 << 40} bytes"):
        import_savepoint(LocalStore(tmp_path), another())


@pytest.mark.parametrize("key", ["savepoint.json", "SHA256SUMS", "blobs"])
def test_links_and_pipes_in_a_folder_are_refused(
    repository: Repository, manifest: Manifest, tmp_path: Path, key: str
):
    export_savepoint(repository, "sp-1", LocalStore(tmp_path / "folder"))
    path = tmp_path / "folder" / key
    if key == "blobs":
        path = sorted(path.iterdir())[0]
    content = path.read_bytes()
    for make in (lambda: os.mkfifo(path), lambda: path.symlink_to(tmp_path / "real")):
        path.unlink()
        make()
        (tmp_path / "real").write_bytes(content)
        with pytest.raises(FlinkstyleError):
            import_savepoint(LocalStore(tmp_path / "folder"), another())


@pytest.mark.parametrize("blob", ["a" * 63, "A" * 64, "origin/x/1.zip-4", "../" + "a" * 64, "/" + "a" * 64])
def test_manifest_that_names_other_files_than_contents_is_refused(
    repository: Repository, manifest: Manifest, blob: str
):
    folder = MemoryStore()
    export_savepoint(repository, "sp-1", folder)
    document = json.loads(folder.read("savepoint.json"))
    document["queries"][0]["files"]["blob"]["0"] = blob
    text = manifest_json.with_checksum(json.dumps(document)).encode()
    blobs = sorted([blob, *(entry.blob for entry in manifest.queries[0].files[1:])])
    lines = [f"{name}  blobs/{name}\n" for name in blobs]
    folder.write("savepoint.json", text)
    sums = "".join([*lines, f"{hashlib.sha256(text).hexdigest()}  savepoint.json\n"])
    folder.write("SHA256SUMS", sums.encode())
    with pytest.raises(FlinkstyleError):
        import_savepoint(folder, another())


def test_blob_that_was_there_before_is_read_too_before_the_savepoint_exists(
    repository: Repository, manifest: Manifest
):
    folder = MemoryStore()
    export_savepoint(repository, "sp-1", folder)
    for entry in manifest.contents.values():
        other, blob = another(), entry.content.removeprefix("sha256:")
        other.store.write(f"orders/blobs/{blob}", b"?" * entry.size_bytes)  # of its size, altered long ago
        with pytest.raises(SavepointDamagedError, match=f"{entry.path} was altered"):
            import_savepoint(folder, other)
        assert other.ids() == ()


def test_files_that_the_manifest_does_not_name_are_ignored(repository: Repository, manifest: Manifest):
    folder, other = MemoryStore(), another()
    export_savepoint(repository, "sp-1", folder)
    folder.write("blobs/" + "0" * 64, b"left over")
    folder.write("README.txt", b"kept by somebody")
    import_savepoint(folder, other)
    assert set(other.blob_sizes()) == set(manifest.blobs)
