"""The driver frees checkpoints that no caller reaches, beside its own and nowhere else."""

from __future__ import annotations

import json
import shutil
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.agent.core.run import scratch
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.line import Parent
from airflow_flinkstyle.protocol.places import own_place
from airflow_flinkstyle.protocol.query_records import QueryStatus
from airflow_flinkstyle.protocol.records import Current, IncarnationRecord, TakeoverOrder
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import Generation
from testbed.memory_store import MemoryStore
from testbed.paths import ROOT
from tests.small_spark import SmallSpark
from tests.unit.agent.conftest import G1, G2, G3, I1, a_claim, a_heartbeat

if TYPE_CHECKING:
    from pathlib import Path

GOLDEN = ROOT / "tests" / "golden" / "4.2.0" / "stateless"


def a_job(places: dict[Generation, Path]) -> tuple[JobBoard, SavepointRepository]:
    """Three generations, each in a checkpoint of its own; of the second one a savepoint was verified."""
    store = MemoryStore()
    board, repository = JobBoard(store, "orders"), SavepointRepository(store, "orders")
    query_id = json.loads((GOLDEN / "metadata").read_bytes())["id"]
    beat = QueryStatus(query_id=query_id, batch_id=None, batch_committed_at_ms=None, sources={})
    for generation, place in places.items():
        board.create_claim(generation, a_claim(checkpoint_location=str(place)))
        board.create_takeover_order(generation, an_order(generation))
        own_place(LocalStore(place), board, generation)
        shutil.copytree(GOLDEN, place / "totals")
        words = a_heartbeat(queries={"totals": beat}, has_committed=True)
        board.beat(generation, words, seen=None)
    board.take_current(Current(generation=G3, incarnation=I1), seen=None)
    source = QuerySource(name="totals", checkpoint=LocalStore(GOLDEN), kafka={})
    label = SavepointLabel(savepoint_id="sp-1", taken_at_ms=1, spark_version="4.2.0", taken_from_generation=2)
    take_savepoint(repository, [source], label)
    check_savepoint(repository, "sp-1", level="quick", by="a test")
    return board, repository


def an_order(generation: Generation) -> TakeoverOrder:
    """Continue where the generation before ended."""
    before = Generation(generation - 1) if generation > G1 else None
    parent = Parent(generation=before, batches_run=0, savepoint_id=None)
    return TakeoverOrder(savepoint_id=None, closed_at=None, expected={}, parent=parent)


def free(board: JobBoard, repository: SavepointRepository) -> None:
    claim: Any = board.claim(G3)
    scratch.free_old(SmallSpark(), board, repository, SimpleNamespace(claim=claim, generation=G3))  # type: ignore[arg-type]


def test_checkpoints_beside_its_own_that_nobody_needs_go(tmp_path: Path):
    places = {number: tmp_path / "orders" / f"{number:06d}" for number in (G1, G2, G3)}
    board, repository = a_job(places)
    free(board, repository)
    assert [place.exists() for place in places.values()] == [False, True, True]
    assert [info.key for info in board.store.list("orders/freed/")] == ["orders/freed/000001.json"]


def test_checkpoints_elsewhere_are_not_the_drivers_to_free(tmp_path: Path):
    places = {
        G1: tmp_path / "another" / "orders" / "000001",
        G2: tmp_path / "orders" / "000002",
        G3: tmp_path / "orders" / "000003",
    }
    board, repository = a_job(places)
    free(board, repository)
    assert all(place.exists() for place in places.values())


def test_store_that_fails_does_not_end_the_driver(tmp_path: Path):
    places = {number: tmp_path / "orders" / f"{number:06d}" for number in (G1, G2, G3)}
    board, repository = a_job(places)
    record = IncarnationRecord(
        host=socket.gethostname(), pid=1, jvm_pid=1, pid_started="x", started_at_ms=1
    )  # its folder, gone by the second try, was on this machine
    board.create_incarnation(G1, I1, record)
    board.store.refuse(denied="orders/freed")  # type: ignore[attr-defined]
    free(board, repository)
    board.store.refuse()  # type: ignore[attr-defined]
    free(board, repository)
    assert [info.key for info in board.store.list("orders/freed/")] == ["orders/freed/000001.json"]
