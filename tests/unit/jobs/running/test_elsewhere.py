"""What a first start is told of the queries that other jobs of the root have."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.found import queries_elsewhere
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.query_records import Declared
from tests.seeming_jobs import SeemingJob

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.jobs.conftest import World

OWN = Declared(location="/ck", sink="a sink", sources="a source")


def has_declared(job: SeemingJob, declared: Declared) -> None:
    """Let a job run whose query was declared so."""
    job.seem_running(beats=False)
    slot = job.board.heartbeat(1)
    assert slot is not None
    queries = {name: replace(status, declared=declared) for name, status in slot.value.queries.items()}
    job.board.beat(1, replace(slot.value, queries=queries), seen=slot.version)


@pytest.fixture
def others(tmp_path: Path) -> tuple[SeemingJob, ...]:
    return tuple(SeemingJob(tmp_path, job) for job in ("orders", "clicks"))


def test_queries_of_other_jobs_are_told_by_what_their_scripts_declare(others: tuple[SeemingJob, ...]):
    orders, clicks = others
    has_declared(orders, OWN)
    has_declared(clicks, replace(OWN, location=None))
    store = orders.board.store
    assert queries_elsewhere(JobBoard(store, "orders-2")) == {OWN.key: "query totals of job orders"}
    assert queries_elsewhere(orders.board) == {}


def test_job_of_another_version_is_left_out(others: tuple[SeemingJob, ...]):
    orders, clicks = others
    has_declared(orders, OWN)
    has_declared(clicks, replace(OWN, sink="another"))
    clicks.board.store.write("clicks/current.json", b'{"version": 99}')
    assert list(queries_elsewhere(JobBoard(orders.board.store, "new")).values()) == [
        "query totals of job orders"
    ]


def test_only_a_first_start_is_told(world: World):
    has_declared_in(world)
    client = world.start()
    assert world.board.claim(1).elsewhere == {OWN.key: "query totals of job other"}
    client.requests.stop("stop", savepoint=True, timeout_s=10)
    again = client.starts.start(world.spec(), world.target(), claim_key="again")
    assert world.board.claim(again.generation).elsewhere == {}


def has_declared_in(world: World) -> None:
    """Copy a job that has declared its query into the world's store."""
    job = SeemingJob(world.folder, "other")
    has_declared(job, OWN)
    store = job.board.store
    for info in store.list("other/"):
        world.store.write(info.key, store.read(info.key))
