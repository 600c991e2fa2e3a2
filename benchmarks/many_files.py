"""Savepoints of a checkpoint of very many small files: what the files cost, not their bytes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import MIB, PAIRS, Report, Spread, Table, Target, Usage, measure
from benchmarks.synthetic import SyntheticCheckpoint
from testbed import paths

if TYPE_CHECKING:
    from collections.abc import Sequence

FILES, QUICK_FILES = 100_000, 2_000
PER_STORE = 50
"""Files of each of the state stores: 200 partitions of 10 stores have 100,000."""
FILE_BYTES = 200
WALL_S, PEAK_MIB, MANIFEST_MB = 2.0, 200.0, 6.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One savepoint."""

    used: Usage
    seconds: float
    """Of the savepoint alone, as inside a driver that runs anyway."""
    manifest_bytes: int
    """As it is stored."""


def run(*, quick: bool) -> Report:
    """Take the first savepoint, then the next ones, between which every store writes one file."""
    count = QUICK_FILES if quick else FILES
    folder = Path(tempfile.mkdtemp(prefix="bench-files-", dir=paths.HOME / "tmp"))
    try:
        live = SyntheticCheckpoint(
            folder / "live", count * FILE_BYTES, partitions=count // PER_STORE, sst_bytes=[FILE_BYTES]
        )
        first, later = take(folder), []
        for _ in range(2 if quick else PAIRS):
            live.replace_bytes(1)
            later.append(take(folder))
    finally:
        shutil.rmtree(folder)
    return report(first, later, count)


def take(folder: Path) -> Sample:
    """Take a savepoint in a process of its own; the newest one is its predecessor."""
    out = folder / "answer.json"
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "benchmarks.take",
        folder / "live",
        folder / "root",
        "--out",
        out,
    ]
    used = measure(command, env={**os.environ, "PYTHONPATH": str(paths.ROOT)}, cwd=paths.ROOT)
    newest = max((folder / "root/bench/savepoints").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return Sample(
        used=used,
        seconds=json.loads(out.read_text())["seconds"],
        manifest_bytes=newest.stat().st_size,
    )


def report(first: Sample, later: Sequence[Sample], count: int) -> Report:
    """Say what was found."""
    peak = Spread.of([sample.used.peak_rss_bytes / MIB for sample in later])
    manifest = Spread.of([sample.manifest_bytes / 1e6 for sample in later])
    wall = Spread.of([sample.seconds for sample in later])
    rows = tuple(
        (
            name,
            Spread.of([sample.seconds for sample in samples]).text(" s"),
            Spread.of([sample.used.cpu_s for sample in samples]).text(" s"),
            Spread.of([sample.used.peak_rss_bytes / MIB for sample in samples]).text(" MiB", 0),
            Spread.of([sample.manifest_bytes / 1e6 for sample in samples]).text(" MB", 1),
        )
        for name, samples in (("the first", [first]), ("the next, 2 % changed", later))
    )
    what = f"the next of {count:,} files"
    return Report(
        about=f"{count:,} files of {FILE_BYTES} bytes in RocksDB's layout, {PER_STORE} in each of "
        f"{count // PER_STORE:,} state stores, on a local disk. Between two savepoints every store writes "
        "its list of files. CPU and memory are those of the whole process, which also reads the savepoint "
        "before.",
        tables=(
            Table(
                columns=("savepoint", "wall", "CPU", "peak memory", "stored manifest"), rows=rows, detail=True
            ),
        ),
        targets=(
            Target(what=f"{what}: wall time", limit=WALL_S, found=wall, unit=" s"),
            Target(what=f"{what}: memory", limit=PEAK_MIB, found=peak, unit=" MiB"),
            Target(what=f"{what}: stored manifest", limit=MANIFEST_MB, found=manifest, unit=" MB"),
        ),
        raw={"first": asdict(first), "later": [asdict(sample) for sample in later]},
    )
