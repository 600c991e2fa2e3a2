"""A take beside other takes, prunes and clocks, and what it leaves when it is given up."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import ErrorKind, FlinkstyleError
from airflow_flinkstyle.savepoint.blobs.garbage_collection import hold_prune
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.capture import take as taking
from airflow_flinkstyle.savepoint.errors import (
    TAKE_TIMED_OUT,
    RepositoryBusyError,
    SavepointError,
    TakeCancelledError,
)
from airflow_flinkstyle.savepoint.files.verify import verify_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.retention.policy import RetentionPolicy
from airflow_flinkstyle.savepoint.retention.prune import prune
from airflow_flinkstyle.storage.local import LocalStore
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.manifests import manifests_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_flinkstyle.storage.base import ObjectStore
    from airflow_flinkstyle.storage.errors import StoreUnavailableError

    Make = Callable[..., Any]

Repository = SavepointRepository
ROOT = Path(__file__).parents[3]


def contents(store: ObjectStore) -> dict[str, bytes]:
    return {info.key: store.read(info.key) for info in store.list()}


def require_whole(repository: Repository) -> None:
    for manifest in manifests_of(repository):
        verify_savepoint(manifest, repository, level="full")


def prune_to(repository: Repository, count: int) -> None:
    prune(repository, RetentionPolicy(max_count=count), in_use=dict, holder="a prune", wait_s=0.0)


def yes_after(questions: int) -> Callable[[], bool]:
    """Answer no so many times, then yes; asked by several threads."""
    answers, lock = itertools.chain([False] * questions, itertools.repeat(True)), threading.Lock()

    def answer() -> bool:
        with lock:
            return next(answers)

    return answer


def test_take_cancelled_at_any_moment_leaves_blobs_that_the_next_prune_frees(a_checkpoint: Make, take: Make):
    checkpoint = a_checkpoint()
    repository = Repository(MemoryStore(), "orders")
    for questions in itertools.count():
        try:
            take(repository, checkpoint, cancelled=yes_after(questions))
        except TakeCancelledError:
            left = contents(repository.store).keys() - {"orders/prune.json"}
            assert all(key.startswith("orders/blobs/") for key in left)
            prune_to(repository, 1)
            assert not repository.blob_sizes()
        else:
            break
    assert questions > 8


def test_prune_after_a_cancelled_take_leaves_what_a_savepoint_needs(a_checkpoint: Make, take: Make):
    checkpoint = a_checkpoint()
    repository = Repository(MemoryStore(), "orders")
    first = take(repository, checkpoint, "sp-1")
    checkpoint.commit(2)
    with pytest.raises(TakeCancelledError):
        take(repository, checkpoint, "sp-2", cancelled=yes_after(8))
    prune_to(repository, 1)
    assert set(repository.blob_sizes()) == set(first.blobs)
    verify_savepoint(first, repository, level="full")


def test_take_that_fails_beside_another_leaves_what_that_one_counts_on(a_checkpoint: Make, take: Make):
    """The other one may have counted on them: it saw them in its listing."""
    checkpoint, other = a_checkpoint(), []
    repository = Repository(MemoryStore(), "orders")

    def cancelled() -> bool:
        if repository.blob_sizes() and not other:
            with hold_intent(Repository(repository.store, "orders"), "take", holder="another"):
                other.append(True)
                take_and_cancel()
        return False

    def take_and_cancel() -> None:
        with pytest.raises(TakeCancelledError):
            take(Repository(repository.store, "orders"), checkpoint, "sp-2", cancelled=lambda: True)

    manifest = take(repository, checkpoint, "sp-1", cancelled=cancelled)
    verify_savepoint(manifest, repository, level="full")


# --- prune meanwhile -----------------------------------------------------------------------------


class Interleaved(MemoryStore):
    """Does something else just before one of its calls."""

    def __init__(self, call: int, act: Callable[[MemoryStore], None]) -> None:
        super().__init__()
        self._at, self._act = call, act

    def _count(self, action: str, *, writes: bool = False) -> StoreUnavailableError | None:
        if self.calls + 1 == self._at:
            self._at = 0
            self._act(self)
        return super()._count(action, writes=writes)


def free_everything(store: MemoryStore, *, wait_s: float = 0.0) -> None:
    """Prune as much as a prune may: every blob that no savepoint needs."""
    repository = Repository(store, "orders")
    with (
        contextlib.suppress(RepositoryBusyError),
        hold_prune(repository, holder="prune", wait_s=wait_s, poll_s=0.001) as held,
    ):
        needed = {blob for manifest in repository.each() for blob in manifest.blobs}
        held.delete(savepoints=(), blobs=repository.blob_sizes().keys() - needed)


def test_prune_just_before_any_call_of_a_take_costs_nothing(a_checkpoint: Make, take: Make):
    checkpoint = a_checkpoint(batches=2)
    for call in itertools.count(1):
        store = Interleaved(call, free_everything)
        manifest = take(Repository(store, "orders"), checkpoint)
        verify_savepoint(manifest, Repository(store, "orders"), level="full")
        if store._at:
            break
    assert call > 15


def test_take_that_froze_beyond_its_lease_is_whole_or_absent(
    a_checkpoint: Make, take: Make, monkeypatch: pytest.MonkeyPatch
):
    """Whichever call it froze in, a prune gave its intent up meanwhile and freed what it had uploaded."""
    short = partial(hold_intent, lease_s=0.0)  # expired for whoever looks twice
    monkeypatch.setattr(taking, "hold_intent", short)
    checkpoint = a_checkpoint(batches=1)
    made = refused = 0
    for call in itertools.count(1):
        store = Interleaved(call, partial(free_everything, wait_s=0.2))
        repository = Repository(store, "orders")
        try:
            take(repository, checkpoint)
        except SavepointError:
            assert repository.ids() == () or repository.find("sp-1") is None
            refused += 1
        else:
            made += 1
        for manifest in manifests_of(repository):
            verify_savepoint(manifest, repository, level="full")
        if store._at:
            break
    assert made > 0
    assert refused > 5


@pytest.mark.parametrize(
    ("wish", "error"),
    [({"cancelled": lambda: True}, TakeCancelledError), ({"timeout_s": 0.05}, TAKE_TIMED_OUT)],
)
def test_take_that_waits_for_a_prune_can_be_cancelled_and_runs_out_of_time(
    a_checkpoint: Make, take: Make, wish: dict[str, Any], error: type[SavepointError] | ErrorKind
):
    store, checkpoint = MemoryStore(), a_checkpoint()
    with hold_prune(Repository(store, "orders"), holder="a prune"), refuses(error):
        take(Repository(store, "orders"), checkpoint, **wish)
    require_whole(Repository(store, "orders"))


# --- two takers at once --------------------------------------------------------------------------


def in_threads(*work: Callable[[], Any]) -> list[Any]:
    """Run at the same time; returns results and exceptions."""
    barrier = threading.Barrier(len(work))

    def run(one: Callable[[], object]) -> object:
        barrier.wait(10)
        try:
            return one()
        except FlinkstyleError as error:
            return error

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


def test_two_takes_of_one_request_make_one_savepoint(a_checkpoint: Make, take: Make):
    for _ in range(10):
        store, checkpoint = MemoryStore(), a_checkpoint()
        first, second = in_threads(
            *[partial(take, Repository(store, "orders"), checkpoint, taken_at_ms=at_ms) for at_ms in (1, 2)]
        )
        repository = Repository(store, "orders")
        assert first == second == repository.read("sp-1")
        verify_savepoint(first, repository, level="full")


def test_two_takes_at_once_share_blobs_and_a_cancelled_one_hurts_no_other(a_checkpoint: Make, take: Make):
    for number in range(20):
        store, checkpoint = MemoryStore(), a_checkpoint()
        whole, given_up = in_threads(
            partial(take, Repository(store, "orders"), checkpoint, "sp-1"),
            partial(take, Repository(store, "orders"), checkpoint, "sp-2", cancelled=yes_after(number)),
        )
        assert isinstance(given_up, TakeCancelledError) or given_up.savepoint_id == "sp-2"
        repository = Repository(store, "orders")
        assert repository.read("sp-1") == whole
        require_whole(repository)


_TAKER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from airflow_flinkstyle.savepoint.manifest import KafkaLog
from airflow_flinkstyle.savepoint.blobs.intents import hold_intent
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.storage.local import LocalStore

live, root, savepoint_id, at_ms = sys.argv[2:]
kafka = {"0": KafkaLog(cluster_id="old", topic_ids={"orders": "t-1"}, log_range={})}
source = QuerySource(name="totals", checkpoint=LocalStore(Path(live)), kafka=kafka)
label = SavepointLabel(
    savepoint_id=savepoint_id, taken_at_ms=int(at_ms), spark_version="4.2.0", taken_from_generation=None
)
print("ready", flush=True)
sys.stdin.readline()
print(take_savepoint(SavepointRepository(LocalStore(Path(root)), "orders"), [source], label).savepoint_id)
"""


def test_takers_in_processes_of_their_own_share_a_repository(a_checkpoint: Make, tmp_path: Path):
    checkpoint = a_checkpoint(batches=6, store=LocalStore(tmp_path / "live"))
    with contextlib.ExitStack() as stack:
        takers = []
        for name, at_ms in (("sp-1", "1"), ("sp-1", "2"), ("sp-2", "3")):
            arguments = [str(ROOT), tmp_path / "live", tmp_path / "root", name, at_ms]
            taker = subprocess.Popen(
                [sys.executable, "-c", _TAKER, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            takers.append(stack.enter_context(taker))
            stack.callback(taker.kill)
        for taker in takers:
            assert taker.stdout is not None
            assert taker.stdout.readline() == "ready\n"
        for taker in takers:
            assert taker.stdin is not None
            taker.stdin.write("go\n")
            taker.stdin.flush()
        said = [taker.communicate(timeout=60)[0] for taker in takers]
    assert said == ["sp-1\n", "sp-1\n", "sp-2\n"]
    repository = Repository(LocalStore(tmp_path / "root"), "orders")
    assert sorted(repository.ids()) == ["sp-1", "sp-2"]
    require_whole(repository)
    assert checkpoint.store.head("metadata") is not None


def test_clocks_that_differ_by_a_day_change_neither_the_order_nor_what_is_whole(
    a_checkpoint: Make, take: Make, monkeypatch: pytest.MonkeyPatch
):
    store, checkpoint, now_ns = MemoryStore(), a_checkpoint(), time.time_ns()
    day_ns = 86_400 * 10**9
    take(Repository(store, "orders"), checkpoint, "sp-ahead", taken_at_ms=2_000)
    checkpoint.commit()
    monkeypatch.setattr(time, "time_ns", lambda: now_ns - day_ns)
    with hold_intent(Repository(store, "orders"), "take", holder="behind"):
        monkeypatch.setattr(time, "time_ns", lambda: now_ns + day_ns)
        repository = Repository(store, "orders")
        with pytest.raises(RepositoryBusyError):  # an intent's age by its own clock says nothing
            prune_to(repository, 9)
        take(repository, checkpoint, "sp-behind", taken_at_ms=1_000)
    require_whole(repository)
    assert [manifest.savepoint_id for manifest in manifests_of(repository)] == ["sp-behind", "sp-ahead"]
