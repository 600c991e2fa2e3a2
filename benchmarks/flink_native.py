"""Full savepoints beside Flink's: the same keys and payload, RocksDB, the same local disk."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import MIB, PAIRS, Report, Spread, Table, Target, interleave, ratios
from benchmarks.flink import FlinkCluster
from benchmarks.running_job import RunningJob, wait_for_batch
from testbed import paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

KEYS, PAYLOAD_BYTES = 285_000, 2_000
QUICK_KEYS = 5_000
FILES = 10
"""Batches in which Spark reads the keys once."""
TRICKLE = 10
"""Rows a second that both jobs go on reading, so that they run while they are saved."""
BUILD_TIMEOUT_S = 240.0
INPUT, QUERY = "input", "counts"
DIGEST_CHARS = 128
FLINK = "Flink 2.3, native"
OURS, NEXT = "ours, full", "ours, the next one"
APART, UNHASHED = "ours, full, by a caller", "the same, not hashed"
JOB = paths.ROOT / "benchmarks" / "jobs" / "keyed_count.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One savepoint."""

    seconds: float
    size_bytes: int

    @property
    def ms_per_mib(self) -> float:
        """Time per byte of state, readable."""
        return 1000 * self.seconds / (self.size_bytes / MIB)


def run(*, quick: bool) -> Report:
    """Build both states, then save them in turn."""
    keys = QUICK_KEYS if quick else KEYS
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-flink-")))
        cluster = stack.enter_context(FlinkCluster(folder / "flink"))
        flink_job = cluster.submit(statements(keys))
        wait_until_read(cluster, flink_job, keys)
        job = stack.enter_context(RunningJob(folder / "spark", JOB, memory="2g"))
        build(job, keys)
        stack.enter_context(trickle(folder / "spark" / INPUT, keys))

        def flink() -> Sample:
            target = folder / "flink-savepoints"
            taken = cluster.savepoint(flink_job, target)
            shutil.rmtree(target)
            os.sync()  # what the disk still owes belongs to nobody's measurement
            return Sample(seconds=taken.reported_s, size_bytes=taken.size_bytes)

        def ours() -> Sample:
            job.empty_repository()
            return again()

        def again() -> Sample:
            taken = job.savepoint()
            return Sample(seconds=taken.reported_s, size_bytes=taken.size_bytes)

        contenders = {
            FLINK: flink,
            OURS: ours,
            NEXT: again,
            APART: lambda: apart(job, folder / "apart"),
            UNHASHED: lambda: apart(job, folder / "apart", "--unhashed"),
        }
        found = interleave(contenders, rounds=1 if quick else PAIRS)
    return report(keys, found)


def statements(keys: int) -> list[str]:
    """Return Flink's job: every key once, then the trickle; the same payload as Spark's."""
    digests = [f"SHA512('{n}-' || CAST(k AS STRING))" for n in range(-(-PAYLOAD_BYTES // DIGEST_CHARS))]
    payload = f"SUBSTRING({' || '.join(digests)}, 1, {PAYLOAD_BYTES})"
    source = "CREATE TABLE {} (k BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{}', {})"
    once = f"'fields.k.kind' = 'sequence', 'fields.k.start' = '0', 'fields.k.end' = '{keys - 1}'"
    on = f"'fields.k.min' = '0', 'fields.k.max' = '{keys - 1}'"
    return [
        source.format("history", 1_000_000, once),
        source.format("trickle", TRICKLE, on),
        "CREATE TABLE counts (k BIGINT, n BIGINT, payload STRING) WITH ('connector' = 'blackhole')",
        f"INSERT INTO counts SELECT k, COUNT(*), MAX(payload) FROM (SELECT k, {payload} AS payload FROM "  # noqa: S608
        "(SELECT k FROM history UNION ALL SELECT k FROM trickle)) GROUP BY k",
    ]


def wait_until_read(cluster: FlinkCluster, flink_job: str, keys: int) -> None:
    """Wait until Flink has counted every key once."""
    deadline_s = time.monotonic() + BUILD_TIMEOUT_S
    while cluster.records_read(flink_job) < keys:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"Flink was expected to read {keys} keys within {BUILD_TIMEOUT_S:g} s")
        time.sleep(0.5)


def build(job: RunningJob, keys: int) -> None:
    """Let Spark count every key once, a file of keys per batch."""
    folder = job.folder / INPUT
    folder.mkdir(parents=True)
    for number in range(FILES):
        chosen = range(number * keys // FILES, (number + 1) * keys // FILES)
        put(folder, f"keys-{number}", chosen)
    job.start(["--input", str(folder), "--payload-bytes", str(PAYLOAD_BYTES)])
    wait_for_batch(job, QUERY, FILES - 1, timeout_s=BUILD_TIMEOUT_S)


def put(folder: Path, name: str, keys: Iterable[int]) -> None:
    """Make a file of keys appear at once."""
    draft = folder / f".{name}"
    draft.write_text("".join(f"{key}\n" for key in keys))
    draft.rename(folder / name)


@contextlib.contextmanager
def trickle(folder: Path, keys: int) -> Iterator[None]:
    """Give Spark a few rows every second meanwhile."""
    done = threading.Event()
    random_keys = random.Random(1)  # noqa: S311  (keys, not secrets)

    def write() -> None:
        for number in itertools.count():
            if done.wait(1):
                return
            put(folder, f"trickle-{number}", random_keys.choices(range(keys), k=TRICKLE))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def apart(job: RunningJob, root: Path, *options: str) -> Sample:
    """Save the running query's checkpoint from outside the driver, into a repository of its own."""
    command = [sys.executable, "-m", "benchmarks.take", str(job.checkpoint(QUERY)), str(root), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=paths.ROOT)  # noqa: S603
    shutil.rmtree(root)
    os.sync()
    return Sample(**json.loads(done.stdout))


def report(keys: int, found: dict[str, list[Sample]]) -> Report:
    """Compare them per byte of state."""
    pace = {name: [sample.ms_per_mib for sample in samples] for name, samples in found.items()}
    rows = tuple(
        (
            name,
            f"{statistics.median(sample.size_bytes for sample in samples) / MIB:.0f} MiB",
            Spread.of([sample.seconds for sample in samples]).text(" s"),
            Spread.of(pace[name]).text(" ms"),
            ratios(pace[name], pace[FLINK]).text("x"),
        )
        for name, samples in found.items()
    )
    return Report(
        about=(
            f"A keyed count of {keys:,} keys with a payload of {PAYLOAD_BYTES:,} characters each that do not "
            f"compress, RocksDB, two partitions, {TRICKLE} more rows a second while it is saved, everything "
            "on one local disk. Time runs from the request, or with *by a caller* from the first copy, to "
            "the end. Ours brings every file to the disk (fsync) before the savepoint exists."
        ),
        tables=(
            Table(columns=("savepoint", "state", "time", "per MiB of state", "against Flink"), rows=rows),
        ),
        targets=(Target(what="full, hashed, per byte", limit=1.0, found=ratios(pace[OURS], pace[FLINK])),),
        raw={name: [asdict(sample) for sample in samples] for name, samples in found.items()},
    )
