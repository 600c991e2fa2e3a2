"""What a job asks of its store: the agent's own threads against a store that counts, and its price on S3.

No Spark runs: what a driver asks for its lease, its request slot and its history does not depend on its
batches, and a savepoint's requests depend on its files alone. So this needs a minute and no cloud.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.agent.core.board.heartbeat import WRITE_S, HeartbeatThread, HeartbeatWriter
from airflow_flinkstyle.agent.core.board.inbox import Inbox
from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.view import JobView
from airflow_flinkstyle.protocol.board import JobBoard
from airflow_flinkstyle.protocol.records import Claim, Current
from airflow_flinkstyle.savepoint.capture.take import QuerySource, SavepointLabel, take_savepoint
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import newest_savepoint
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import Generation, Incarnation
from benchmarks.common import Report, Table
from benchmarks.synthetic import SyntheticCheckpoint
from testbed import paths

if TYPE_CHECKING:
    from collections.abc import Mapping

DAY_S, MONTH_DAYS = 86_400, 30
LEASE_S: Final = 30.0
"""As the connection has it by default."""
JOBS, SAVEPOINTS_A_DAY, LOOKS_A_DAY = (1, 10, 100), 24, 8640
"""Savepoints every hour; a watcher that looks every 10 s."""
PRICE_PUT, PRICE_GET = 5.0e-6, 0.4e-6
"""Dollars for a request of S3 Standard, us-east-1: PUT, COPY, POST and LIST; GET and HEAD."""
_WRITES: Final = frozenset({"create", "replace", "write", "upload", "upload_by_content", "list", "folders"})
_READS: Final = frozenset({"get", "read", "head", "download"})
"""Deletes cost nothing."""


class CountingStore:
    """Passes everything on, and counts it by name."""

    def __init__(self, store: Any) -> None:  # noqa: ANN401 - any store
        self._store = store
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        found = getattr(self._store, name)
        if name not in _WRITES | _READS:
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the store has them
            self.asked[name] += 1
            return found(*args, **kwargs)

        return counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Requests, as S3 prices them."""

    writes: float
    reads: float

    @classmethod
    def of(cls, asked: Mapping[str, int], *, per: float = 1.0) -> Asked:
        """Count them, each divided by ``per``."""
        return cls(
            writes=sum(number for name, number in asked.items() if name in _WRITES) / per,
            reads=sum(number for name, number in asked.items() if name in _READS) / per,
        )

    def times(self, number: float) -> Asked:
        """Return so many times that."""
        return Asked(writes=self.writes * number, reads=self.reads * number)

    def __add__(self, other: Asked) -> Asked:
        """Return both together."""
        return Asked(writes=self.writes + other.writes, reads=self.reads + other.reads)

    @property
    def dollars(self) -> float:
        """What S3 takes for them."""
        return self.writes * PRICE_PUT + self.reads * PRICE_GET


class _Driver:
    """What the threads know of a process that need not end, and of requests that do not come."""

    def halt(self, code: int) -> None:
        """Never called: the lease holds."""
        raise AssertionError(f"the driver would end with {code}")

    def jvm_is_gone(self) -> bool:
        """There is none."""
        return False


def run(*, quick: bool) -> Report:
    """Count what a driver asks in a minute, what a look asks, and what a savepoint does."""
    folder = Path(tempfile.mkdtemp(prefix="bench-requests-", dir=paths.HOME / "tmp"))
    try:
        store = CountingStore(LocalStore(folder / "root"))
        driver = _driver(store, 6.0 if quick else 60.0)
        look = _look(store)
        first, later, files = _savepoints(store, folder)
    finally:
        shutil.rmtree(folder)
    return _report(driver, look, first, later, files)


def _driver(store: Any, for_s: float) -> Asked:  # noqa: ANN401
    """Return what the agent's threads ask in a day, from so many seconds; its history is computed."""
    board, generation, incarnation = JobBoard(store, "orders"), Generation(1), Incarnation(1)
    board.create_claim(generation, _claim())
    board.take_current(Current(generation=generation, incarnation=incarnation), seen=None)
    writer = HeartbeatWriter(
        board, generation, incarnation, lease_s=LEASE_S, seen=None, queries=dict, before={}
    )
    writer.beat("running")
    inbox: Any = Inbox(board, generation, incarnation, None)  # type: ignore[arg-type]  # nothing is asked of it
    store.asked.clear()
    heart = HeartbeatThread(writer, _Driver(), news=lambda: False)  # type: ignore[arg-type]
    for thread in (heart, inbox):
        thread.start()
    time.sleep(for_s)
    counted = Asked.of(store.asked).times(DAY_S / for_s)
    writer.ended = True
    inbox.stopping.set()
    for thread in (heart, inbox):
        thread.join()
    return counted + Asked(writes=DAY_S / WRITE_S, reads=0)


def _claim() -> Claim:
    return Claim(
        claim_key="bench",
        follows=None,
        checkpoint_location="/nowhere",
        prepare_savepoint_id=None,
        overrides=(),
        lease_s=LEASE_S,
        launch={},
        claimed_at_ms=now_ms(),
    )


def _look(store: Any) -> Asked:  # noqa: ANN401
    """Return what one look at the job asks, as sensors, watchers and the page do."""
    view = JobView(
        board=JobBoard(store, "orders"),
        repository=SavepointRepository(store, "orders"),
        deployment=DetachedDeployment(),
    )
    view.status()
    store.asked.clear()
    view.status()
    return Asked.of(store.asked)


def _savepoints(store: Any, folder: Path) -> tuple[Asked, Asked, tuple[int, int]]:  # noqa: ANN401
    """Return what the first savepoint asks, what a later one does, and the new files of each."""
    live = SyntheticCheckpoint(folder / "live", 200 * 4096, partitions=4, sst_bytes=[4096])
    found: list[Asked] = []
    known: set[str] = set()
    sizes: list[int] = []
    repository = SavepointRepository(store, "saved")
    for number in range(2):
        if number:
            live.replace_bytes(20 * 4096)
        store.asked.clear()
        manifest = take_savepoint(
            repository,
            [QuerySource(name="totals", checkpoint=LocalStore(folder / "live"), kafka={})],
            SavepointLabel(
                savepoint_id=f"sp-{number}",
                taken_at_ms=now_ms(),
                spark_version="4.2.0",
                taken_from_generation=1,
            ),
            previous=newest_savepoint(repository),
        )
        found.append(Asked.of(store.asked))
        sizes.append(len(manifest.blobs.keys() - known))
        known = set(manifest.blobs)
    return found[0], found[1], (sizes[0], sizes[1])


def _report(driver: Asked, look: Asked, first: Asked, later: Asked, files: tuple[int, int]) -> Report:
    day = driver + look.times(LOOKS_A_DAY) + later.times(SAVEPOINTS_A_DAY)
    counted = Table(
        columns=("what", "PUT, LIST", "GET, HEAD", "dollars in 30 days"),
        rows=(
            _row("a driver, a day", driver, MONTH_DAYS),
            _row(
                f"looks of a watcher every 10 s, a day ({LOOKS_A_DAY:,})", look.times(LOOKS_A_DAY), MONTH_DAYS
            ),
            _row(f"the first savepoint, {files[0]} new files", first, 1),
            _row(f"a later one, {files[1]} new files", later, SAVEPOINTS_A_DAY * MONTH_DAYS),
        ),
        detail=True,
    )
    jobs = Table(
        columns=("jobs", "PUT, LIST a day", "GET, HEAD a day", "dollars in 30 days"),
        rows=tuple(_row(str(number), day.times(number), MONTH_DAYS) for number in JOBS),
        detail=True,
    )
    return Report(
        about="Requests to the savepoint store by one job: the agent's threads (heartbeat, request slot) for "
        f"a minute with a lease of {LEASE_S:.0f} s, its history by its interval, a look of a caller, and "
        "hourly savepoints of 200 files of which a tenth changes. Prices: S3 Standard, us-east-1, "
        f"{PRICE_PUT * 1000:.4f} dollars for 1,000 PUT, COPY, POST or LIST, {PRICE_GET * 1000:.4f} for 1,000 "
        "of the others.",
        tables=(counted, jobs),
        raw={
            name: {"writes": one.writes, "reads": one.reads}
            for name, one in {"driver_day": driver, "look": look, "first": first, "later": later}.items()
        },
    )


def _row(what: str, asked: Asked, times: float) -> tuple[str, ...]:
    dollars = asked.times(times).dollars
    return (what, f"{asked.writes:,.0f}", f"{asked.reads:,.0f}", f"{dollars:,.2f}")


__all__ = ["run"]
