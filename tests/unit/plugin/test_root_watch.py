"""The jobs below a root as the page sees them, and what looking costs."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.plugin.cache import root_watch
from airflow_flinkstyle.plugin.cache.root_watch import RootWatch
from airflow_flinkstyle.savepoint.blobs.references import pin
from airflow_flinkstyle.storage.errors import StoreUnavailableError
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.meter import Meter
from testbed.waiting import wait_until
from tests.seeming_jobs import SeemingJob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.airflow


class Store(LocalStore):
    """Fails while it is told to."""

    fault: Exception | None = None
    listed: ClassVar[list[str]] = []

    def folders(self, prefix: str = "") -> Iterator[str]:
        self.listed.append(prefix)
        if self.fault is not None:
            raise self.fault
        return super().folders(prefix)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "root")


def read(watch: RootWatch) -> dict[str, Any]:
    """Return the jobs as a reading that begins now finds them."""
    watch.request_reading()
    watch.jobs()
    wait_until("read", lambda: not watch.jobs()["reading"])
    return watch.jobs()


def names(found: dict[str, Any]) -> list[str]:
    return [job["job"] for job in found["jobs"]]


def _away() -> StoreUnavailableError:
    return StoreUnavailableError("The store does not answer.", state_after="Nothing.", remedy="Wait.")


def test_rows_say_what_each_job_does_and_how_fast(tmp_path: Path, store: Store):
    orders = SeemingJob(tmp_path)
    orders.take("sp-1", "4.2.0/dedup")
    orders.take("sp-2", "4.2.0/dedup", minute=1)
    orders.seem_running()
    SeemingJob(tmp_path, "payments").seem_running(state="failed", error=("OUT_OF_DISK", "The disk is full."))
    found = read(RootWatch(lambda: store))
    first, second = found["jobs"]
    assert (first["job"], first["state"], first["host"], first["savepoints"]) == (
        "orders",
        "running",
        "elsewhere",
        2,
    )
    assert first["newest_savepoint"]["savepoint_id"] == "sp-2"
    assert first["newest_savepoint"]["verified"] is None
    assert (second["job"], second["state"]) == ("payments", "failed")
    assert "OUT_OF_DISK" in second["reason"]
    json.dumps(found)


def test_job_counts_as_seen_to_run_once_its_heartbeat_changed(tmp_path: Path, store: Store):
    SeemingJob(tmp_path).seem_running()
    watch = RootWatch(lambda: store)
    wait_until("seen to beat", lambda: read(watch)["jobs"][0]["is_certain"])


def test_driver_that_is_silent_for_its_lease_is_dead(tmp_path: Path, store: Store):
    SeemingJob(tmp_path).seem_running(beats=False, lease_s=0.2)
    watch = RootWatch(lambda: store)
    assert read(watch)["jobs"][0]["state"] == "running"
    wait_until("dead", lambda: read(watch)["jobs"][0]["state"] == "dead")


def test_record_that_cannot_be_read_hides_no_other_job(tmp_path: Path, store: Store):
    SeemingJob(tmp_path, "orders").seem_running(state="closed")
    broken = SeemingJob(tmp_path, "broken")
    broken.seem_running(state="closed")
    store.write("broken/current.json", b"{<script>")
    found = read(RootWatch(lambda: store))
    bad, good = found["jobs"]
    assert (bad["state"], good["state"]) == ("unknown", "closed")
    assert "current.json" in bad["error"]["problem"]


def test_of_a_folder_only_whether_it_is_a_job_is_asked_where_no_run_tells(tmp_path: Path, store: Store):
    SeemingJob(tmp_path, "orders").seem_running()
    SeemingJob(tmp_path, "saved").take("sp-1", "4.2.0/dedup")
    store.write("other/notes.txt", b"no job")
    store.listed.clear()
    watch = RootWatch(lambda: store)
    assert names(read(watch)) == ["orders", "saved"]
    assert {"saved/", "other/"} <= set(store.listed)
    assert "orders/" not in store.listed
    store.listed.clear()
    assert names(read(watch)) == ["orders", "saved"]
    assert not {"saved/", "other/"} & set(store.listed)


def test_folder_that_no_job_can_be_is_named_and_not_shown(tmp_path: Path, store: Store):
    SeemingJob(tmp_path).seem_running(state="closed")
    for name in ("<script>", ".hidden", "_temporary", "checkpoints"):
        (tmp_path / "root" / name / "runs" if name != "checkpoints" else tmp_path / "root" / name).mkdir(
            parents=True
        )
    found = read(RootWatch(lambda: store))
    assert names(found) == ["orders"]
    assert found["not_jobs"] == ["<script>"]
    assert RootWatch(lambda: store).reader("<script>") is None
    assert RootWatch(lambda: store).reader("../root/orders") is None


def test_store_that_is_away_is_a_sentence_and_what_was_read_stays(tmp_path: Path, store: Store):
    SeemingJob(tmp_path).seem_running(state="closed")
    watch = RootWatch(lambda: store)
    before = read(watch)
    store.fault = _away()
    watch._names_at_s = float("-inf")
    found = read(watch)
    assert names(found) == ["orders"]
    assert found["read_at_ms"] == before["read_at_ms"]
    assert found["error"]["code"] == _away().code
    assert found["error"]["remedy"]
    store.fault = None
    assert read(watch)["error"] is None


def test_unexpected_error_is_logged_and_shows_no_detail(store: Store, caplog: pytest.LogCaptureFixture):
    store.fault = RuntimeError("password=pw-of-store")
    found = read(RootWatch(lambda: store))
    assert found["error"]["code"] == "UNEXPECTED"
    assert "pw-of-store" not in json.dumps(found)
    assert "pw-of-store" in caplog.text


def test_connection_that_cannot_be_used_is_tried_again(tmp_path: Path, store: Store):
    stores: list[Any] = [BadInputError("No connection.", state_after="Nothing.", remedy="Add it."), store]

    def connect() -> Store:
        found = stores.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    watch = RootWatch(connect)
    assert read(watch)["error"]["problem"] == "No connection."
    assert read(watch)["error"] is None


def test_two_hundred_viewers_cost_as_much_as_one(tmp_path: Path, store: Store):
    for number in range(5):
        SeemingJob(tmp_path, f"job-{number}").seem_running(state="closed")
    watch = RootWatch(lambda: store)
    read(watch)
    first = watch.meter.requests
    read(watch)
    again = watch.meter.requests - first
    assert 0 < again <= 8 * 5
    watch.request_reading()
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: watch.jobs(), range(200)))
    wait_until("read", lambda: not watch.jobs()["reading"])
    assert {tuple(names(answer)) for answer in answers} == {tuple(f"job-{number}" for number in range(5))}
    assert watch.meter.requests - first - again == again, "they began one reading"


def test_what_a_reading_cost_puts_off_the_next(tmp_path: Path, store: Store):
    for number in range(3):
        SeemingJob(tmp_path, f"job-{number}").seem_running(state="closed")
    watch = RootWatch(lambda: store, Meter(per_minute=6))
    read(watch)
    cost = watch.meter.requests
    assert watch._next_s - root_watch.time.monotonic() > cost * 60 / 6 - 30
    assert not watch.request_reading(), "nor does a person's wish"
    reader = watch.reader("job-0")
    assert reader is not None, "a job's own view has a budget of its own"
    assert asyncio.run(watch.pieces.get("job-0", reader.detail))["state"] == "closed"
    assert 0 < watch.views.requests <= 50


def test_look_never_waits_for_a_store_that_hangs(tmp_path: Path, store: Store):
    go = threading.Event()

    def connect() -> Store:
        go.wait(60)
        return store

    watch = RootWatch(connect)
    found = [watch.jobs() for _ in range(3)]
    assert all(one["loading"] and one["jobs"] == [] for one in found)
    go.set()
    wait_until("read", lambda: not watch.jobs()["loading"])


def test_detail_has_runs_savepoints_plots_and_why_one_is_kept(tmp_path: Path, store: Store):
    orders = SeemingJob(tmp_path)
    for number in range(3):
        orders.take(f"sp-{number}", "4.2.0/dedup", minute=number)
    pin(orders.repository, "sp-0", reason="<b>audit</b>", by="a test", at_ms=1)
    orders.seem_running(state="closed")
    reader = RootWatch(lambda: store).reader("orders")
    assert reader is not None
    found = reader.detail()
    assert [one["savepoint_id"] for one in found["savepoints"]] == ["sp-2", "sp-1", "sp-0"]
    assert found["savepoints"][2]["pinned"] == "<b>audit</b>"
    assert [(run["generation"], run["state"]) for run in found["runs"]] == [(1, "closed")]
    assert found["history"] == {}
    json.dumps(found)


def test_page_is_told_no_file_no_launch_and_no_secret(tmp_path: Path, store: Store):
    orders = SeemingJob(tmp_path)
    orders.take("sp-1", "4.2.0/dedup")
    orders.seem_running(state="closed")
    watch = RootWatch(lambda: store)
    reader = watch.reader("orders")
    assert reader is not None
    told = json.dumps([read(watch), reader.detail()])
    for word in ("launch", "signature", "blobs", "password"):
        assert word not in told


def test_connection_that_leads_elsewhere_by_now_shows_the_jobs_there(tmp_path: Path, store: Store):
    SeemingJob(tmp_path).seem_running(state="closed")
    other = SeemingJob(tmp_path / "other")
    other.seem_running(state="failed", error=("OUT_OF_DISK", "The disk is full."))
    stores: list[Any] = [store]
    watch = RootWatch(lambda: stores[-1])
    assert read(watch)["jobs"][0]["state"] == "closed"
    before = watch.reader("orders")
    stores.append(LocalStore(tmp_path / "other" / "root"))
    watch._names_at_s = float("-inf")
    assert read(watch)["jobs"][0]["state"] == "failed"
    reader = watch.reader("orders")
    assert reader is not before
    assert reader is not None
    assert reader.detail()["state"] == "failed"


def test_removed_job_is_forgotten(tmp_path: Path, store: Store):
    SeemingJob(tmp_path).seem_running(state="closed")
    watch = RootWatch(lambda: store)
    read(watch)
    assert watch.reader("orders") is not None
    shutil.rmtree(tmp_path / "root" / "orders")
    watch._names_at_s = float("-inf")
    read(watch)
    assert watch.reader("orders") is None
