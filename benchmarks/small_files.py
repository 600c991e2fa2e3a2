"""Savepoints of many small files to S3, as Spark's default state store writes them, beside s5cmd."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.common import PAIRS, Report, Spread, Table, Target, Usage, measure, ratios
from benchmarks.copy_speed import BUCKET, TOOLS, Bench, s5cmd
from testbed import paths
from testbed.s3 import VersityGw

PARTITIONS, DELTAS, QUICK_DELTAS = 200, 100, 4
FILE_BYTES = 4096
CHANGED_BATCHES = 2
"""Each adds a file to every partition: 2 % of the files."""
_PROVIDER = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
FIRST, NEXT, UP = "savepoint, the first", "savepoint, 2 % changed", "s5cmd cp to S3"
BACK, DOWN = "restore", "s5cmd cp from S3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One copy."""

    used: Usage
    """Of the whole process, Python's start included."""
    seconds: float
    """Of the savepoint or the restore alone, as inside a driver that runs anyway."""
    requests: int | None
    """To the savepoint store; None where nobody counted."""


class Deltas:
    """A query in the layout of Spark's default state store: a small file for each batch and partition."""

    def __init__(self, root: Path, batches: int) -> None:
        self.root, self._batch = root, -1
        self._write("metadata", json.dumps({"id": str(uuid.uuid4())}).encode())
        self._write("sources/0/0", b"\0v1\n{}")
        for _ in range(batches):
            self.commit()

    def commit(self) -> None:
        """Write the files of one batch."""
        self._batch += 1
        conf = {
            "spark.sql.streaming.stateStore.providerClass": _PROVIDER,
            "spark.sql.shuffle.partitions": str(PARTITIONS),
        }
        header = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf})
        self._write(f"offsets/{self._batch}", f'v1\n{header}\n{{"logOffset":{self._batch}}}'.encode())
        for partition in range(PARTITIONS):
            self._write(f"state/0/{partition}/{self._batch + 1}.delta", os.urandom(FILE_BYTES))
        self._write(f"commits/{self._batch}", b'v1\n{"nextBatchWatermarkMs":0}')

    def _write(self, path: str, content: bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def run(*, quick: bool) -> Report:
    """Let ours and s5cmd send and fetch the same files in turn."""
    batches = QUICK_DELTAS if quick else DELTAS
    samples: dict[str, list[Sample]] = {name: [] for name in (FIRST, NEXT, UP, BACK, DOWN)}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-small-", dir=_tmp())))
        server = stack.enter_context(VersityGw(folder / "s3"))
        server.create_bucket(BUCKET)
        bench = Bench(folder, server)
        live = Deltas(folder / "live", batches)
        for number in range(1 if quick else PAIRS):
            turns = [_ours, _theirs] if number % 2 else [_theirs, _ours]
            for turn in turns:
                turn(bench, live, samples)
                bench.empty()
    return report(samples, batches * PARTITIONS)


def _tmp() -> Path:
    place = paths.HOME / "tmp"
    place.mkdir(parents=True, exist_ok=True)
    return place


def _ours(bench: Bench, live: Deltas, samples: dict[str, list[Sample]]) -> None:
    root = f"s3://{bench.new_target()}"
    samples[FIRST].append(_take(bench, live, root))
    samples[BACK].append(_restore(bench, root))
    for _ in range(CHANGED_BATCHES):
        live.commit()
    samples[NEXT].append(_take(bench, live, root))


def _take(bench: Bench, live: Deltas, root: str) -> Sample:
    out = bench.folder / "answer.json"
    used = measure(bench.taking(live.root, root, out), env=bench.reaching(bench.server.endpoint))
    told = json.loads(out.read_text())
    return Sample(used=used, seconds=told["seconds"], requests=told["requests"])


def _restore(bench: Bench, root: str) -> Sample:
    out, target = bench.folder / "answer.json", bench.folder / "target"
    command = [sys.executable, "-m", "benchmarks.restore", root, str(target), "--out", str(out)]
    used = measure(command, env=bench.reaching(bench.server.endpoint))
    shutil.rmtree(target)
    told = json.loads(out.read_text())
    return Sample(used=used, seconds=told["seconds"], requests=told["requests"])


def _theirs(bench: Bench, live: Deltas, samples: dict[str, list[Sample]]) -> None:
    target, place = bench.new_target(), bench.folder / "target"
    env = bench.reaching(bench.server.endpoint)
    up = measure(s5cmd(live.root, bench.server.endpoint, target), env=env)
    samples[UP].append(Sample(used=up, seconds=up.wall_s, requests=None))
    tool = [str(TOOLS / "s5cmd"), "--log", "error", "--endpoint-url", bench.server.endpoint]
    down = measure([*tool, "cp", f"s3://{target}/*", f"{place}/"], env=env)
    samples[DOWN].append(Sample(used=down, seconds=down.wall_s, requests=None))
    shutil.rmtree(place)


def report(samples: dict[str, list[Sample]], files: int) -> Report:
    """Compare round by round: what slows a round down slows both."""

    def ratio(ours: str, theirs: str, of: str) -> Spread:
        return ratios(
            [getattr(one.used, of) for one in samples[ours]],
            [getattr(one.used, of) for one in samples[theirs]],
        )

    rows = tuple(
        (
            name,
            Spread.of([one.used.wall_s for one in found]).text(" s"),
            Spread.of([one.seconds for one in found]).text(" s"),
            Spread.of([one.used.cpu_s for one in found]).text(" s"),
            f"{found[-1].requests}" if found[-1].requests is not None else f"{files:,} and more",
        )
        for name, found in samples.items()
    )
    nexts = Spread.of([one.seconds for one in samples[NEXT]])
    asked = Spread.of([float(one.requests or 0) for one in samples[FIRST]])
    return Report(
        about=f"{files:,} files of {FILE_BYTES} bytes in the layout of Spark's default state store (a file "
        f"for each batch in each of {PARTITIONS} partitions) from a local disk to versitygw and back, in "
        "turn with s5cmd. Between two savepoints 2 % of the files are added. Wall and CPU are those of the "
        "whole process, Python's start included.",
        tables=(
            Table(
                columns=("what", "wall", "without Python's start", "CPU", "requests"), rows=rows, detail=True
            ),
        ),
        targets=(
            Target(what="first savepoint, wall, of s5cmd's", limit=0.5, found=ratio(FIRST, UP, "wall_s")),
            Target(what="first savepoint, CPU, of s5cmd's", limit=0.5, found=ratio(FIRST, UP, "cpu_s")),
            Target(what="first savepoint: requests", limit=200, found=asked, unit=""),
            Target(what="the next one, 2 % changed", limit=1.0, found=nexts, unit=" s"),
            Target(what="restore, wall, of s5cmd's", limit=0.5, found=ratio(BACK, DOWN, "wall_s")),
            Target(what="restore, CPU, of s5cmd's", limit=0.5, found=ratio(BACK, DOWN, "cpu_s")),
        ),
        raw={name: [asdict(one) for one in found] for name, found in samples.items()},
    )
