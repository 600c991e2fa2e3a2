"""Several jobs cut together: drivers in threads, one store, one log that both read."""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.cut import JobsCut, cut_together, find_cut
from airflow_flinkstyle.jobs.errors import CUT_FAILED, JobNotRunningError, RequestBusyError
from airflow_flinkstyle.jobs.request_slot import CutMode, Ended, InProgress, TooLate
from airflow_flinkstyle.jobs.status import Closed, Running
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.cuts import CutBoard, Positions
from airflow_flinkstyle.types import Generation
from testbed.memory_store import MemoryStore
from testbed.refusals import refuses
from tests.unit.jobs.conftest import World
from tests.unit.jobs.drivers import TOPIC, hurry
from tests.unit.stores import ActingStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from airflow_flinkstyle.jobs.client import JobClient

TIMEOUT_S = 10.0


class Pair:
    """Two jobs on one topic, the second of which reads slowly."""

    def __init__(self, folder: Path) -> None:
        self.first = World(folder / "first")
        self.second = World(folder / "second", job="totals-job", store=self.first.store)
        self.second.logs = copy.copy(self.first.logs)  # the same records, counted on its own
        self.second.logs.counted, self.second.logs.committed_by = Counter(), []
        self.worlds = (self.first, self.second)

    def start(self) -> list[JobClient]:
        clients = [self.first.start(), self.second.client()]
        handle = clients[1].starts.start(self.second.spec(), self.second.target(), claim_key="start")
        clients[1].drivers.wait_running(handle.generation, timeout_s=TIMEOUT_S)
        self.second.until(lambda: len(self.second.logs.counted) == 10)
        self.second.until(lambda: clients[1].view.status().heartbeat.batches())
        self.second.reads_slowly = True
        self.first.logs.produce(5)
        self.first.until(lambda: len(self.first.logs.counted) == 15)
        return clients

    def go_on(self) -> None:
        """Require that both jobs read on, and have counted every record once."""
        self.second.reads_slowly = False
        self.first.logs.produce(3)
        for world in self.worlds:
            world.judge()
            self.await_free(world)

    def await_free(self, world: World) -> None:
        """Wait until the driver has ended what it was asked: a cut that failed may be over before that."""
        board = JobBoard(world.store, world.job)

        def is_free() -> bool:
            slot = board.request(Generation(1))
            if slot is None or slot.value.state == "cancelled":
                return True
            return board.end(Generation(1), slot.value.request_id) is not None

        world.until(is_free)

    def positions(self, savepoints: dict[str, str]) -> list[int]:
        manifests = [world.repository.read(savepoints[world.job]) for world in self.worlds]
        return [manifest.queries[0].kafka["0"].offsets[TOPIC, 0] for manifest in manifests]


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    hurry(monkeypatch)
    pair = Pair(tmp_path)
    yield pair
    for world in pair.worlds:
        world.kill_all()


def test_jobs_are_cut_at_the_furthest_position_of_them_and_go_on(pair: Pair):
    clients = pair.start()
    cut = cut_together(clients, "k", timeout_s=TIMEOUT_S)
    assert pair.positions(cut.savepoints) == [115, 115]
    assert {
        (manifest.cut_id, manifest.alignment)
        for world in pair.worlds
        for manifest in [world.repository.read(cut.savepoints[world.job])]
    } == {(cut.cut_id, "aligned")}
    found = find_cut(pair.first.store, cut.cut_id)
    assert found is not None
    assert found.members == cut.savepoints
    pair.go_on()
    assert cut_together(clients, "k", timeout_s=TIMEOUT_S) == cut  # a retry of the same caller


def test_jobs_are_stopped_together_and_a_retry_says_so_again(pair: Pair):
    clients = pair.start()
    cut = cut_together(clients, "k", stop=True, timeout_s=TIMEOUT_S)
    assert cut.not_stopped == {}
    assert pair.positions(cut.savepoints) == [115, 115]
    for client in clients:
        status = client.view.status()
        assert isinstance(status, Closed)
        assert status.heartbeat.savepoint_id == cut.savepoints[client.view.job]
    assert cut_together(clients, "k", stop=True, timeout_s=TIMEOUT_S) == cut


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("fault", ["takes_fail", "refuses"])
def test_all_jobs_go_on_uncut_if_one_fails(pair: Pair, fault: str, *, stop: bool):
    clients = pair.start()
    setattr(pair.second, fault, True)
    with refuses(CUT_FAILED, match="totals-job"):
        cut_together(clients, "k", stop=stop, timeout_s=TIMEOUT_S)
    (abandoned,) = abandoned_cuts(pair)
    assert find_cut(pair.first.store, abandoned) is None
    setattr(pair.second, fault, False)
    assert all(isinstance(client.view.status(), Running) for client in clients)
    pair.go_on()
    again = cut_together(clients, "k", stop=stop, timeout_s=TIMEOUT_S)
    assert again.cut_id != abandoned
    assert len(set(pair.positions(again.savepoints))) == 1


def abandoned_cuts(pair: Pair) -> list[str]:
    board = CutBoard(pair.first.store)
    ids = {info.key.split("/")[1].removesuffix(".json") for info in pair.first.store.list("cuts/")}
    return sorted(cut_id for cut_id in ids if (cut := board.decision(cut_id)) and cut.verdict == "abandoned")


def test_job_that_does_not_run_or_is_busy_holds_nobody(pair: Pair):
    clients = pair.start()
    pair.second.kill(1)
    with pytest.raises(JobNotRunningError):
        cut_together(clients, "k", timeout_s=TIMEOUT_S)
    pair.first.logs.produce(3)
    pair.first.judge()
    pair.first.deaf = True
    clients[0].requests.request_savepoint("other")
    with pytest.raises(RequestBusyError):
        cut_together(clients[:1], "k2", timeout_s=TIMEOUT_S)


def test_driver_that_dies_while_it_is_held_fails_the_cut(pair: Pair):
    clients = pair.start()
    pair.second.deaf = True
    failed = in_background(lambda: cut_together(clients, "k", timeout_s=TIMEOUT_S))
    pair.first.until(lambda: any("/held/" in info.key for info in pair.first.store.list("cuts/")))
    pair.second.kill(1)
    assert failed().code == CUT_FAILED.code
    pair.first.logs.produce(3)
    pair.first.judge()


def test_caller_that_runs_out_of_time_lets_all_go_on(pair: Pair):
    clients = pair.start()
    pair.second.deaf = True
    with refuses(CUT_FAILED, match="time was up before totals-job is held"):
        cut_together(clients, "k", timeout_s=0.5)
    pair.second.deaf = False
    pair.go_on()


def test_caller_that_dies_holds_a_job_no_longer_than_asked(pair: Pair):
    client = pair.start()[0]
    mode = CutMode(alignment="aligned", cut_id="cut-lost", hold_s=0.3)
    pending = client.requests.request_savepoint("k", mode=mode)
    begun_s = time.monotonic()
    _, end = client.requests.wait(pending, timeout_s=TIMEOUT_S)
    assert (end.outcome, end.savepoint_id) == ("failed", None)
    assert "no barrier within the 0.3 s" in end.detail
    assert time.monotonic() - begun_s < TIMEOUT_S / 2
    assert abandoned_cuts(pair) == ["cut-lost"]
    pair.go_on()


def test_caller_that_dies_before_the_decision_lets_jobs_that_would_stop_go_on(pair: Pair):
    client = pair.start()[0]
    mode = CutMode(alignment="aligned", cut_id="cut-lost", hold_s=0.5)
    pending = client.requests.request_stop("k", savepoint=True, mode=mode)
    CutBoard(pair.first.store).create_barrier("cut-lost", Positions.of({("old", TOPIC, 0): 115}))  # type: ignore[dict-item]
    pair.first.until(lambda: client.requests.published(pending) is not None)
    assert isinstance(client.requests.poll(pending), InProgress)
    pair.first.until(lambda: isinstance(client.requests.poll(pending), Ended))
    assert isinstance(client.view.status(), Running)
    assert find_cut(pair.first.store, "cut-lost") is None
    assert isinstance(client.requests.cancel(pending), TooLate)
    pair.go_on()


def test_jobs_of_two_roots_and_jobs_named_twice_are_refused(pair: Pair, tmp_path: Path):
    clients = pair.start()
    other = World(tmp_path / "other", job="other-job", store=MemoryStore("elsewhere"))
    for wrong in ([], [clients[0], clients[0]], [clients[0], other.client()]):
        with pytest.raises(BadInputError, match="each once"):
            cut_together(wrong, "k", timeout_s=TIMEOUT_S)


class TaskTimeoutError(BaseException):
    """As Airflow's: no Exception, so that nothing takes it for a failure of its own."""


@pytest.mark.parametrize(
    ("thrown", "seen"),
    [(KeyboardInterrupt, KeyboardInterrupt), (TaskTimeoutError, TaskTimeoutError), (OSError, JobsCut)],
)
def test_interrupted_caller_ends_though_another_attempt_has_completed_the_cut(
    pair: Pair, thrown: type[BaseException], seen: type[object]
):
    clients = pair.start()

    def throw() -> None:
        raise thrown

    job = pair.first.job
    store = ActingStore(pair.first.store, throw, key="cuts/", holding=b'"complete"', after=True)
    asking = [replace(clients[0], view=replace(clients[0].view, board=JobBoard(store, job))), clients[1]]  # type: ignore[arg-type]
    try:
        found: object = cut_together(asking, "k", timeout_s=TIMEOUT_S)
    except (KeyboardInterrupt, TaskTimeoutError) as error:
        found = error
    assert store.has_acted, "as if another attempt of the same caller had decided"
    assert isinstance(found, seen)
    assert isinstance(cut_together(clients, "k", timeout_s=TIMEOUT_S), JobsCut)


def test_stopped_job_cannot_be_aligned(pair: Pair):
    client = pair.start()[0]
    client.requests.stop("stop", savepoint=False, timeout_s=TIMEOUT_S)
    with pytest.raises(JobNotRunningError, match="so that its queries can be aligned"):
        client.requests.begin_savepoint("k", timeout_s=1, alignment="aligned")


@pytest.mark.parametrize("mode", [{"drain": True}, {"cut_id": "cut-1"}])
def test_drain_and_cut_without_alignment_are_refused(mode: dict[str, object]):
    with pytest.raises(BadInputError, match="found alignment none"):
        CutMode(**mode)  # type: ignore[arg-type]


def test_alignment_that_does_not_exist_is_refused_and_not_taken_for_none():
    with pytest.raises(BadInputError, match="aligned or none was expected, found 'alinged'"):
        CutMode(alignment="alinged")  # type: ignore[arg-type]


def in_background(call: Callable[[], object]) -> Callable[[], object]:
    """Run a call in a thread; the result waits for what it returned or raised."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> object:
        thread.join(30)
        return found[0]

    return result
