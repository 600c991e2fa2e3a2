"""What a job of ten thousand partitions waits for: the start guard, a savepoint's listing and planning."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_flinkstyle.savepoint.capture.copier import StoredBlobs
from airflow_flinkstyle.savepoint.capture.query import capture_query
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.storage.local import LocalStore
from benchmarks.common import Report, Spread, Table, Target, interleave, ratios
from benchmarks.jobs.many_partitions import BULK, ONE_BY_ONE
from benchmarks.moved_job import create_topic
from benchmarks.synthetic import SyntheticCheckpoint
from testbed import paths
from testbed.kafka import Broker
from testbed.spark import spark_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_flinkstyle.storage.base import ObjectInfo

PARTITIONS, QUICK_PARTITIONS = 10_000, 40
ROUNDS = 3
GUARD_S = 5.0
SMALL_LOGS: Final = {"log.index.size.max.bytes": "4096", "log.preallocate": "false"}
"""Settings of a broker that has so many partitions on one disk."""
READ_S, PAGE_S, PAGE = 0.01, 0.05, 1000
"""Of S3 from the same region: until a small object is there, and a page of a listing."""
QUERIES: Final = ("orders", "payments", "clicks")


class FarStore:
    """A store whose answers take as long as S3's; everything else is the local one's."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    def read(self, key: str) -> bytes:
        """Read, a little later."""
        time.sleep(READ_S)
        return self._store.read(key)

    def list(self, prefix: str = "", *, after: str = "") -> Iterator[ObjectInfo]:
        """List page by page."""
        for number, info in enumerate(self._store.list(prefix, after=after)):
            if number % PAGE == 0:
                time.sleep(PAGE_S)
            yield info


def run(*, quick: bool) -> Report:
    """Measure each as it is and as it was."""
    count, rounds = (QUICK_PARTITIONS, 1) if quick else (PARTITIONS, ROUNDS)
    with tempfile.TemporaryDirectory(prefix="bench-many-", dir=paths.HOME / "tmp") as folder:
        guard = guarded(Path(folder), count, rounds)
        takes = taken(Path(folder), count)
    return report(count, guard, takes)


def guarded(folder: Path, count: int, rounds: int) -> Mapping[str, list[float]]:
    """Return the seconds of each way to look at a topic of so many partitions.

    Raises:
        RuntimeError: If the look failed.
    """
    with Broker("many", folder / "broker", heap_mb=1024, settings=SMALL_LOGS) as broker:
        topic = f"many-{uuid.uuid4().hex[:8]}"
        create_topic(broker, topic, count)
        command = [
            paths.VENV_SPARK / "bin/python",
            *("-m", "benchmarks.jobs.many_partitions", broker.bootstrap, topic, "--rounds", rounds),
        ]
        env = {**os.environ, **spark_paths().env, "PYTHONPATH": str(paths.ROOT)}
        done = subprocess.run(  # noqa: S603  (our own program)
            [str(part) for part in command],
            env=env,
            cwd=paths.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"The look ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def taken(folder: Path, count: int) -> Mapping[str, list[float]]:
    """Return the seconds of a savepoint of three queries with so many stores each, of which nothing is new.

    One after the other takes minutes of sleep, which no second round would change.
    """
    SyntheticCheckpoint(folder / "live", count, partitions=count, sst_bytes=[1])
    checkpoint, repository = FarStore(LocalStore(folder / "live")), repository_in(folder / "root")
    capture(checkpoint, repository, threads=16, once=True)

    def timed(*, threads: int, once: bool) -> float:
        began_s = time.perf_counter()
        capture(checkpoint, repository, threads=threads, once=once)
        return time.perf_counter() - began_s

    return interleave(
        {BULK: lambda: timed(threads=16, once=True), ONE_BY_ONE: lambda: timed(threads=1, once=False)},
        rounds=1,
    )


def repository_in(folder: Path) -> SavepointRepository:
    """Return a repository far away."""
    folder.mkdir()
    return SavepointRepository(FarStore(LocalStore(folder)), "bench")  # type: ignore[arg-type]


def capture(checkpoint: FarStore, repository: SavepointRepository, *, threads: int, once: bool) -> None:
    """Capture all queries; ``once`` lists the blobs for all of them together."""
    stored = StoredBlobs(repository)
    for name in QUERIES:
        capture_query(
            checkpoint,  # type: ignore[arg-type]
            repository,
            name=name,
            kafka={},
            stored=stored if once else None,
            plan_threads=threads,
        )


def report(count: int, guard: Mapping[str, list[float]], takes: Mapping[str, list[float]]) -> Report:
    """Say what was found."""
    rows = tuple(
        (
            what,
            Spread.of(found[ONE_BY_ONE]).text(" s"),
            Spread.of(found[BULK]).text(" s"),
            ratios(found[ONE_BY_ONE], found[BULK]).text("x", 1),
        )
        for what, found in (
            (f"the guard's look at a topic of {count:,} partitions", guard),
            (f"a savepoint of {len(QUERIES)} queries of {count:,} state stores each, nothing new", takes),
        )
    )
    return Report(
        about=f"A topic of {count:,} partitions, asked by the start guard at once, in turns with a call "
        f"through py4j for each partition. Savepoints of {len(QUERIES)} queries from and to a local disk "
        f"that answers as late as S3 ({READ_S * 1000:.0f} ms for an object, {PAGE_S * 1000:.0f} ms for a "
        f"page of {PAGE:,} keys): zips side by side and blobs listed once, in turns with one by one.",
        tables=(Table(columns=("what", "one by one", "ours", "one by one / ours"), rows=rows, detail=True),),
        targets=(
            Target(
                what=f"the guard with {count:,} partitions",
                limit=GUARD_S,
                found=Spread.of(guard[BULK]),
                unit=" s",
            ),
        ),
        raw={"guard": dict(guard), "take": dict(takes)},
    )
