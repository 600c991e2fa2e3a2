"""Savepoints of large state to S3, beside tools that copy the same files; and what changes with the size."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.savepoint.manifest_json import from_json, to_json
from airflow_flinkstyle.savepoint.repository.repository import SavepointRepository
from airflow_flinkstyle.savepoint.repository.summary import list_savepoints
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.storage.open import open_store
from airflow_flinkstyle.storage.s3_settings import S3Settings
from benchmarks.common import MIB, PAIRS, Report, Spread, Table, Target, Usage, interleave, measure, ratios
from benchmarks.signing import payload_of
from benchmarks.synthetic import SyntheticCheckpoint
from testbed import paths
from testbed.s3 import VersityGw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SIZE_MIB, QUICK_MIB = 1536, 48
SIZES_MIB, QUICK_SIZES_MIB = (100, 1024, 5120), (8, 16, 32)
CHANGED = 0.02
SAVEPOINTS, QUICK_SAVEPOINTS = 10_000, 200
BUCKET = "savepoints"
TOOLS = paths.HOME / "venv-bench" / "bin"
PLOT = paths.ROOT / "docs" / "savepoint-time.svg"
OURS, NEXT = "savepoint, full", "savepoint, 2 % changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One copy."""

    used: Usage
    """Of the whole process, Python's start included."""
    seconds: float
    """Of the savepoint alone, as inside a driver that runs anyway; the whole process for other tools."""


class Bench:
    """A server, and one way to run each contender."""

    def __init__(self, folder: Path, server: VersityGw) -> None:
        self.folder, self.server = folder, server
        self.env = {
            **os.environ,
            "AWS_ACCESS_KEY_ID": server.access_key,
            "AWS_SECRET_ACCESS_KEY": server.secret_key,
            "AWS_REGION": server.region,
            "PYTHONPATH": str(paths.ROOT),
            "RCLONE_CONFIG": os.devnull,
        }
        self._targets = itertools.count()

    def take(self, checkpoint: Path, root: str) -> Sample:
        """Take a savepoint in a process of its own; the newest one at the root is its predecessor."""
        out = self.folder / "answer.json"
        used = measure(self.taking(checkpoint, root, out), env=self.reaching(self.server.endpoint))
        return Sample(used=used, seconds=json.loads(out.read_text())["seconds"])

    def copy(self, command: Callable[[Path, str, str], list[str]], checkpoint: Path) -> Sample:
        """Let a tool copy all files of the checkpoint."""
        endpoint = self.server.endpoint
        used = measure(command(checkpoint, endpoint, self.new_target()), env=self.reaching(endpoint))
        return Sample(used=used, seconds=used.wall_s)

    def new_target(self) -> str:
        """Return a place in the bucket where nothing is."""
        return f"{BUCKET}/{next(self._targets)}"

    def empty(self) -> None:
        """Remove what was copied; what the disk still owes then belongs to nobody's measurement."""
        for place in (self.server.data / BUCKET).iterdir():
            if place.is_dir():
                shutil.rmtree(place)
        os.sync()

    def reaching(self, endpoint: str) -> dict[str, str]:
        """Return the environment in which every contender finds keys and server."""
        return {**self.env, "AWS_ENDPOINT_URL_S3": endpoint}

    @staticmethod
    def taking(checkpoint: Path, root: str, out: Path) -> list[str]:
        """Return the command that takes a savepoint."""
        return [sys.executable, "-m", "benchmarks.take", str(checkpoint), root, "--out", str(out)]


def s5cmd(checkpoint: Path, endpoint: str, target: str) -> list[str]:
    """Return the command; its defaults are 256 workers and 5 parts of 50 MiB."""
    tool = str(TOOLS / "s5cmd")
    return [tool, "--log", "error", "--endpoint-url", endpoint, "cp", f"{checkpoint}/", f"s3://{target}/"]


def rclone(checkpoint: Path, endpoint: str, target: str) -> list[str]:
    """Return the command, with as many transfers as a savepoint has."""
    where = ["--s3-provider", "Other", "--s3-endpoint", endpoint, "--s3-env-auth", "--s3-no-check-bucket"]
    return [str(TOOLS / "rclone"), "copy", "--transfers", "8", *where, str(checkpoint), f":s3:{target}"]


def aws(checkpoint: Path, endpoint: str, target: str) -> list[str]:
    """Return the command with its defaults."""
    tool = [str(TOOLS / "python"), str(TOOLS / "aws")]
    return [*tool, "--endpoint-url", endpoint, "s3", "sync", "--quiet", str(checkpoint), f"s3://{target}"]


COPIERS = {"s5cmd cp": s5cmd, "rclone copy": rclone, "aws s3 sync": aws}


def run(*, quick: bool) -> Report:
    """Measure copies, then sizes, then listings."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-copy-")))
        server = stack.enter_context(VersityGw(folder / "s3"))
        server.create_bucket(BUCKET)
        bench = Bench(folder, server)
        samples = copies(bench, quick=quick)
        sizes = by_size(bench, quick=quick)
        listings = list_many(bench, quick=quick)
        if not quick:
            plot(sizes)
        payloads = {name: payload(bench, name) for name in (OURS, *COPIERS)}
    return report(samples, sizes, listings, payloads, quick=quick)


def copies(bench: Bench, *, quick: bool) -> dict[str, list[Sample]]:
    """Let every contender copy the same checkpoint in turn; after ours, a piece changes and ours goes on."""
    size_mib = QUICK_MIB if quick else SIZE_MIB
    with a_checkpoint(bench, size_mib) as checkpoint:
        nexts: list[Sample] = []

        def ours() -> Sample:
            root = f"s3://{bench.new_target()}"
            full = bench.take(checkpoint.root, root)
            checkpoint.replace_bytes(int(CHANGED * size_mib * MIB))
            os.sync()
            nexts.append(bench.take(checkpoint.root, root))
            bench.empty()
            return full

        def other(command: Callable[[Path, str, str], list[str]]) -> Sample:
            sample = bench.copy(command, checkpoint.root)
            bench.empty()
            return sample

        contenders: dict[str, Callable[[], Sample]] = {OURS: ours}
        for name, command in COPIERS.items():
            contenders[name] = lambda command=command: other(command)  # type: ignore[misc]
        results = interleave(contenders, rounds=1 if quick else PAIRS)
    return {OURS: results.pop(OURS), NEXT: nexts, **results}


@contextlib.contextmanager
def a_checkpoint(bench: Bench, size_mib: int) -> Iterator[SyntheticCheckpoint]:
    """Write a checkpoint of that size, and remove it."""
    place = bench.folder / "checkpoint"
    checkpoint = SyntheticCheckpoint(place, size_mib * MIB)
    os.sync()
    yield checkpoint
    shutil.rmtree(place)


def by_size(bench: Bench, *, quick: bool) -> dict[int, list[float]]:
    """Return seconds of full savepoints by size in MiB."""
    found: dict[int, list[float]] = {}
    for size_mib in QUICK_SIZES_MIB if quick else SIZES_MIB:
        with a_checkpoint(bench, size_mib) as checkpoint:
            found[size_mib] = []
            for _ in range(1 if quick else 3):
                found[size_mib].append(bench.take(checkpoint.root, f"s3://{bench.new_target()}").seconds)
                bench.empty()
    return found


def list_many(bench: Bench, *, quick: bool) -> dict[str, list[float]]:
    """Return seconds of listings of many savepoints, by store; the first one, which reads all, is apart."""
    count = QUICK_SAVEPOINTS if quick else SAVEPOINTS
    server = bench.server
    settings = S3Settings(
        endpoint=server.endpoint, access_key=server.access_key, secret_key=server.secret_key
    )
    root = bench.folder / "many"
    stores = {
        "local disk": LocalStore(root),
        "versitygw": open_store(f"s3://{bench.new_target()}", settings),
    }
    found: dict[str, list[float]] = {}
    for name, store in stores.items():
        repository = SavepointRepository(store, "bench")
        fill(repository, bench, count)
        for _ in range(1 + (2 if quick else PAIRS)):
            began_s = time.monotonic()
            listed = list_savepoints(repository)
            found.setdefault(name, []).append(time.monotonic() - began_s)
            if len(listed) != count:
                raise RuntimeError(f"Expected {count} savepoints in {name}, found {len(listed)}.")
    shutil.rmtree(root)
    return found


def fill(repository: SavepointRepository, bench: Bench, count: int) -> None:
    """Publish many savepoints with the files of a real one; their blobs do not matter here."""
    from concurrent.futures import ThreadPoolExecutor

    with a_checkpoint(bench, QUICK_MIB) as checkpoint:
        root = bench.folder / "one"
        bench.take(checkpoint.root, str(root))
    one = from_json(next((root / "bench" / "savepoints").iterdir()).read_text())
    shutil.rmtree(root)

    def publish(number: int) -> None:
        manifest = replace(one, savepoint_id=f"sp-{number:020}", taken_at_ms=number, job=repository.job)
        key = f"{repository.job}/savepoints/{manifest.savepoint_id}.json"
        repository.store.write(key, to_json(manifest).encode())

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(publish, range(count)))


def payload(bench: Bench, name: str) -> str:
    """Return whether a contender signs its payload."""
    place = bench.folder / "one-file"
    SyntheticCheckpoint(place, MIB)

    def send(endpoint: str) -> None:
        if name == OURS:
            command = bench.taking(place, f"s3://{BUCKET}", bench.folder / "answer.json")
        else:
            command = COPIERS[name](place, endpoint, BUCKET)
        env = bench.reaching(endpoint)
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, env=env, capture_output=True, timeout=30, stdin=subprocess.DEVNULL)  # noqa: S603

    try:
        return payload_of(send)
    finally:
        shutil.rmtree(place)


def plot(sizes: Mapping[int, list[float]]) -> None:
    """Draw seconds over size."""
    script = Path(__file__).with_name("plot.py")
    command = [str(TOOLS / "python"), str(script), str(PLOT)]
    subprocess.run(command, input=json.dumps(sizes), text=True, check=True)  # noqa: S603


def report(
    samples: Mapping[str, list[Sample]],
    sizes: Mapping[int, list[float]],
    listings: Mapping[str, list[float]],
    payloads: Mapping[str, str],
    *,
    quick: bool,
) -> Report:
    """Put the tables together."""
    size_mib, count = (QUICK_MIB, QUICK_SAVEPOINTS) if quick else (SIZE_MIB, SAVEPOINTS)
    wall = {name: [one.used.wall_s for one in found] for name, found in samples.items()}
    cpu = {name: [one.used.cpu_s for one in found] for name, found in samples.items()}
    inside = {name: [one.seconds for one in found] for name, found in samples.items()}
    peak_mib = {name: [one.used.peak_rss_bytes / MIB for one in found] for name, found in samples.items()}
    rows = tuple(
        (
            name,
            payloads[OURS if name == NEXT else name],
            Spread.of(wall[name]).text(" s"),
            Spread.of(inside[name]).text(" s") if name in {OURS, NEXT} else "",
            Spread.of(cpu[name]).text(" s"),
            Spread.of(peak_mib[name]).text(" MiB", 0),
            ratios(wall[OURS], wall[name]).text("x"),
            ratios(cpu[OURS], cpu[name]).text("x"),
        )
        for name in samples
    )
    full = f"full savepoint, {size_mib} MiB, against s5cmd"
    targets = [
        Target(what=f"{full}: wall time", limit=0.6, found=ratios(wall[OURS], wall["s5cmd cp"])),
        Target(what=f"{full}: CPU time", limit=0.7, found=ratios(cpu[OURS], cpu["s5cmd cp"])),
        Target(what="memory of the taker", limit=200, found=Spread.of(peak_mib[OURS]), unit=" MiB"),
        Target(
            what="second savepoint, 2 % changed, against the full one",
            limit=0.1,
            found=ratios(inside[NEXT], inside[OURS]),
        ),
    ]
    for name, seconds in listings.items():
        found = Spread.of(seconds[1:])
        targets.append(
            Target(what=f"listing {count:,} savepoints, {name}", limit=1.0, found=found, unit=" s")
        )
    copied = Table(
        columns=(
            "",
            "payload",
            "wall",
            "without Python's start",
            "CPU",
            "peak memory",
            "full: wall",
            "full: CPU",
        ),
        rows=rows,
    )
    grown = Table(
        columns=("size", "full savepoint", "MiB/s"),
        rows=tuple(
            (f"{mib} MiB", Spread.of(found).text(" s"), f"{mib / Spread.of(found).median:.0f}")
            for mib, found in sizes.items()
        ),
        detail=True,
    )
    listed = Table(
        columns=("store", f"{count:,} savepoints", "the first time, reading all"),
        rows=tuple(
            (name, Spread.of(found[1:]).text(" s"), f"{found[0]:.1f} s") for name, found in listings.items()
        ),
        detail=True,
    )
    return Report(
        about=(
            f"{size_mib} MiB of state in RocksDB's file sizes to versitygw on loopback, every file hashed; "
            "the other tools copy the same files and hash nothing for themselves. CPU and memory are the "
            "client's. The last two columns divide the full savepoint by the row."
        ),
        tables=(copied, grown, listed),
        targets=tuple(targets),
        raw=_raw(samples, sizes, listings),
    )


def _raw(
    samples: Mapping[str, list[Sample]],
    sizes: Mapping[int, list[float]],
    listings: Mapping[str, list[float]],
) -> dict[str, Any]:
    copied = {name: [asdict(one) for one in found] for name, found in samples.items()}
    return {"copies": copied, "seconds_by_mib": dict(sizes), "listings": dict(listings)}
