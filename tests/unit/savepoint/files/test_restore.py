from __future__ import annotations

import hashlib
import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.checkpoint.errors import LogFormatError
from airflow_flinkstyle.offsets import Offsets
from airflow_flinkstyle.savepoint.blobs.references import claim_savepoint, references
from airflow_flinkstyle.savepoint.errors import TARGET_OCCUPIED, RepositoryBusyError, SavepointDamagedError
from airflow_flinkstyle.savepoint.files.restore import Restored, restore_query, restore_savepoint
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.manifest import FileEntry
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_flinkstyle.savepoint.manifest import Manifest
    from airflow_flinkstyle.storage.base import ObjectStore

    Make = Callable[..., Any]

Repository = SavepointRepository
SEAL = b"v2147483647\n"
OURS = "empty, or restored from query q-1 and not run since"


def restored(manifest: Manifest, repository: Repository, target: ObjectStore, **options: Any) -> Restored:
    return restore_query(manifest, manifest.queries[0], repository, target, **options)


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list()}


def assert_startable(target: ObjectStore, manifest: Manifest, source: ObjectStore) -> None:
    assert contents(target) == {entry.path: source.read(entry.path) for entry in manifest.queries[0].files}


def is_sealed(target: ObjectStore) -> bool:
    """Tell whether Spark, which reads the newest offset log first, would refuse to start."""
    logs = [info.key for info in target.list("offsets/") if info.key.rpartition("/")[2].isdigit()]
    newest = max(logs, key=lambda key: int(key.rpartition("/")[2]), default=None)
    return newest is not None and target.read(newest).startswith(SEAL)


def test_restored_checkpoint_is_the_savepoint_and_nothing_else(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint, target = a_checkpoint(), MemoryStore()
    manifest = take(repository, checkpoint)
    outcome = restored(manifest, repository, target)
    assert_startable(target, manifest, checkpoint.store)
    files = manifest.queries[0].files
    written = sum(entry.size_bytes for entry in files)
    assert outcome == Restored(
        complete=True, files_written=len(files), files_kept=0, files_removed=0, bytes_written=written
    )


def test_metadata_is_the_first_file_after_the_seal_so_that_no_start_gives_the_query_another_id(
    repository: Repository, a_checkpoint: Make, take: Make
):
    keys: list[str] = []

    class Watched(MemoryStore):
        def write(self, key: str, data: bytes) -> str:
            keys.append(key)
            return super().write(key, data)

    restored(take(repository, a_checkpoint()), repository, Watched(), threads=1)
    assert keys[:2] == ["offsets/2", "metadata"]


def test_seal_says_which_restore_was_not_finished(repository: Repository, a_checkpoint: Make, take: Make):
    target = MemoryStore()
    restored(take(repository, a_checkpoint(), "sp-hot"), repository, target, complete=False)
    assert json.loads(target.read("offsets/2").removeprefix(SEAL)) == {
        "unfinished restore of savepoint": "sp-hot",
        "query id": "q-1",
        "remedy": "restore again; do not edit",
    }


def test_files_are_told_as_they_are_written(repository: Repository, a_checkpoint: Make, take: Make):
    manifest = take(repository, a_checkpoint())
    count = len(manifest.queries[0].files)
    told: list[int] = []
    restored(manifest, repository, MemoryStore(), progress=lambda done: told.append(done.files_done))
    assert told == [*range(1, count), 1]  # the newest log is written last, by itself
    told.clear()
    restore_savepoint(
        manifest, repository, lambda _: MemoryStore(), progress=lambda done: told.append(done.files_total)
    )
    assert told == [*[count - 1] * (count - 1), 1]


@pytest.mark.parametrize(("complete", "kind"), [(True, "restore"), (False, "precopy")])
def test_no_blob_is_freed_while_a_restore_runs_and_who_waits_is_told_which(
    repository: Repository, a_checkpoint: Make, take: Make, complete: bool, kind: str
):
    refused: list[str] = []

    class Busy(MemoryStore):
        def write(self, key: str, data: bytes) -> str:
            with pytest.raises(RepositoryBusyError) as busy:
                prune(repository, RetentionPolicy(), in_use=dict, holder="test", wait_s=0.0)
            refused.append(busy.value.problem)
            return super().write(key, data)

    target = Busy("next")
    manifest = take(repository, a_checkpoint())
    restored(manifest, repository, target, complete=complete, threads=1)
    assert f"{kind} intent of the restore of sp-1 to {target.uri}" in refused[0]


def test_first_write_seals_and_last_write_opens(repository: Repository, a_checkpoint: Make, take: Make):
    written: list[tuple[str, bool]] = []

    class Watched(MemoryStore):
        def write(self, key: str, data: bytes) -> str:
            written.append((key, data.startswith(SEAL)))
            return super().write(key, data)

    manifest = take(repository, a_checkpoint(batches=3))
    restored(manifest, repository, Watched())
    assert written[0] == ("offsets/2", True)
    assert written[-1] == ("offsets/2", False)


def test_second_restore_writes_nothing(repository: Repository, a_checkpoint: Make, take: Make):
    manifest, target = take(repository, a_checkpoint()), MemoryStore()
    restored(manifest, repository, target)
    before = {info.key: info.version for info in target.list()}
    count = len(manifest.queries[0].files)
    assert restored(manifest, repository, target) == Restored(
        complete=True, files_written=0, files_kept=count, files_removed=0, bytes_written=0
    )
    assert {info.key: info.version for info in target.list()} == before


def test_log_that_is_sealed_and_written_again_does_not_count_as_kept(
    repository: Repository, a_checkpoint: Make, take: Make
):
    manifest, target = take(repository, a_checkpoint()), MemoryStore()
    restored(manifest, repository, target)
    target.write("state/0/0/9.zip", b"left over")
    outcome = restored(manifest, repository, target)
    kept = len(manifest.queries[0].files) - 1
    assert (outcome.files_written, outcome.files_kept, outcome.files_removed) == (1, kept, 1)


def test_no_more_files_are_read_and_written_at_a_time_than_it_was_told(
    repository: Repository, a_checkpoint: Make, take: Make
):
    names: set[str] = set()

    class Watched(MemoryStore):
        def note(self) -> None:
            names.add(threading.current_thread().name)
            time.sleep(0.01)  # or one thread might do it all before another begins

        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            self.note()
            return super().read(key, start=start, length=length)

        def write(self, key: str, data: bytes) -> str:
            self.note()
            return super().write(key, data)

    manifest, target = take(repository, a_checkpoint()), Watched()
    for _ in ("writes", "compares"):
        names.clear()
        restored(manifest, repository, target, threads=1)
        assert len(names - {threading.current_thread().name}) == 1


def test_pre_copy_is_sealed_and_the_final_savepoint_adds_only_what_is_missing(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint, target = a_checkpoint(batches=5), MemoryStore()
    hot = take(repository, checkpoint, "sp-hot")
    count = len(hot.queries[0].files) - 1  # all but the newest log, in whose place the seal stands
    written = sum(entry.size_bytes for entry in hot.queries[0].files if entry.path != "offsets/4")
    pre_copied = Restored(
        complete=False, files_written=count, files_kept=0, files_removed=0, bytes_written=written
    )
    assert restored(hot, repository, target, complete=False) == pre_copied
    assert is_sealed(target)
    again = replace(pre_copied, files_written=0, files_kept=count, bytes_written=0)
    assert restored(hot, repository, target, complete=False) == again
    checkpoint.commit()
    final = take(repository, checkpoint, "sp-final", previous=hot)
    outcome = restored(final, repository, target)
    assert_startable(target, final, checkpoint.store)
    # logs, zip and one SST are new; metadata, source log, schema and five SSTs were there; logs, zip go
    assert (outcome.files_written, outcome.files_kept, outcome.files_removed) == (5, 8, 4 - 1)


def test_final_restore_reads_again_nothing_that_the_pre_copy_has_written_and_is_the_same(
    repository: Repository, a_checkpoint: Make, take: Make
):
    reads: list[str] = []

    class Read(MemoryStore):
        def read(self, key: str, **part: Any) -> bytes:
            reads.append(key)
            return super().read(key, **part)

    checkpoint, targets = a_checkpoint(batches=5), (Read(), Read())
    hot = take(repository, checkpoint, "sp-hot")
    for target in targets:
        restored(hot, repository, target, complete=False)
    checkpoint.commit()
    final = take(repository, checkpoint, "sp-final", previous=hot)
    found = []
    for target, precopied in zip(targets, (None, hot.queries[0]), strict=True):
        reads.clear()
        outcome = restored(final, repository, target, precopied=precopied)
        found.append((outcome, {key for key in reads if not key.startswith("offsets/")}))
        assert_startable(target, final, checkpoint.store)
    (compared, read), (known, read_again) = found
    assert compared == known
    assert read
    assert read_again == set()


def renamed(manifest: Manifest, repository: Repository, parent: str | None) -> Manifest:
    """Return a savepoint under another query id."""
    (query,) = manifest.queries
    content = b'{"id":"q-fork"}'
    entry = FileEntry(
        path="metadata",
        size_bytes=len(content),
        blob=repository.put_blob(content),
        digest=f"sha256:{hashlib.sha256(content).hexdigest()}",
    )
    files = tuple(entry if file.path == "metadata" else file for file in query.files)
    forked = replace(query, query_id="q-fork", files=files)
    return replace(manifest, savepoint_id="sp-fork", parent=parent, queries=(forked,))


def test_fork_completes_what_was_copied_ahead_of_the_savepoint_that_it_was_made_from(
    repository: Repository, a_checkpoint: Make, take: Make
):
    hot, targets = take(repository, a_checkpoint(), "sp-hot"), (MemoryStore(), MemoryStore())
    for target in targets:
        restored(hot, repository, target, complete=False)
    restored(renamed(hot, repository, "sp-hot"), repository, targets[0], precopied=hot.queries[0])
    assert targets[0].read("metadata") == b'{"id":"q-fork"}'
    assert not is_sealed(targets[0])
    with refuses(TARGET_OCCUPIED, match="an unfinished restore of query q-1"):
        restored(renamed(hot, repository, "sp-other"), repository, targets[1])


def test_complete_hot_restore_can_be_followed_by_the_final_one(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint, target = a_checkpoint(batches=5), MemoryStore()
    restored(take(repository, checkpoint, "sp-hot"), repository, target)
    checkpoint.commit(2)
    final = take(repository, checkpoint, "sp-final")
    restored(final, repository, target)
    assert_startable(target, final, checkpoint.store)


def test_rewritten_savepoint_replaces_a_restored_one(repository: Repository, a_checkpoint: Make, take: Make):
    checkpoint, target = a_checkpoint(), MemoryStore()
    manifest = take(repository, checkpoint)
    restored(manifest, repository, target)
    rewritten = checkpoint.store.read("offsets/2").replace(b'"0":12', b'"0":99')
    blob = repository.put_blob(rewritten)
    query = manifest.queries[0]
    files = tuple(
        replace(
            entry, blob=blob, digest=f"sha256:{blob}", size_bytes=len(rewritten), offset=None, pack_bytes=None
        )
        if entry.path == "offsets/2"
        else entry
        for entry in query.files
    )
    other = replace(manifest, savepoint_id="sp-2", queries=(replace(query, files=files),))
    assert restored(other, repository, target).files_written == 1
    assert target.read("offsets/2") == rewritten


def test_leftover_state_and_hidden_checksums_are_removed(
    repository: Repository, a_checkpoint: Make, take: Make, tmp_path: Path
):
    checkpoint, target = a_checkpoint(), LocalStore(tmp_path)
    manifest = take(repository, checkpoint)
    restored(manifest, repository, target, complete=False)
    for key in ("state/0/0/9.zip", "offsets/.2.crc", ".metadata.crc", "commits/.7.1234.tmp"):
        target.write(key, b"left over")
    assert restored(manifest, repository, target).files_removed == 4
    assert_startable(target, manifest, checkpoint.store)


def test_planned_batch_is_planned_in_the_restored_checkpoint(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint()
    checkpoint.plan(3)
    manifest = take(repository, checkpoint)
    carried = MemoryStore()
    for _ in range(2):
        restored(manifest, repository, carried)
        assert carried.read("offsets/3") == checkpoint.store.read("offsets/3")
    assert restored(manifest, repository, carried).files_written == 0
    carried.write("offsets/3", b"another")
    outcome = restored(manifest, repository, carried)
    assert (outcome.files_written, outcome.bytes_written) == (1, len(checkpoint.store.read("offsets/3")))
    assert carried.read("offsets/3") == checkpoint.store.read("offsets/3")


def test_planned_offsets_that_no_file_can_hold_are_a_damage(
    repository: Repository, a_checkpoint: Make, take: Make
):
    manifest, target = take(repository, a_checkpoint()), MemoryStore()
    broken = replace(manifest.queries[0], planned_offsets="v1\ud800")
    with pytest.raises(SavepointDamagedError, match="planned offsets of query totals are no text"):
        restored(replace(manifest, queries=(broken,)), repository, target)
    assert contents(target) == {}


def without_planned(manifest: Manifest) -> Manifest:
    return replace(manifest, queries=tuple(replace(one, planned_offsets=None) for one in manifest.queries))


def test_planned_batch_is_dropped_where_the_same_savepoint_is_restored_without_it(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint, target = a_checkpoint(), MemoryStore()
    checkpoint.plan(3)
    manifest = take(repository, checkpoint)
    restored(manifest, repository, target, complete=False)
    assert restored(without_planned(manifest), repository, target).files_removed == 1
    assert_startable(target, manifest, checkpoint.store)


def test_each_query_carries_its_planned_batch_where_it_has_one(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint()
    checkpoint.plan(3)
    planned = take(repository, checkpoint).queries[0]
    quiet = replace(planned, name="quiet", planned_offsets=None)
    manifest = replace(take(repository, checkpoint), queries=(planned, quiet))
    for saved, expected in ((without_planned(manifest), []), (manifest, ["totals"])):
        targets = {query.name: MemoryStore(query.name) for query in manifest.queries}
        done = restore_savepoint(saved, repository, targets.__getitem__)
        assert all(outcome.complete for outcome in done.values())
        assert done.keys() == targets.keys()
        assert [name for name, target in targets.items() if target.head("offsets/3")] == expected


class OfOneProcess(MemoryStore):
    """A target of a process that dies after so many writes to all of its targets."""

    def __init__(self, name: str, lives: list[int]) -> None:
        super().__init__(name)
        self.lives = lives

    def write(self, key: str, data: bytes) -> str:
        if not self.lives:
            raise StoreUnavailableError.during("write", self.uri, "the process was killed")
        self.lives.pop()
        return super().write(key, data)


def two_queries(repository: Repository, a_checkpoint: Make, take: Make) -> Manifest:
    checkpoint = a_checkpoint()
    checkpoint.plan(3)
    manifest: Manifest = take(repository, checkpoint)
    return replace(manifest, queries=(*manifest.queries, replace(manifest.queries[0], name="later")))


def test_no_query_starts_anew_beside_another_where_a_restore_died(
    repository: Repository, a_checkpoint: Make, take: Make
):
    """A script starts its queries one after the other, and in a folder that is empty at batch 0."""
    manifest = two_queries(repository, a_checkpoint, take)
    wanted = {*(one.path for one in manifest.queries[0].files), "offsets/3"}
    writes = 2 * (len(wanted) + 1)  # with a seal each
    for at in range(2, writes):
        lives = [1] * at
        totals, later = OfOneProcess("totals", lives), OfOneProcess("later", lives)
        targets = {"totals": totals, "later": later}
        with pytest.raises(StoreUnavailableError):
            restore_savepoint(manifest, repository, targets.__getitem__)
        assert is_sealed(later)
        assert is_sealed(totals) == (at < writes - 1)
        assert is_sealed(totals) or contents(later).keys() == wanted, "only the seal is to be replaced"
        lives += [1] * writes
        restore_savepoint(manifest, repository, targets.__getitem__)
        assert contents(totals) == contents(later)
        assert not is_sealed(totals)


def test_no_prune_gets_between_the_queries_of_a_restore(
    repository: Repository, a_checkpoint: Make, take: Make
):
    manifest = two_queries(repository, a_checkpoint, take)
    held: list[str] = []
    restore_savepoint(
        manifest,
        repository,
        MemoryStore,
        progress=lambda _: held.extend(info.key for info in repository.store.list("orders/takes/")),
    )
    assert len(held) > len(manifest.queries[0].files), "it was asked during both"
    assert len(set(held)) == 1


def test_two_queries_in_one_place_are_refused(repository: Repository, a_checkpoint: Make, take: Make):
    manifest, target = two_queries(repository, a_checkpoint, take), MemoryStore()
    with refuses(TARGET_OCCUPIED, match="it is query totals's"):
        restore_savepoint(manifest, repository, lambda _: target)
    assert contents(target) == {}


def test_another_querys_checkpoint_is_refused_and_unchanged(
    repository: Repository, a_checkpoint: Make, take: Make
):
    other = a_checkpoint(query_id="q-2")
    manifest, before = take(repository, a_checkpoint()), contents(other.store)
    with refuses(TARGET_OCCUPIED, match=f"{OURS}, found a checkpoint of query q-2"):
        restored(manifest, repository, other.store)
    assert contents(other.store) == before


def test_unfinished_restore_of_another_query_is_refused(
    repository: Repository, a_checkpoint: Make, take: Make
):
    target = MemoryStore()
    restored(take(repository, a_checkpoint(query_id="q-2"), "sp-2"), repository, target, complete=False)
    with refuses(TARGET_OCCUPIED, match=f"{OURS}, found an unfinished restore of query q-2"):
        restored(take(repository, a_checkpoint()), repository, target)


def test_folder_with_other_files_is_refused(repository: Repository, a_checkpoint: Make, take: Make):
    target = MemoryStore()
    target.write("precious.txt", b"")
    target.write("worthless.txt", b"")
    with refuses(TARGET_OCCUPIED, match=r"2 files that are no checkpoint, like precious\.txt"):
        restored(take(repository, a_checkpoint()), repository, target)


def test_refused_target_is_named_with_what_was_expected_there(
    repository: Repository, a_checkpoint: Make, take: Make
):
    target = MemoryStore("next")
    target.write("x", b"")
    with refuses(TARGET_OCCUPIED) as refused:
        restored(take(repository, a_checkpoint()), repository, target)
    assert f"{target.uri} " in refused.value.problem
    assert OURS in refused.value.problem


@pytest.mark.parametrize(
    ("logs", "found"),
    [
        ((), "0 committed batches up to -1"),
        (("commits/1", "commits/2"), "2 committed batches up to 2"),
        (("commits/2", "offsets/0"), "1 committed batches up to 2"),
        (("commits/4", "offsets/2"), "1 committed batches up to 4"),
        (("offsets/1", "offsets/2"), "0 committed batches up to -1"),
    ],
)
def test_checkpoint_whose_logs_are_not_as_a_restore_leaves_them_is_never_overwritten(
    repository: Repository, a_checkpoint: Make, take: Make, logs: tuple[str, ...], found: str
):
    manifest, target = take(repository, a_checkpoint()), MemoryStore()
    target.write("metadata", b'{"id":"q-1"}')
    for key in logs:
        target.write(key, b"v1\n{}\n{}")
    before = contents(target)
    with refuses(TARGET_OCCUPIED, match=found):
        restored(manifest, repository, target)
    assert contents(target) == before


@pytest.mark.parametrize(
    "logs", [("commits/1", "offsets/0", "offsets/1"), ("commits/2",), ("commits/0", "offsets/0")]
)
def test_older_restore_of_the_query_that_never_ran_is_replaced(
    repository: Repository, a_checkpoint: Make, take: Make, logs: tuple[str, ...]
):
    checkpoint, target = a_checkpoint(), MemoryStore()
    manifest = take(repository, checkpoint)
    target.write("metadata", b'{"id":"q-1"}')
    for key in logs:
        target.write(key, b"v1\n{}\n{}")
    restored(manifest, repository, target)
    assert_startable(target, manifest, checkpoint.store)


def test_older_restore_without_an_offset_log_is_replaced_by_the_first_batch(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint, target = a_checkpoint(batches=1), MemoryStore()
    manifest = take(repository, checkpoint)
    target.write("metadata", b'{"id":"q-1"}')
    target.write("commits/0", b"v1\n{}")
    restored(manifest, repository, target)
    assert_startable(target, manifest, checkpoint.store)


def test_metadata_that_is_no_text_is_refused(repository: Repository, a_checkpoint: Make, take: Make):
    target = MemoryStore()
    target.write("metadata", b"\xff\xfe")
    with pytest.raises(LogFormatError):
        restored(take(repository, a_checkpoint()), repository, target)


def test_seal_is_found_above_older_logs_and_beside_one_that_is_no_text(
    repository: Repository, a_checkpoint: Make, take: Make
):
    target = MemoryStore()
    for batch in range(4):
        target.write(f"offsets/{batch}", b"v1\n{}\n{}")
    target.write("offsets/4", SEAL + b'{"query id": "q-2"}')
    target.write("offsets/5", b"\xff")
    with refuses(TARGET_OCCUPIED, match="an unfinished restore of query q-2"):
        restored(take(repository, a_checkpoint()), repository, target)


def test_seal_below_the_logs_of_three_batches_is_no_unfinished_restore(
    repository: Repository, a_checkpoint: Make, take: Make
):
    target = MemoryStore()
    target.write("metadata", b'{"id":"q-1"}')
    target.write("offsets/2", SEAL + b'{"query id": "q-1"}')
    for batch in (3, 4, 5):
        target.write(f"offsets/{batch}", b"v1\n{}\n{}")
    with refuses(TARGET_OCCUPIED, match="offsets of batch 5"):
        restored(take(repository, a_checkpoint()), repository, target)


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_checkpoint_that_ran_is_never_overwritten(
    repository: Repository, a_checkpoint: Make, take: Make, batches: int
):
    checkpoint = a_checkpoint()
    manifest = take(repository, checkpoint)
    checkpoint.commit(batches)
    before = contents(checkpoint.store)
    with refuses(TARGET_OCCUPIED, match="not run since"):
        restored(manifest, repository, checkpoint.store)
    assert contents(checkpoint.store) == before


def test_restored_checkpoint_that_went_on_is_never_overwritten(
    repository: Repository, a_checkpoint: Make, take: Make
):
    target = MemoryStore()
    manifest = take(repository, a_checkpoint())
    restored(manifest, repository, target)
    for key in ("offsets/3", "commits/3"):
        target.write(key, b"v1\n{}\n{}")
    with refuses(TARGET_OCCUPIED, match="offsets of batch 3"):
        restored(manifest, repository, target)


def test_planned_first_batch_is_never_discarded(repository: Repository, a_checkpoint: Make, take: Make):
    checkpoint, target = a_checkpoint(), MemoryStore()
    manifest = take(repository, checkpoint)
    restored(manifest, repository, target)
    for key in ("offsets/3", "state/0/0/4.zip", "offsets/.3.crc"):
        target.write(key, b"poisoned")
    with refuses(TARGET_OCCUPIED, match="offsets of batch 3"):
        restored(manifest, repository, target)
    assert target.read("offsets/3") == b"poisoned"


def damaged(store: MemoryStore, key: str, how: str, at: int = 0) -> None:
    content = store.read(key)
    if how == "missing":
        store.delete(key)
    elif how == "cut":
        store.write(key, content[:-1])
    else:
        store.write(key, content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


@pytest.mark.parametrize("how", ["missing", "cut", "flipped"])
def test_every_damaged_file_is_found_by_verify_and_refused_by_restore(
    a_checkpoint: Make, take: Make, how: str
):
    checkpoint = a_checkpoint()
    words = {"missing": "is missing", "cut": "bytes instead of", "flipped": "was altered"}[how]
    manifest = take(Repository(MemoryStore(), "orders"), checkpoint, packed_below_bytes=0)
    for (blob, _, _), entry in manifest.contents.items():
        store = MemoryStore()
        repository = Repository(store, "orders")
        take(repository, checkpoint, packed_below_bytes=0)
        damaged(store, f"orders/blobs/{blob}", how)
        with pytest.raises(SavepointDamagedError, match=f"{entry.path} .*{words}"):
            verify_savepoint(manifest, repository, level="full")
        if how != "flipped":
            with pytest.raises(SavepointDamagedError, match=words):
                verify_savepoint(manifest, repository, level="quick")
        target = MemoryStore()
        with pytest.raises(SavepointDamagedError, match=f"savepoint sp-1 .*{entry.path} .*{words}"):
            restored(manifest, repository, target)
        assert is_sealed(target)


def test_all_bad_files_are_listed_at_once(a_checkpoint: Make, take: Make):
    store = MemoryStore()
    repository = Repository(store, "orders")
    manifest = take(repository, a_checkpoint())
    for blob in manifest.blobs:
        store.delete(f"orders/blobs/{blob}")
    with pytest.raises(SavepointDamagedError) as caught:
        verify_savepoint(manifest, repository, level="quick")
    assert str(caught.value).count("is missing") == len(manifest.blobs)


def test_manifest_that_contradicts_its_files_is_found(repository: Repository, a_checkpoint: Make, take: Make):
    manifest = take(repository, a_checkpoint())
    query = manifest.queries[0]
    position = replace(query.kafka["0"], offsets=Offsets.of({"orders": {0: 1}}))
    for wrong, words in (
        (replace(query, query_id="q-9"), "names query q-1, the manifest q-9"),
        (replace(query, kafka={"0": position}), "offsets of source 0"),
        (replace(query, pinned_confs={}), "pinned confs"),
        (replace(query, batch_id=1), "lists no commits/1"),
        (
            replace(query, files=tuple(e for e in query.files if "SSTs" not in e.path)),
            "found no state/0/0/SSTs",
        ),
    ):
        with pytest.raises(SavepointDamagedError, match=words):
            verify_savepoint(replace(manifest, queries=(wrong,)), repository, level="quick")


@pytest.mark.parametrize("fails", ["repository", "target"])
def test_restore_is_startable_or_sealed_whichever_call_fails(a_checkpoint: Make, take: Make, fails: str):
    checkpoint, store = a_checkpoint(), MemoryStore()
    repository = Repository(store, "orders")
    manifest = take(repository, checkpoint)
    for lost_answer in (False, True):
        for call in range(1, 200):
            target = MemoryStore()
            failing = store if fails == "repository" else target
            failing.fail_at(call, lost_answer=lost_answer)
            try:
                restored(manifest, repository, target)
            except StoreUnavailableError:
                failing.fail_at(None)
                if contents(target) and not is_sealed(target):
                    assert_startable(target, manifest, checkpoint.store)
                restored(manifest, repository, target)
            else:
                break
            assert_startable(target, manifest, checkpoint.store)
        assert call > 4
        store.fail_at(None)


@pytest.mark.parametrize("lost_answer", [False, True])
def test_older_savepoint_over_a_pre_copy_is_sealed_or_startable_whichever_call_fails(
    a_checkpoint: Make, take: Make, lost_answer: bool
):
    checkpoint = a_checkpoint(batches=6)
    repository = Repository(MemoryStore(), "orders")
    older = take(repository, checkpoint, "sp-1")
    checkpoint.commit(5)
    newer = take(repository, checkpoint, "sp-2")
    for call in range(1, 200):
        target = MemoryStore()
        restored(newer, repository, target, complete=False)
        target.fail_at(call, lost_answer=lost_answer)
        try:
            restored(older, repository, target)
        except StoreUnavailableError:
            target.fail_at(None)
            if not is_sealed(target):
                assert_startable(target, older, checkpoint.store)
            restored(older, repository, target)
        else:
            break
        assert_startable(target, older, checkpoint.store)
    assert call > 8


def test_only_claim_mode_makes_the_savepoint_the_restored_jobs(
    repository: Repository, a_checkpoint: Make, take: Make
):
    first, second = take(repository, a_checkpoint(), "sp-1"), take(repository, a_checkpoint(), "sp-2")
    targets = {"sp-1": MemoryStore("a"), "sp-2": MemoryStore("b")}
    restore_savepoint(first, repository, lambda _: targets["sp-1"])
    restore_savepoint(second, repository, lambda _: targets["sp-2"], claim_mode="claim", complete=False)
    assert is_sealed(targets["sp-2"])
    assert references(repository) == {}
    for at_once in (restore_savepoint, restore_savepoint):
        at_once(second, repository, lambda _: targets["sp-2"], claim_mode="claim")
    assert references(repository).keys() == {"sp-2"}
    (owner,) = references(repository)["sp-2"].values()
    assert (owner.by, owner.claims) == ("what was restored to memory://b", True)
    assert abs(owner.at_ms - time.time() * 1000) < 60_000
    two = replace(
        second, savepoint_id="sp-3", queries=(*second.queries, replace(second.queries[0], name="b"))
    )
    restore_savepoint(two, repository, lambda name: MemoryStore(f"to {name}"), claim_mode="claim")
    (owner,) = references(repository)["sp-3"].values()
    assert owner.by == "what was restored to memory://to totals, memory://to b"


def test_each_place_claims_a_savepoint_since_it_was_restored_there_first(repository: Repository):
    for by, at_ms in (("a", 1), ("a", 2), ("b", 3), ("b", 4)):
        claim_savepoint(repository, "sp-1", by=by, at_ms=at_ms)
    assert {one.by: one.at_ms for one in references(repository)["sp-1"].values()} == {"a": 1, "b": 3}


def test_claimed_savepoint_goes_once_a_newer_one_has_taken_its_place(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint, target = a_checkpoint(), MemoryStore("next")
    first = take(repository, checkpoint, "sp-1", taken_at_ms=1)
    restore_savepoint(first, repository, lambda _: target, claim_mode="claim")
    policy, nobody = RetentionPolicy(), dict[str, str]
    (owner,) = references(repository)["sp-1"].values()
    assert prune(repository, policy, in_use=nobody, holder="test").plan.disposed == ()
    checkpoint.commit()
    before = take(repository, checkpoint, "sp-2", taken_at_ms=2)  # another's, from before the claim
    assert prune(repository, policy, in_use=nobody, holder="test").plan.disposed == ()
    newer = take(repository, checkpoint, "sp-3", taken_at_ms=owner.at_ms + 1)
    assert prune(repository, policy, in_use=nobody, holder="test").plan.disposed == ("sp-1",)
    verify_savepoint(before, repository, level="full")
    verify_savepoint(newer, repository, level="full")
    assert_startable(target, first, checkpoint.store)


@pytest.mark.parametrize("note", ["", "{", "[]", '{"query id":', "[" * 5000])
def test_seal_that_was_cut_short_is_refused_as_nobodys(
    repository: Repository, a_checkpoint: Make, take: Make, note: str
):
    target = MemoryStore()
    target.write("offsets/2", SEAL + note.encode())
    with refuses(TARGET_OCCUPIED, match="unknown to its note"):
        restored(take(repository, a_checkpoint()), repository, target)


def test_of_a_seals_note_that_cannot_be_read_no_more_than_its_beginning_is_shown(
    repository: Repository, a_checkpoint: Make, take: Make
):
    target = MemoryStore()
    target.write("offsets/2", SEAL + b"x" * 100)
    with refuses(TARGET_OCCUPIED, match=f"unknown to its note '{'x' * 80}'"):
        restored(take(repository, a_checkpoint()), repository, target)


METADATA = "state/0/_metadata/v2/0"
SCHEMA = "state/0/_stateSchema/default/0_x"


def operator_metadata(root: str) -> bytes:
    """Return metadata that names a schema below a checkpoint, as Spark writes it for transformWithState."""
    store = {"storeName": "default", "numPartitions": 1, "stateSchemaFilePaths": [f"{root}/{SCHEMA}"]}
    fields = {"operatorInfo": {}, "stateStoreInfo": [store], "operatorPropertiesJson": "{}"}
    return f"v2\n{json.dumps(fields, separators=(',', ':'))}".encode()


@pytest.fixture
def located(a_checkpoint: Make) -> Any:  # noqa: ANN401
    """A checkpoint with a file in which Spark names the checkpoint's own place."""
    checkpoint = a_checkpoint()
    checkpoint.store.write(METADATA, operator_metadata("file:/live"))
    checkpoint.store.write(SCHEMA, b"schema")
    return checkpoint


def test_file_that_names_the_checkpoints_place_names_the_new_one_after_a_restore(
    repository: Repository,
    located: Any,  # noqa: ANN401
    take: Make,
):
    manifest, target = take(repository, located), MemoryStore("next")
    restored(manifest, repository, target)
    moved = target.read(METADATA)
    assert moved == operator_metadata(target.uri)
    assert restored(manifest, repository, target).files_written == 0
    target.write(METADATA, operator_metadata("memory://else"))  # restored elsewhere, and copied
    assert restored(manifest, repository, target).files_written == 2  # and the log, last
    assert target.read(METADATA) == moved


@pytest.mark.parametrize("how", ["missing", "flipped"])
def test_damaged_file_that_names_the_checkpoints_place_is_refused(
    repository: Repository,
    located: Any,  # noqa: ANN401
    take: Make,
    how: str,
):
    manifest, target = take(repository, located), MemoryStore()
    entry = manifest.queries[0].file(METADATA)
    assert entry is not None
    damaged(repository.store, f"orders/blobs/{entry.blob}", how, entry.offset or 0)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(SavepointDamagedError, match=METADATA) as refused:
            restored(manifest, repository, target)
        assert is_sealed(target)
        assert "unfinished restore" in refused.value.state_after
        target.write(METADATA, b"what stood there")
