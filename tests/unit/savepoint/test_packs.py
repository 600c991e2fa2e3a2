"""Small files in packs: few requests, the same savepoint, and every damage found."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.savepoint import manifest_json
from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.blobs.packing import SmallFile, put_pack, worn_packs
from airflow_flinkstyle.savepoint.blobs.prune_slot import condemned_blobs
from airflow_flinkstyle.savepoint.diff import diff_savepoints
from airflow_flinkstyle.savepoint.errors import ManifestFormatError, SavepointDamagedError
from airflow_flinkstyle.savepoint.exchange.export import export_archive, export_savepoint
from airflow_flinkstyle.savepoint.exchange.importing import import_savepoint
from airflow_flinkstyle.savepoint.files.derive import publish_derived
from airflow_flinkstyle.savepoint.files.restore import restore_savepoint
from airflow_flinkstyle.savepoint.files.transfer import each_window
from airflow_flinkstyle.savepoint.files.verified import check_savepoint, damaged_records, distrust_packs
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.manifest import FileEntry
from airflow_flinkstyle.savepoint.repository.packs import read_packed
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository as Repository
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints
from airflow_flinkstyle.savepoint.retention.dispose import dispose_savepoint
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from airflow_flinkstyle.savepoint.files.verify import Level
    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore, Versioned
    from tests.unit.savepoint.conftest import Checkpoint

    Make = Callable[..., Any]

BELOW = 1 << 20


class Shortens(MemoryStore):
    """Answers a range with a part of it."""

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        found = super().read(key, start=start, length=length)
        return found if length is None or "/packs/" not in key else found[:-1]


class WholeOnly(MemoryStore):
    """Ignores ranges."""

    def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        del start, length
        return super().read(key)


def contents(store: ObjectStore, prefix: str = "") -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list(prefix)}


def many_small(a_checkpoint: Make, count: int = 40, store: ObjectStore | None = None) -> Checkpoint:
    """Return a checkpoint with many small sources; no two have the same content."""
    checkpoint = a_checkpoint(store=store)
    for number in range(count):
        checkpoint.store.write(f"sources/0/{number + 1}", f"source {number} ".encode() * 20)
    return checkpoint


def restored(
    manifest: Manifest, repository: Repository, target: ObjectStore | None = None
) -> dict[str, bytes]:
    target = target or MemoryStore("target")
    restore_savepoint(manifest, repository, lambda _: target)
    return contents(target)


def packs_of(manifest: Manifest) -> set[str]:
    return {entry.blob for entry in manifest.contents.values() if entry.offset is not None}


@pytest.fixture
def checkpoint(a_checkpoint: Make) -> Checkpoint:
    return many_small(a_checkpoint)


@pytest.fixture
def packed(repository: Repository, checkpoint: Checkpoint, take: Make) -> Manifest:
    manifest: Manifest = take(repository, checkpoint, packed_below_bytes=BELOW)
    assert len(packs_of(manifest)) == 1
    return manifest


def pack_key(manifest: Manifest) -> str:
    (pack,) = packs_of(manifest)
    return f"orders/blobs/{pack}"


# --- the same savepoint ------------------------------------------------------------------------


def test_small_files_are_one_object_and_restore_to_the_same_bytes(
    repository: Repository, packed: Manifest, checkpoint: Checkpoint, take: Make
):
    other = Repository(MemoryStore(), "orders")
    plain = take(other, checkpoint, packed_below_bytes=0)
    assert len(repository.blob_sizes()) == 1 < len(other.blob_sizes())
    assert restored(packed, repository) == restored(plain, other)
    verify_savepoint(packed, repository, level="full")
    changes = diff_savepoints(plain, packed).queries[0].files
    assert (changes.added.files, changes.removed.files) == (0, 0)


def test_manifest_says_where_each_file_is_and_reads_back(packed: Manifest):
    assert manifest_json.from_json(manifest_json.to_json(packed)) == packed
    for entry in packed.queries[0].files:
        assert entry.digest is not None


def test_pack_key_follows_from_its_contents(repository: Repository, packed: Manifest):
    content = repository.store.read(pack_key(packed))
    ranges = sorted(packed.contents.values(), key=lambda entry: entry.offset or 0)
    digests = [
        hashlib.sha256(content[entry.offset : (entry.offset or 0) + entry.size_bytes]) for entry in ranges
    ]
    assert [f"sha256:{digest.hexdigest()}" for digest in digests] == [entry.digest for entry in ranges]
    named = hashlib.sha256(b"".join(digest.digest() for digest in digests)).hexdigest()
    assert pack_key(packed) == f"orders/blobs/packs/{named}"


def test_large_files_keep_blobs_of_their_own(repository: Repository, checkpoint: Checkpoint, take: Make):
    checkpoint.store.write("sources/0/large", b"l" * 5000)
    manifest = take(repository, checkpoint, packed_below_bytes=5000)
    large = manifest.queries[0].file("sources/0/large")
    assert (large.blob, large.offset) == (hashlib.sha256(b"l" * 5000).hexdigest(), None)
    assert restored(manifest, repository)["sources/0/large"] == b"l" * 5000


def test_equal_and_empty_files_share_their_place(repository: Repository, checkpoint: Checkpoint, take: Make):
    for name in ("a", "b"):
        checkpoint.store.write(f"sources/1/{name}", b"the same")
        checkpoint.store.write(f"sources/2/{name}", b"")
    manifest = take(repository, checkpoint, packed_below_bytes=BELOW)
    query = manifest.queries[0]
    assert query.file("sources/1/a").place == query.file("sources/1/b").place
    assert manifest_json.from_json(manifest_json.to_json(manifest)) == manifest
    assert restored(manifest, repository)["sources/2/b"] == b""


def test_the_next_savepoint_sends_what_is_new(
    repository: Repository, packed: Manifest, checkpoint: Checkpoint, take: Make
):
    checkpoint.store.write("sources/0/7", b"changed" * 10)
    checkpoint.commit()
    before = set(repository.blob_sizes())
    later = take(repository, checkpoint, "sp-2", previous=packed, packed_below_bytes=BELOW)
    assert len(set(repository.blob_sizes()) - before) == 1
    assert packs_of(later) > packs_of(packed)
    assert restored(later, repository)["sources/0/7"] == b"changed" * 10
    assert restored(packed, repository)["sources/0/7"] != b"changed" * 10


def test_ssts_in_a_pack_are_not_read_again(repository: Repository, a_checkpoint: Make, take: Make):
    read: list[str] = []

    class Watched(MemoryStore):
        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            read.append(key)
            return super().read(key, start=start, length=length)

    checkpoint = many_small(a_checkpoint, store=Watched())
    first = take(repository, checkpoint, packed_below_bytes=BELOW)
    read.clear()
    checkpoint.commit()
    take(repository, checkpoint, "sp-2", previous=first, packed_below_bytes=BELOW)
    assert sum("/SSTs/" in key for key in read) == 1


def test_pack_of_which_little_is_needed_is_packed_anew(
    repository: Repository, packed: Manifest, checkpoint: Checkpoint, take: Make
):
    for number in range(30):
        checkpoint.store.write(f"sources/0/{number + 1}", f"new {number} ".encode() * 40)
    later = take(repository, checkpoint, "sp-2", previous=packed, packed_below_bytes=BELOW)
    assert packs_of(later).isdisjoint(packs_of(packed))
    assert restored(packed, repository) != restored(later, repository)
    verify_savepoint(packed, repository, level="full")


def test_packs_of_many_savepoints_hold_at_most_twice_what_the_newest_needs(
    repository: Repository, a_checkpoint: Make, take: Make
):
    chances = random.Random(7)  # noqa: S311 - sizes, not secrets
    checkpoint, previous = many_small(a_checkpoint, 60), None
    for number in range(25):
        for _ in range(6):
            name, content = chances.randrange(1, 61), chances.randbytes(chances.randrange(50, 400))
            checkpoint.store.write(f"sources/0/{name}", content)
        checkpoint.commit()
        previous = take(repository, checkpoint, f"sp-{number}", previous=previous, packed_below_bytes=BELOW)
        needed = sum(entry.size_bytes for entry in previous.contents.values())
        assert sum(previous.blobs.values()) <= 2 * needed
    verify_savepoint(previous, repository, level="full")


def test_savepoint_without_packs_is_read_and_relied_on(
    repository: Repository, checkpoint: Checkpoint, take: Make
):
    old = take(repository, checkpoint, packed_below_bytes=0)
    before = set(repository.blob_sizes())
    checkpoint.store.write("sources/0/7", b"changed")
    checkpoint.store.write("sources/0/8", b"changed, too")
    later = take(repository, checkpoint, "sp-2", previous=old, packed_below_bytes=BELOW)
    assert len(set(repository.blob_sizes()) - before) == len(packs_of(later)) == 1
    assert restored(later, repository).keys() == restored(old, repository).keys()


def test_files_on_disk_are_packed_and_restored_to_disk(tmp_path: Path, a_checkpoint: Make, take: Make):
    checkpoint = many_small(a_checkpoint, 700, store=LocalStore(tmp_path / "live"))
    repository = Repository(LocalStore(tmp_path / "root"), "orders")
    manifest = take(repository, checkpoint, packed_below_bytes=BELOW)
    target = restored(manifest, repository, LocalStore(tmp_path / "target"))
    assert target == {entry.path: checkpoint.store.read(entry.path) for entry in manifest.queries[0].files}
    assert not list((tmp_path / "target").rglob(".*"))


# --- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["quick", "full"])
def test_missing_and_cut_packs_are_found(repository: Repository, packed: Manifest, level: Level):
    key = pack_key(packed)
    whole = repository.store.read(key)
    for content in (None, b"", whole[:-1]):
        repository.store.delete(key) if content is None else repository.store.write(key, content)
        words = "is missing" if content is None else "instead of"
        with pytest.raises(SavepointDamagedError, match=words):
            verify_savepoint(packed, repository, level=level)
        target = MemoryStore()
        with pytest.raises(SavepointDamagedError, match=words):
            restored(packed, repository, target)
        assert target.read("offsets/2").startswith(b"v2147483647"), "Spark must not start from it"
        with pytest.raises(SavepointDamagedError, match=words):
            export_savepoint(repository, "sp-1", MemoryStore())


def test_every_changed_byte_of_a_pack_is_found_and_names_the_file(repository: Repository, packed: Manifest):
    key = pack_key(packed)
    whole = repository.store.read(key)
    for entry in packed.contents.values():
        position = (entry.offset or 0) + entry.size_bytes // 2
        repository.store.write(key, whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        for act in (
            lambda: verify_savepoint(packed, repository, level="full"),
            lambda: restored(packed, repository),
            lambda: export_savepoint(repository, "sp-1", MemoryStore()),
        ):
            with pytest.raises(SavepointDamagedError, match=f"{entry.path} was altered"):
                act()


def test_altered_pack_is_relied_on_no_more_and_only_those_who_need_that_file_are_damaged(
    repository: Repository, packed: Manifest, checkpoint: Checkpoint, take: Make
):
    altered = packed.queries[0].file("sources/0/7")
    checkpoint.store.write("sources/0/7", b"changed" * 10)
    unconcerned = take(repository, checkpoint, "sp-2", previous=packed, packed_below_bytes=BELOW)
    position = altered.offset + 1
    whole = repository.store.read(pack_key(packed))
    repository.store.write(
        pack_key(packed), whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
    )
    with pytest.raises(SavepointDamagedError, match="sources/0/7 was altered"):
        check_savepoint(repository, "sp-1", level="full", by="ann")
    assert set(damaged_records(repository)) == {"sp-1"}
    verify_savepoint(unconcerned, repository, level="full")
    later = take(repository, checkpoint, "sp-3", previous=unconcerned, packed_below_bytes=BELOW)
    assert packs_of(later).isdisjoint(packs_of(packed))


def test_store_that_answers_a_range_short_is_no_damage(checkpoint: Checkpoint, take: Make):
    repository = Repository(Shortens(), "orders")
    with pytest.raises(StoreUnavailableError, match=r"range of .*packs.*bytes") as caught:
        restored(take(repository, checkpoint, packed_below_bytes=BELOW), repository)
    assert caught.value.retryable


def test_store_without_ranges_is_read_all_the_same(checkpoint: Checkpoint, take: Make):
    repository = Repository(WholeOnly(), "orders")
    manifest = take(repository, checkpoint, packed_below_bytes=BELOW)
    assert restored(manifest, repository)["sources/0/7"] == checkpoint.store.read("sources/0/7")
    verify_savepoint(manifest, repository, level="full")
    entry = manifest.queries[0].file("sources/0/7")
    assert repository.read_file(entry) == checkpoint.store.read("sources/0/7")


def test_crash_between_pack_and_manifest_leaves_what_the_next_take_uses_and_a_prune_frees(
    repository: Repository, checkpoint: Checkpoint, take: Make
):
    repository.store.refuse(unanswered="create orders/savepoints/")
    with pytest.raises(StoreUnavailableError):
        take(repository, checkpoint, packed_below_bytes=BELOW)
    repository.store.refuse()
    left = repository.blob_sizes()
    assert (len(left), repository.ids()) == (1, ())
    for info in list(repository.store.list("orders/takes/")):  # its lease has passed
        repository.store.delete(info.key)
    manifest = take(repository, checkpoint, "sp-2", packed_below_bytes=BELOW)
    assert repository.blob_sizes() == left
    verify_savepoint(manifest, repository, level="full")
    with hold_prune(repository, holder="test") as held:
        held.delete(savepoints=["sp-2"], blobs=left)
    assert repository.blob_sizes() == {}


def test_file_in_a_pack_needs_a_sha256(packed: Manifest):
    entry = next(one for one in packed.queries[0].files if one.offset is not None)
    query = replace(packed.queries[0], files=(replace(entry, digest=None),))
    with pytest.raises(ManifestFormatError, match="files of query totals"):
        manifest_json.to_json(replace(packed, queries=(query,)))


# --- life and death of packs -------------------------------------------------------------------


def test_pack_lives_while_one_file_in_it_is_needed(
    repository: Repository, packed: Manifest, checkpoint: Checkpoint, take: Make
):
    checkpoint.store.write("sources/0/7", b"changed" * 10)
    checkpoint.store.write("sources/0/8", b"changed, too")
    later = take(repository, checkpoint, "sp-2", previous=packed, taken_at_ms=2, packed_below_bytes=BELOW)
    assert packs_of(packed) < packs_of(later)
    prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="test")
    assert repository.ids() == ("sp-2",)
    assert set(repository.blob_sizes()) == set(later.blobs)
    verify_savepoint(later, repository, level="full")


def test_pack_that_was_left_goes_with_the_last_savepoint_that_needs_it(
    repository: Repository, packed: Manifest, checkpoint: Checkpoint, take: Make
):
    for number in range(30):
        checkpoint.store.write(f"sources/0/{number + 1}", f"new {number} ".encode() * 40)
    later = take(repository, checkpoint, "sp-2", previous=packed, taken_at_ms=2, packed_below_bytes=BELOW)
    assert packs_of(packed) <= repository.blob_sizes().keys()
    prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="test")
    assert packs_of(packed).isdisjoint(repository.blob_sizes())
    assert restored(later, repository)["sources/0/7"] == checkpoint.store.read("sources/0/7")


def test_condemned_pack_is_written_under_another_key(repository: Repository):
    files = [SmallFile.of(name, name.encode()) for name in ("a", "b")]

    def is_new(blob: str, size_bytes: int) -> bool:
        return repository.blob_sizes().get(blob) != size_bytes

    first = put_pack(repository, files, is_new=is_new)
    assert put_pack(repository, files, is_new=is_new) == first
    repository.avoid([first[0].blob])
    assert put_pack(repository, files, is_new=is_new)[0].blob == f"{first[0].blob}.1"


def test_worn_packs_are_those_of_which_less_than_half_is_needed():
    def entry(pack: str, offset: int, size_bytes: int) -> FileEntry:
        return FileEntry(
            path=f"{pack}/{offset}",
            size_bytes=size_bytes,
            blob=pack,
            digest=None,
            offset=offset,
            pack_bytes=10,
        )

    assert worn_packs([entry("a", 0, 4), entry("b", 0, 5), entry("c", 0, 3), entry("c", 3, 3)]) == {"a"}
    assert worn_packs([entry("a", 0, 4), replace(entry("a", 0, 4), path="again")]) == {"a"}


@pytest.mark.parametrize("seed", range(4))
def test_prune_keeps_what_any_savepoint_needs_and_nothing_else_whatever_came_before(
    repository: Repository, a_checkpoint: Make, take: Make, seed: int
):
    chances, checkpoint, store = random.Random(seed), many_small(a_checkpoint, 30), repository.store  # noqa: S311
    for number in range(25):
        for _ in range(chances.choice([1, 5, 25])):
            place, content = chances.randrange(1, 31), chances.randbytes(chances.randrange(300))
            checkpoint.store.write(f"sources/0/{place}", content)
        if chances.random() < 0.5:
            checkpoint.commit()
        previous = chances.choice([None, *repository.each()])
        crashes = chances.random() < 0.3
        store.fail_at(chances.randrange(1, 12) if crashes else None, lost_answer=chances.random() < 0.5)
        with contextlib.suppress(StoreUnavailableError):
            take(repository, checkpoint, f"sp-{number}", previous=previous, taken_at_ms=number)
        store.fail_at(None)
        for info in list(store.list("orders/takes/")):  # its lease has passed
            store.delete(info.key)
        if chances.random() < 0.4:
            policy = RetentionPolicy(max_count=chances.randrange(1, 5))
            prune(repository, policy, in_use=dict, holder="test")
            needed = {blob for manifest in repository.each() for blob in manifest.blobs}
            assert repository.blob_sizes().keys() == needed
        for manifest in repository.each():
            verify_savepoint(manifest, repository, level="full")


# --- savepoints of 0.1.0 -----------------------------------------------------------------------


@pytest.fixture
def old(repository: Repository, checkpoint: Checkpoint, take: Make) -> Manifest:
    """Return a savepoint as 0.1.0 has stored it: a manifest of format 1, every file a blob."""
    manifest: Manifest = take(repository, checkpoint, packed_below_bytes=0)
    document = json.loads(manifest_json.to_json(manifest)) | {"format_version": 1}
    for query in document["queries"]:
        assert (query["files"].pop("packs"), query["files"].pop("packed")) == ([], [])
    text = manifest_json.with_checksum(json.dumps(document, sort_keys=True) + "\n")
    repository.store.write("orders/savepoints/sp-1.json", text.encode())
    return manifest


def test_savepoint_of_format_1_is_listed_checked_restored_exported_and_imported(
    repository: Repository, old: Manifest, checkpoint: Checkpoint
):
    assert [one.savepoint_id for one in list_savepoints(repository)] == ["sp-1"]
    assert repository.read("sp-1") == old
    check_savepoint(repository, "sp-1", level="full", by="ann")
    found = restored(repository.read("sp-1"), repository)
    assert found == {entry.path: checkpoint.store.read(entry.path) for entry in old.queries[0].files}
    folder, other = MemoryStore(), Repository(MemoryStore(), "orders")
    export_savepoint(repository, "sp-1", folder)
    assert restored(import_savepoint(folder, other), other) == found
    assert import_savepoint(folder, repository) == old, "over itself"
    repository.store.delete(f"orders/blobs/{old.queries[0].file('sources/0/7').blob}")
    import_savepoint(folder, repository)
    check_savepoint(repository, "sp-1", level="full", by="ann")


def test_savepoint_of_format_1_is_built_on_and_goes_as_any_other(
    repository: Repository, old: Manifest, checkpoint: Checkpoint, take: Make
):
    checkpoint.commit()
    later = take(repository, checkpoint, "sp-2", previous=old, taken_at_ms=2)
    assert later.blobs.keys() & old.blobs.keys()
    derived = publish_derived(old, repository, "sp-1-fork", lambda query: query)
    before = restored(derived, repository)
    dispose_savepoint(repository, "sp-1", in_use=dict, holder="ann")
    assert restored(derived, repository) == before
    prune(repository, RetentionPolicy(max_count=1), in_use=dict, holder="test")
    assert repository.ids() == ("sp-2",)
    assert repository.blob_sizes().keys() == later.blobs.keys()
    verify_savepoint(later, repository, level="full")


# --- exchange ----------------------------------------------------------------------------------


def test_export_is_the_same_with_and_without_packs(
    tmp_path: Path, repository: Repository, packed: Manifest, checkpoint: Checkpoint, take: Make
):
    other = Repository(MemoryStore(), "orders")
    take(other, checkpoint, packed_below_bytes=0)
    export_archive(repository, "sp-1", tmp_path / "packed.tar")
    export_archive(other, "sp-1", tmp_path / "plain.tar")
    assert (tmp_path / "packed.tar").read_bytes() == (tmp_path / "plain.tar").read_bytes()


def test_import_packs_again(repository: Repository, packed: Manifest):
    folder, other = MemoryStore(), Repository(MemoryStore(), "orders")
    export_savepoint(repository, "sp-1", folder)
    imported = import_savepoint(folder, other, packed_below_bytes=BELOW)
    assert len(other.blob_sizes()) == len(packs_of(imported)) == 1
    assert restored(imported, other) == restored(packed, repository)


@pytest.mark.parametrize("how", ["missing", "cut", "altered"])
def test_import_over_the_same_savepoint_mends_its_pack(repository: Repository, packed: Manifest, how: str):
    folder, key = MemoryStore(), pack_key(packed)
    export_savepoint(repository, "sp-1", folder)
    whole = repository.store.read(key)
    repository.store.delete(key)
    if how != "missing":
        repository.store.write(key, whole[:100] if how == "cut" else whole[:100] + b"?" + whole[101:])
    with pytest.raises(SavepointDamagedError):
        check_savepoint(repository, "sp-1", level="full", by="ann")
    assert import_savepoint(folder, repository) == packed
    assert repository.store.read(key) == whole
    assert damaged_records(repository) == {}
    assert not list(repository.store.list("orders/condemned/mended")), "it has no holes"


@pytest.mark.parametrize("how", ["missing", "cut"])
def test_pack_that_was_mended_for_one_savepoint_is_relied_on_no_more(
    repository: Repository, packed: Manifest, checkpoint: Checkpoint, take: Make, how: str
):
    folder, key = MemoryStore(), pack_key(packed)
    checkpoint.store.write("sources/0/1", b"changed" * 10)
    later = take(repository, checkpoint, "sp-2", previous=packed, packed_below_bytes=BELOW)
    export_savepoint(repository, "sp-2", folder)
    whole = repository.store.read(key)
    repository.store.delete(key)
    if how == "cut":
        repository.store.write(key, whole[:100])
    import_savepoint(folder, repository)
    verify_savepoint(later, repository, level="full")
    assert set(damaged_records(repository)) == {"sp-1"}, "what only it needs is lost"
    with pytest.raises(SavepointDamagedError, match="sources/0/1 was altered"):
        restored(packed, repository)
    checkpoint.store.write("sources/0/1", b"source 0 " * 20)
    third = take(repository, checkpoint, "sp-3", previous=packed, packed_below_bytes=BELOW)
    assert packs_of(third).isdisjoint(packs_of(packed))
    verify_savepoint(third, repository, level="full")


# --- requests ----------------------------------------------------------------------------------


class Counting(MemoryStore):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def _count(self, action: str, *, writes: bool = False) -> StoreUnavailableError | None:
        if hasattr(self, "asked"):
            self.asked[action.partition(" ")[0]] += 1
        return super()._count(action, writes=writes)


def test_two_thousand_small_files_take_few_requests(a_checkpoint: Make, take: Make):
    checkpoint, repository = many_small(a_checkpoint, 2000), Repository(Counting(), "orders")
    manifest = take(repository, checkpoint, packed_below_bytes=BELOW)
    assert sum(repository.store.asked.values()) < 20
    repository.store.asked.clear()
    restored(manifest, repository)
    assert sum(repository.store.asked.values()) < 30


def test_few_small_files_are_dealt_out_to_all_threads(packed: Manifest):
    """Where the target is a service, each that is written is a request."""
    windows: list[int] = []

    def work(window: Sequence[FileEntry]) -> list[None]:
        windows.append(len(window))
        return [None for _ in window]

    assert len(list(each_window(work, list(packed.contents.values())[:40], threads=8))) == 40
    assert windows == [5] * 8


def test_ranges_far_apart_are_read_apart_and_near_ones_together():
    repository = Repository(Counting(), "orders")
    repository.store.write("orders/blobs/packs/x", bytes(2 << 20))
    repository.store.asked.clear()

    def entry(offset: int) -> FileEntry:
        return FileEntry(
            path=f"{offset}", size_bytes=10, blob="packs/x", digest=None, offset=offset, pack_bytes=2 << 20
        )

    found = read_packed(repository, [entry(1 << 20), entry(0), entry(20)])
    assert repository.store.asked["read"] == 2
    assert found == {("packs/x", offset, 10): bytes(10) for offset in (0, 20, 1 << 20)}


class Beside(MemoryStore):
    """A store where somebody else writes to a pack between a read of it and the next write."""

    theirs: bytes = b""

    def get(self, key: str, *, unless: str | None = None) -> Versioned | None:
        found = super().get(key, unless=unless)
        if "/blobs/" in key and self.theirs:
            self.write(key, self.theirs)
            self.theirs = b""
        return found


def test_imports_that_mend_one_pack_at_once_keep_what_each_has_put_back(checkpoint: Checkpoint, take: Make):
    store = Beside()
    repository, folder = Repository(store, "orders"), MemoryStore()
    packed = take(repository, checkpoint, packed_below_bytes=BELOW)
    checkpoint.store.write("sources/0/1", b"changed" * 10)
    take(repository, checkpoint, "sp-2", previous=packed, packed_below_bytes=BELOW)
    export_savepoint(repository, "sp-2", folder)
    whole = store.read(pack_key(packed))
    store.delete(pack_key(packed))
    store.theirs = whole  # the import of sp-1, which puts all of it back
    import_savepoint(folder, repository)
    assert store.read(pack_key(packed)) == whole
    verify_savepoint(packed, repository, level="full")


def test_second_mend_for_a_savepoint_lets_nobody_rely_on_the_first_ones_pack(
    repository: Repository, packed: Manifest
):
    for pack in ("packs/a", "packs/b"):
        distrust_packs(repository, packed, [pack], by="an import")
    assert condemned_blobs(repository) >= {"packs/a", "packs/b"}
