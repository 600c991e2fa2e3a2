from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.checkpoint.errors import NO_COMMIT_YET, StateIncompleteError
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.errors import BATCH_MISMATCH, CAPTURE_FAILED, TakeCancelledError
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.errors import ObjectMissingError, StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_flinkstyle.savepoint.capture.copier import CaptureProgress
    from airflow_flinkstyle.storage.base import ObjectInfo

    Make = Callable[..., Any]

Repository = SavepointRepository
KAFKA = KafkaLog(cluster_id="old", topic_ids={"orders": "t-1"}, log_range={})


def test_savepoint_holds_the_newest_committed_batch_and_nothing_else(
    repository: Repository, a_checkpoint: Make, take: Make
):
    (query,) = take(repository, a_checkpoint(batches=4)).queries
    ssts = [entry.path for entry in query.files if "/SSTs/" in entry.path]
    assert len(ssts) == 4
    assert [entry.path for entry in query.files if "/SSTs/" not in entry.path] == [
        "commits/3", "metadata", "offsets/2", "offsets/3", "sources/0/0", "state/0/0/4.zip",
        "state/0/0/_metadata/schema",
    ]  # fmt: skip
    assert (query.batch_id, query.query_id, query.planned_offsets) == (3, "q-1", None)
    assert query.kafka["0"].offsets.by_topic == {"orders": {0: 13, 1: 23}}
    assert query.kafka["0"].cluster_id == "old"
    assert query.pinned_confs == {"spark.sql.shuffle.partitions": "1"}


def test_first_batch_has_no_batch_before(repository: Repository, a_checkpoint: Make, take: Make):
    manifest = take(repository, a_checkpoint(batches=1))
    verify_savepoint(manifest, repository, level="full")
    assert [entry.path for entry in manifest.queries[0].files if "offsets" in entry.path] == ["offsets/0"]


def test_planned_batch_is_kept_raw(repository: Repository, a_checkpoint: Make, take: Make):
    checkpoint = a_checkpoint(batches=2)
    checkpoint.plan(2)
    (query,) = take(repository, checkpoint).queries
    assert query.batch_id == 1
    assert query.planned_offsets == checkpoint.store.read("offsets/2").decode()
    assert query.file("offsets/2") is None


@pytest.mark.parametrize("retained", [1, 2, 3])
@pytest.mark.parametrize("is_planned", [False, True])
def test_query_of_which_spark_keeps_few_batches_is_saved_whole(
    repository: Repository, a_checkpoint: Make, take: Make, retained: int, *, is_planned: bool
):
    checkpoint = a_checkpoint(batches=6)
    if is_planned:
        checkpoint.plan(6)
    for batch in range(5 + is_planned - retained):  # as Spark deletes when it plans a batch
        checkpoint.store.delete(f"offsets/{batch}")
        checkpoint.store.delete(f"commits/{batch}")
    manifest = take(repository, checkpoint)
    verify_savepoint(manifest, repository, level="full")
    (query,) = manifest.queries
    logs = {entry.path: entry.content for entry in query.files if entry.path.startswith("offsets/")}
    assert (query.batch_id, set(logs)) == (5, {"offsets/4", "offsets/5"})
    # The log before is gone: a batch without rows stands in, for a savepoint whose planned batch is left out.
    assert (logs["offsets/4"] == logs["offsets/5"]) == (retained == 1 and is_planned)


def test_batch_that_a_running_query_has_left_behind_is_cut_as_if_it_were_the_newest(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint(batches=3)
    stopped = take(repository, checkpoint, "sp-1").queries[0]
    checkpoint.commit(2)
    checkpoint.plan(5)
    label = SavepointLabel(
        savepoint_id="sp-2", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=1, cut_id="cut-1"
    )

    def source(batch_id: int, *, runs_on: bool) -> QuerySource:
        return QuerySource(
            name="totals",
            checkpoint=checkpoint.store,
            kafka={"0": KAFKA},
            batch_id=batch_id,  # type: ignore[arg-type]
            runs_on=runs_on,
        )

    hot = take_savepoint(repository, [source(2, runs_on=True)], label)
    assert (hot.queries[0].batch_id, hot.queries[0].planned_offsets, hot.cut_id) == (2, None, "cut-1")
    assert hot.queries[0].files == stopped.files
    verify_savepoint(hot, repository, level="full")
    for batch, runs_on in ((6, True), (2, False)):
        with refuses(BATCH_MISMATCH):
            capture_query(
                checkpoint.store,
                repository,
                name="totals",
                kafka={"0": KAFKA},
                batch_id=batch,  # type: ignore[arg-type]
                runs_on=runs_on,
            )


def test_only_what_is_new_is_uploaded_and_ssts_are_not_read_again(
    repository: Repository, a_checkpoint: Make, take: Make
):
    read: list[str] = []

    class Watched(MemoryStore):
        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            read.append(key)
            return super().read(key, start=start, length=length)

    checkpoint = a_checkpoint(batches=3, store=Watched())
    first = take(repository, checkpoint, "sp-1", packed_below_bytes=0)
    stored = set(repository.blob_sizes())
    read.clear()
    checkpoint.commit()
    second = take(repository, checkpoint, "sp-2", previous=first, packed_below_bytes=0)
    assert sum("/SSTs/" in key for key in read) == 1
    assert set(repository.blob_sizes()) - stored <= {entry.blob for entry in second.queries[0].files}
    verify_savepoint(second, repository, level="full")


def test_blobs_are_listed_once_for_all_queries_and_equal_files_are_uploaded_once(a_checkpoint: Make):
    listed: list[str] = []
    written: list[str] = []

    class Watched(MemoryStore):
        def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
            listed.append(prefix)
            return super().list(prefix, after=after)

        def write(self, key: str, data: bytes) -> str:
            written.append(key)
            return super().write(key, data)

    repository = Repository(Watched(), "orders")
    queries = [
        QuerySource(name=name, checkpoint=a_checkpoint(query_id=name).store, kafka={"0": KAFKA})
        for name in ("a", "b", "c")
    ]
    label = SavepointLabel(savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=1)
    manifest = take_savepoint(repository, queries, label)
    assert listed.count("orders/blobs/") == 1
    blobs = [key for key in written if key.startswith("orders/blobs/")]
    assert len(blobs) == len(set(blobs)), "what one query has uploaded, the next one finds"
    verify_savepoint(manifest, repository, level="full")


def test_zips_of_several_stores_are_read_at_the_same_time(repository: Repository, a_checkpoint: Make):
    both = threading.Barrier(2, timeout=20)

    class Meeting(MemoryStore):
        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            if key.endswith(".zip"):
                both.wait()  # breaks if the other one is read later
            return super().read(key, start=start, length=length)

    checkpoint = a_checkpoint(batches=1, store=Meeting())
    store = checkpoint.store
    header = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{"spark.sql.shuffle.partitions":"2"}}'
    store.write("offsets/0", f'v1\n{header}\n{{"orders":{{"0":10,"1":20}}}}'.encode())
    for info in list(store.list("state/0/0/")):
        content = MemoryStore.read(store, info.key)
        store.write(info.key.replace("state/0/0/", "state/0/1/"), content)
    found = capture_query(store, repository, name="totals", kafka={"0": KAFKA})
    assert {entry.path for entry in found.files} >= {"state/0/0/1.zip", "state/0/1/1.zip"}


def test_blob_lost_since_the_previous_savepoint_is_uploaded_again(a_checkpoint: Make, take: Make):
    store = MemoryStore()
    repository, checkpoint = Repository(store, "orders"), a_checkpoint()
    first = take(repository, checkpoint, "sp-1")
    for blob in first.blobs:
        store.delete(f"orders/blobs/{blob}")
    second = take(repository, checkpoint, "sp-2", previous=first)
    verify_savepoint(second, repository, level="full")


def test_sst_of_another_query_is_not_taken_for_the_same(
    repository: Repository, a_checkpoint: Make, take: Make
):
    first = take(repository, a_checkpoint(query_id="q-1"), "sp-1")
    second = take(repository, a_checkpoint(query_id="q-2"), "sp-2", previous=first)
    verify_savepoint(second, repository, level="full")


def test_query_without_a_commit_has_its_own_error(repository: Repository, a_checkpoint: Make, take: Make):
    with refuses(NO_COMMIT_YET):
        take(repository, a_checkpoint(batches=0))
    assert repository.ids() == ()


def test_file_that_vanishes_makes_the_capture_start_over_with_a_newer_batch(
    repository: Repository, a_checkpoint: Make, take: Make
):
    class Vanishing(MemoryStore):
        vanished = False

        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            if "/SSTs/" in key and not self.vanished:
                self.vanished = True
                checkpoint.commit(2)
                raise ObjectMissingError.at(self.uri, key)
            return super().read(key, start=start, length=length)

    checkpoint = a_checkpoint(batches=3, store=Vanishing())
    manifest = take(repository, checkpoint)
    assert checkpoint.store.vanished
    assert manifest.queries[0].batch_id == 4
    verify_savepoint(manifest, repository, level="full")


def test_checkpoint_that_keeps_changing_ends_in_a_retryable_error(repository: Repository, a_checkpoint: Make):
    class Changing(MemoryStore):
        def read(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
            if "/SSTs/" in key:
                raise ObjectMissingError.at(self.uri, key)
            return super().read(key, start=start, length=length)

    store = a_checkpoint(store=Changing()).store
    with refuses(CAPTURE_FAILED, match="within 2 attempts") as caught:
        capture_query(store, repository, name="totals", kafka={"0": KAFKA}, attempts=2)
    assert caught.value.retryable


def test_stopped_checkpoint_with_a_missing_file_names_it(repository: Repository, a_checkpoint: Make):
    store = a_checkpoint().store
    lost = next(info.key for info in store.list("state/0/0/SSTs/"))
    store.delete(lost)
    with pytest.raises(StateIncompleteError, match=lost.rpartition("/")[2]):
        capture_query(store, repository, name="totals", kafka={"0": KAFKA}, attempts=2)


def test_demanded_batch_must_be_the_newest(repository: Repository, a_checkpoint: Make):
    store = a_checkpoint(batches=3).store
    with refuses(BATCH_MISMATCH, match="batch 1, found 2"):
        capture_query(store, repository, name="totals", kafka={"0": KAFKA}, batch_id=1)  # type: ignore[arg-type]


def test_topic_that_joined_since_the_last_word_is_saved_without_an_id(
    repository: Repository, a_checkpoint: Make
):
    known = KafkaLog(cluster_id="old", topic_ids={"gone": "t-0"}, log_range={})
    saved = capture_query(a_checkpoint().store, repository, name="totals", kafka={"0": known})
    assert saved.kafka["0"].cluster_id == "old"
    assert saved.kafka["0"].topic_ids == {"orders": None}
    assert saved.kafka["0"].offsets.topics == {"orders"}


@pytest.mark.parametrize(
    "offset",
    ['{"orders":{"0":17}}', '{"orders":{"0":17,"1":4}}', '{"a":{"0":1},"b":{"3":2}}', "{}", "17", '"x"', "-"],
)
def test_source_is_kafka_s_by_what_its_driver_says_and_never_by_the_look_of_its_offsets(
    repository: Repository, a_checkpoint: Make, offset: str
):
    store = a_checkpoint().store
    for batch in (1, 2):
        store.write(f"offsets/{batch}", store.read(f"offsets/{batch}") + f"\n{offset}".encode())
    saved = capture_query(store, repository, name="totals", kafka={"0": KAFKA})
    assert set(saved.kafka) == {"0"}
    opaque = capture_query(store, repository, name="totals", kafka={})
    assert opaque.kafka == {}
    logs = {entry.path: repository.read_file(entry) for entry in opaque.files if "offsets" in entry.path}
    assert logs == {path: store.read(path) for path in ("offsets/1", "offsets/2")}
    # Nobody knows: what looks like Kafka's is guarded as such, without ids.
    unknown = capture_query(store, repository, name="totals", kafka=None).kafka
    assert unknown["0"].cluster_id is None
    assert unknown["0"].topic_ids == {"orders": None}


def test_cancelled_take_leaves_no_savepoint(repository: Repository, a_checkpoint: Make, take: Make):
    checkpoint = a_checkpoint()
    files = 3 + 7
    for calls in range(files + 1):
        answers = iter([False] * calls + [True] * 100)
        with pytest.raises(TakeCancelledError):
            take(repository, checkpoint, cancelled=lambda answers=answers: next(answers))
        assert repository.ids() == ()
    assert take(repository, checkpoint).savepoint_id in repository.ids()


def test_progress_counts_every_file(repository: Repository, a_checkpoint: Make, take: Make):
    seen: list[CaptureProgress] = []
    manifest = take(repository, a_checkpoint(), progress=seen.append)
    assert [step.files_done for step in seen] == list(range(1, len(manifest.queries[0].files) + 1))
    assert seen[-1].files_total == seen[-1].files_done
    assert seen[-1].bytes_done == manifest.total_bytes
    assert {step.bytes_total for step in seen} == {manifest.total_bytes}


def test_every_uploaded_blob_is_told_before_it_exists(repository: Repository, a_checkpoint: Make):
    checkpoint = a_checkpoint()
    told: list[tuple[str, bool]] = []

    def capture() -> None:
        capture_query(
            checkpoint.store,
            repository,
            name="totals",
            kafka={"0": KAFKA},
            uploaded=lambda blob: told.append((blob, blob in repository.blob_sizes())),
        )

    capture()
    assert {blob for blob, _ in told} == set(repository.blob_sizes())
    assert not any(existed for _, existed in told)
    told.clear()
    capture()
    assert told == []


def test_repeated_take_returns_the_savepoint_that_exists(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint()
    first = take(repository, checkpoint)
    checkpoint.commit()
    assert take(repository, checkpoint, taken_at_ms=2) == first


@pytest.mark.parametrize("names", [[], [""], ["a", "a"]])
def test_queries_need_names_of_their_own(repository: Repository, a_checkpoint: Make, names: list[str]):
    store = a_checkpoint().store
    sources = [QuerySource(name=name, checkpoint=store, kafka={"0": KAFKA}) for name in names]
    label = SavepointLabel(savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=1)
    with pytest.raises(BadInputError, match="name of its own"):
        take_savepoint(repository, sources, label)


@pytest.mark.parametrize("lost_answer", [False, True])
def test_savepoint_is_whole_or_absent_whichever_call_fails(a_checkpoint: Make, take: Make, lost_answer: bool):
    checkpoint = a_checkpoint()
    failures = 0
    for call in range(1, 200):
        store = MemoryStore()
        repository = Repository(store, "orders")
        store.fail_at(call, lost_answer=lost_answer)
        try:
            take(repository, checkpoint)
        except StoreUnavailableError:
            failures += 1
        else:
            break
        store.fail_at(None)
        for savepoint_id in repository.ids():
            verify_savepoint(repository.read(savepoint_id), repository, level="full")
        verify_savepoint(take(repository, checkpoint), repository, level="full")
    assert failures > 8


def test_failing_checkpoint_store_leaves_no_savepoint(a_checkpoint: Make, take: Make, repository: Repository):
    checkpoint = a_checkpoint(store=MemoryStore())
    for call in range(1, 200):
        checkpoint.store.fail_at(call)
        try:
            take(repository, checkpoint)
        except StoreUnavailableError:
            assert repository.ids() == ()
        else:
            break
    else:
        pytest.fail("the take never got through")
    assert call > 10


def test_large_local_files_are_streamed_and_equal(
    repository: Repository, a_checkpoint: Make, take: Make, tmp_path: Path
):
    checkpoint = a_checkpoint(store=LocalStore(tmp_path / "live"))
    large = next(info.key for info in checkpoint.store.list("state/0/0/SSTs/"))
    (tmp_path / "live" / large).write_bytes(b"large" * 500_000)
    repository = Repository(LocalStore(tmp_path / "root"), "orders")
    manifest = take(repository, checkpoint)
    entry = manifest.queries[0].file(large)
    assert entry is not None
    assert entry.size_bytes == 2_500_000
    verify_savepoint(manifest, repository, level="full")
