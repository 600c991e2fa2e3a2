from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.savepoint.blobs import garbage_collection
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.blobs.needs import Needs
from airflow_flinkstyle.savepoint.blobs.prune_slot import read_slot
from airflow_flinkstyle.savepoint.blobs.references import Reference, claim_savepoint, pin, pins, unpin
from airflow_flinkstyle.savepoint.errors import (
    SAVEPOINT_PROTECTED,
    ManifestFormatError,
    RepositoryBusyError,
    SavepointMissingError,
)
from airflow_flinkstyle.savepoint.files.verified import record_verified, verified_records
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.manifest_json import with_checksum
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.dispose import dispose_savepoint
from airflow_flinkstyle.savepoint.retention.policy import Candidate, RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune, read_contents
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.versions import Versioning
from airflow_flinkstyle.wording import size
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.manifests import manifests_of
from tests.unit.clocks import SleptClock
from tests.unit.effort import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.savepoint.retention.prune import PruneReport

    Make = Callable[..., Any]

Repository = SavepointRepository


def nobody() -> dict[str, str]:
    return {}


def prune_to(repository: Repository, max_count: int | None = None, **changes: Any) -> PruneReport:
    arguments = {"in_use": nobody, "holder": "a test", "wait_s": 0.0, "lease_s": 0.0, **changes}
    policy = arguments.pop("policy", RetentionPolicy(max_count=max_count))
    return prune(repository, policy, **arguments)


def dispose(repository: Repository, savepoint_id: str, **changes: Any) -> Any:  # noqa: ANN401
    arguments = {"in_use": nobody, "holder": "a test", "wait_s": 0.0, "lease_s": 0.0, **changes}
    return dispose_savepoint(repository, savepoint_id, **arguments)


@pytest.fixture
def three(repository: Repository, a_checkpoint: Make, take: Make) -> Repository:
    """sp-1, sp-2 and sp-3, each with one SST more than the one before."""
    checkpoint, previous = a_checkpoint(batches=1), None
    for number in (1, 2, 3):
        checkpoint.commit()
        previous = take(repository, checkpoint, f"sp-{number}", taken_at_ms=number, previous=previous)
    return repository


def check(repository: Repository, savepoint_id: str) -> None:
    verified = verify_savepoint(repository.read(savepoint_id), repository, level="quick")
    record_verified(repository, verified, at_ms=5)


def require_all_whole(repository: Repository) -> None:
    for manifest in manifests_of(repository):
        verify_savepoint(manifest, repository, level="full")


def test_prune_keeps_the_newest_and_frees_exactly_what_they_do_not_need(three: Repository):
    three.put_blob(b"of a take that never ended")
    needed_then = dict(three.blob_sizes())
    report = prune_to(three, 2)
    assert report.plan.disposed == ("sp-1",)
    assert sorted(m.savepoint_id for m in manifests_of(three)) == ["sp-2", "sp-3"]
    needed = {blob for manifest in manifests_of(three) for blob in manifest.blobs}
    assert three.blob_sizes().keys() == needed
    freed = needed_then.keys() - needed
    assert (report.freed_blobs, report.freed_bytes) == (len(freed), sum(needed_then[blob] for blob in freed))
    assert (report.plan.job, report.dry_run) == ("orders", False)
    assert [decision.savepoint_id for decision in report.plan.decisions] == ["sp-3", "sp-2", "sp-1"]
    require_all_whole(three)
    assert prune_to(three, 2).freed_blobs == 0


def test_dry_run_says_the_same_and_changes_nothing(three: Repository):
    before = dict(three.blob_sizes())
    with hold_intent(three, "take", holder="a running take"):
        wanted = prune_to(three, 1, dry_run=True)
    assert three.blob_sizes() == before
    assert len(manifests_of(three)) == 3
    done = prune_to(three, 1)
    assert wanted == replace(done, dry_run=True)
    told = f"1 savepoints kept, 2 disposed of; {done.freed_blobs} blobs of {size(done.freed_bytes)}"
    assert wanted.as_markdown() == f"{done.plan.as_markdown()}\n\n{told} would be freed."
    assert done.as_markdown() == f"{done.plan.as_markdown()}\n\n{told} were freed."


def test_pinned_used_and_verified_ones_stay(three: Repository):
    pin(three, "sp-1", reason="audit", by="ann", at_ms=7)
    check(three, "sp-2")
    report = prune_to(three, 1)
    assert report.plan.disposed == ()
    assert "| sp-1 | keep | pinned by ann: audit |" in report.as_markdown()
    unpin(three, "sp-1")
    unpin(three, "sp-1")
    report = prune_to(three, 1, in_use=lambda: {"sp-1": "generation 3 runs from it"})
    assert "in use: generation 3 runs from it" in report.as_markdown()
    assert prune_to(three, 1).plan.disposed == ("sp-1",)


def test_who_relies_on_a_savepoint_is_asked_when_nobody_can_begin_to_any_more(three: Repository):
    asked: list[str] = []

    def in_use() -> dict[str, str]:
        with (
            pytest.raises(RepositoryBusyError, match="a test"),
            hold_intent(three, "take", holder="a late take", wait_s=0.0, poll_s=0.01),
        ):
            pass
        asked.append("held")
        return {"sp-1": "a run"}

    assert prune_to(three, 1, in_use=in_use, lease_s=60.0).plan.disposed == ("sp-2",)
    assert asked == ["held"]
    assert prune_to(three, 1, in_use=lambda: {"sp-1": "a run"}, dry_run=True).plan.disposed == ()


@pytest.mark.parametrize(("told", "waited_s"), [({"wait_s": 1.0}, 1.0), ({}, 300.0)])
def test_prune_waits_for_a_take_as_long_as_it_is_told_or_for_five_minutes(
    three: Repository, told: dict[str, float], waited_s: float
):
    clock = SleptClock()
    began_s = clock.now_s
    with (
        hold_intent(three, "take", holder="a running take"),
        pytest.raises(RepositoryBusyError, match=f"within {waited_s:g} s, found: .*a running take"),
    ):
        prune(three, RetentionPolicy(max_count=1), in_use=nobody, holder="a test", clock=clock, **told)
    assert clock.now_s - began_s == waited_s


def test_prune_may_be_given_up_after_the_lease_that_it_was_told(three: Repository):
    found: list[float] = []

    def in_use() -> dict[str, str]:
        slot = read_slot(three)
        assert slot is not None
        found.append(slot.record.lease_s)
        return {}

    prune_to(three, in_use=in_use, lease_s=45.0)
    assert found == [45.0]


def test_savepoints_of_one_moment_are_told_by_their_ids(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint()
    for savepoint_id in ("sp-b", "sp-c", "sp-a"):
        take(repository, checkpoint, savepoint_id, taken_at_ms=7)
    decisions = prune_to(repository, 2).plan.decisions
    assert [decision.savepoint_id for decision in decisions] == ["sp-c", "sp-b", "sp-a"]
    contents = read_contents(repository, Needs(repository), {})
    assert [candidate.savepoint_id for candidate in contents.candidates] == ["sp-c", "sp-b"]


def test_savepoint_older_than_allowed_goes_by_the_clock_of_now(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint, now_ms = a_checkpoint(), int(time.time() * 1000)
    for savepoint_id, age_s in (("sp-old", 7_200), ("sp-young", 3_000), ("sp-new", 0)):
        take(repository, checkpoint, savepoint_id, taken_at_ms=now_ms - age_s * 1000)
    policy = RetentionPolicy(max_age_s=3_600)
    done = prune(repository, policy, in_use=nobody, holder="a test", wait_s=0.0, lease_s=0.0)
    assert done.plan.disposed == ("sp-old",)


def test_age_is_counted_in_milliseconds_of_the_epoch(repository: Repository, a_checkpoint: Make, take: Make):
    now_ms, age_s = 1_790_000_000_000, 3_600
    checkpoint = a_checkpoint()
    for savepoint_id, older_ms in (("sp-old", 1), ("sp-just-so", 0), ("sp-new", -1)):
        take(repository, checkpoint, savepoint_id, taken_at_ms=now_ms - age_s * 1000 - older_ms)
    clock = SleptClock()
    clock.at_ms = now_ms
    done = prune_to(repository, None, policy=RetentionPolicy(max_age_s=age_s), dry_run=True, clock=clock)
    assert done.plan.disposed == ("sp-old",)


def test_savepoints_are_read_the_newest_first_whatever_their_ids(
    repository: Repository, a_checkpoint: Make, take: Make
):
    checkpoint = a_checkpoint()
    for savepoint_id, taken_at_ms in (("sp-b", 3), ("sp-a", 1), ("sp-c", 2)):
        take(repository, checkpoint, savepoint_id, taken_at_ms=taken_at_ms)
    candidates = read_contents(repository, Needs(repository), {}).candidates
    assert [one.savepoint_id for one in candidates] == ["sp-b", "sp-c", "sp-a"]


def test_what_is_known_of_each_savepoint_is_read(three: Repository):
    pin(three, "sp-1", reason="audit", by="ann", at_ms=7)
    check(three, "sp-2")
    claim_savepoint(three, "sp-3", by="a run", at_ms=9)
    newest = three.read("sp-3").blobs.keys() - three.read("sp-2").blobs.keys()
    three.delete_blob(min(newest))
    found = {
        one.savepoint_id: one for one in read_contents(three, Needs(three), {"sp-2": "a job"}).candidates
    }
    owner = Reference(
        need="restored", by="a run", reason="it was restored in claim mode", at_ms=9, claims=True
    )
    known = {
        "missing_blobs": 0,
        "verified": None,
        "pinned": None,
        "in_use": None,
        "owned": None,
        "taken_from_generation": 1,
        "damaged": False,
    }
    assert found == {
        "sp-1": Candidate(savepoint_id="sp-1", taken_at_ms=1, **{**known, "pinned": "by ann: audit"}),
        "sp-2": Candidate(
            savepoint_id="sp-2", taken_at_ms=2, **{**known, "verified": "quick", "in_use": "a job"}
        ),
        "sp-3": Candidate(
            savepoint_id="sp-3",
            taken_at_ms=3,
            **{**known, "missing_blobs": 1, "owned": owner},
        ),
    }


def test_blob_of_another_size_than_the_manifest_says_counts_as_missing(three: Repository):
    newest = three.read("sp-3").blobs.keys() - three.read("sp-2").blobs.keys()
    three.store.write(f"orders/blobs/{min(newest)}", b"other")
    (first, *others) = read_contents(three, Needs(three), {}).candidates
    assert (first.savepoint_id, first.missing_blobs) == ("sp-3", 1)
    assert not any(one.missing_blobs for one in others)


def test_what_was_noted_about_a_savepoint_goes_with_it(three: Repository):
    check(three, "sp-1")
    check(three, "sp-3")
    prune_to(three, 1)
    assert verified_records(three).keys() == {"sp-3"}


def test_pin_needs_a_reason_and_a_savepoint(three: Repository):
    with pytest.raises(BadInputError, match="a reason"):
        pin(three, "sp-1", reason=" ", by="ann", at_ms=7)
    with pytest.raises(SavepointMissingError):
        pin(three, "sp-9", reason="audit", by="ann", at_ms=7)
    assert pins(three) == {}


def test_manifest_that_cannot_be_read_keeps_every_blob(three: Repository):
    text = three.store.read("orders/savepoints/sp-1.json")
    three.store.write("orders/savepoints/sp-1.json", text[:-20])
    blobs = three.blob_sizes()
    with pytest.raises(ManifestFormatError, match=r"orders/savepoints/sp-1\.json"):
        prune_to(three, 1)
    assert three.blob_sizes() == blobs


def test_dispose_frees_only_what_nothing_else_needs(three: Repository):
    orphan = three.put_blob(b"of a take that never ended")
    disposed = dispose(three, "sp-2")
    assert disposed.freed_blobs > 0
    assert orphan in three.blob_sizes(), "an orphan is the next prune's"
    require_all_whole(three)
    assert {m.savepoint_id for m in manifests_of(three)} == {"sp-1", "sp-3"}


@pytest.mark.parametrize(
    ("protection", "match"),
    [("pinned", "pinned by ann: audit"), ("in_use", "a run"), ("last_good", "last complete and verified")],
)
def test_protected_savepoint_goes_only_despite_its_protection_by_name(
    three: Repository,
    protection: Any,  # noqa: ANN401
    match: str,
):
    used = nobody
    if protection == "pinned":
        pin(three, "sp-1", reason="audit", by="ann", at_ms=7)
    elif protection == "in_use":
        used = lambda: {"sp-1": "a run"}  # noqa: E731
    else:
        check(three, "sp-1")
    others = {"pinned", "in_use", "last_good"} - {protection}
    with refuses(SAVEPOINT_PROTECTED, match=match):
        dispose(three, "sp-1", in_use=used, despite=others)
    assert three.find("sp-1") is not None
    dispose(three, "sp-1", in_use=used, despite={protection})
    assert three.find("sp-1") is None
    assert pins(three) == {}


def test_last_complete_savepoint_is_not_disposed_of_beside_damaged_ones(three: Repository):
    dispose(three, "sp-1")
    newest = three.read("sp-3").blobs.keys() - three.read("sp-2").blobs.keys()
    three.delete_blob(min(newest))
    with refuses(SAVEPOINT_PROTECTED, match="last complete one"):
        dispose(three, "sp-2")
    dispose(three, "sp-3")


def test_second_dispose_of_the_same_finds_none(three: Repository):
    dispose(three, "sp-1")
    with pytest.raises(SavepointMissingError):
        dispose(three, "sp-1")


def test_nothing_is_disposed_of_while_a_restore_runs(three: Repository):
    with hold_intent(three, "restore", holder="a driver"):
        for attempt in (lambda: dispose(three, "sp-1"), lambda: prune_to(three, 1)):
            with pytest.raises(RepositoryBusyError, match="restore intent of a driver"):
                attempt()
    assert len(manifests_of(three)) == 3


def test_blobs_are_condemned_some_at_a_time_so_that_a_dead_prune_leaves_a_short_list(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(garbage_collection, "_BATCH", 3)
    lists = []
    write = repository.store.write

    def watched(key: str, data: bytes) -> str:
        lists.append(len(json.loads(data)["blobs"]))
        return write(key, data)

    blobs = [repository.put_blob(str(number).encode()) for number in range(8)]
    monkeypatch.setattr(repository.store, "write", watched)
    assert prune_to(repository).freed_blobs == len(blobs)
    assert lists == [3, 3, 2]
    assert [info.key for info in repository.store.list()] == ["orders/prune.json"]


@pytest.mark.parametrize("lost_answer", [False, True])
@pytest.mark.parametrize("act", [lambda r: prune_to(r, 1), lambda r: dispose(r, "sp-2")])
def test_every_savepoint_is_whole_or_absent_whichever_call_of_a_prune_fails(
    a_checkpoint: Make, take: Make, act: Callable[[Repository], object], lost_answer: bool
):
    failures = 0
    for call in range(1, 200):
        store = MemoryStore()
        repository = Repository(store, "orders")
        checkpoint = a_checkpoint(batches=1)
        for number in (1, 2, 3):
            take(repository, checkpoint, f"sp-{number}", taken_at_ms=number)
            checkpoint.commit()
        store.fail_at(call, lost_answer=lost_answer)
        try:
            act(repository)
        except StoreUnavailableError:
            failures += 1
        else:
            if store.calls < call:
                break
        store.fail_at(None)
        require_all_whole(repository)
        assert repository.find("sp-3") is not None
        with hold_intent(repository, "take", holder="the next take", publishes="sp-4", poll_s=0.01):
            pass
        take(repository, checkpoint, "sp-4", taken_at_ms=4)
        require_all_whole(repository)
    assert failures > 10


def test_pruning_grows_linearly_and_lists_each_kind_once(a_checkpoint: Make, take: Make):
    class Counting(MemoryStore):
        lists = 0

        def list(self, prefix: str = "", *, after: str = "") -> Any:  # noqa: ANN401
            self.lists += 1
            return super().list(prefix, after=after)

    def cost(count: int) -> tuple[int, int]:
        store = Counting()
        repository = Repository(store, "orders")
        text = example.decode()
        for number in range(count):
            changed = text.replace('"sp-1"', f'"sp-{number:05}"').replace(
                '"taken_at_ms": 1', f'"taken_at_ms": {number}'
            )
            store.write(f"orders/savepoints/sp-{number:05}.json", with_checksum(changed).encode())
        for info in source.store.list("orders/blobs/"):
            store.write(info.key, source.store.read(info.key))
        with counted() as effort:
            prune_to(repository, 10)
        assert len(manifests_of(repository)) == 10
        return effort.calls, store.lists

    source = Repository(MemoryStore(), "orders")
    take(source, a_checkpoint(batches=1), "sp-1")
    example = source.store.read("orders/savepoints/sp-1.json")
    few_calls, few_lists = cost(500)
    many_calls, many_lists = cost(2000)
    assert many_lists == few_lists
    assert few_calls > 500
    assert many_calls < 4 * few_calls * 1.5, "more than linear"


def test_bucket_that_keeps_versions_frees_nothing_until_they_expire(
    three: Repository, monkeypatch: pytest.MonkeyPatch
):
    usual = prune_to(three, max_count=1, dry_run=True)
    assert (usual.freed_bytes > 0, usual.noncurrent_bytes) == (True, 0)
    days: list[int | None] = [None, 30, 30]
    monkeypatch.setattr(
        MemoryStore, "versioning", lambda _: Versioning(expire_days=days.pop(0)), raising=False
    )
    gone = dispose(three, "sp-1")
    assert (gone.freed_bytes, gone.noncurrent_bytes > 0) == (0, True)
    report = prune_to(three, max_count=1)
    assert (report.freed_bytes, report.noncurrent_bytes > 0) == (0, True)
    assert "were deleted, and 0 bytes freed so far." in report.as_markdown()
    assert report.as_markdown().endswith("its lifecycle rule deletes them after 30 days.")
