"""What people do today: ``cp -r`` and ``aws s3 sync`` of a live checkpoint; beside it our savepoints."""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarks.common import Report, Spread, Table, Target
from testbed import hot, paths
from testbed.drivers import s3_env
from testbed.hot_job import KINDS
from testbed.kafka import Broker
from testbed.s3 import S3Server

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

COPIES, QUICK_COPIES = 50, 4
RATE_PER_S = 400.0
LONGEST_PAUSE_S = 0.5
SEED = 4
BUCKET = "copies"
CP, AWS, OURS = "cp -r", "aws s3 sync", "savepoint"

Outcome = Literal["right", "wrong", "refused", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """One restored copy of one query's checkpoint, or the command that failed to make it."""

    query: str
    path: Path
    complaint: str | None
    """What the command said; None if it ended well."""


class Copier:
    """Makes copies of the live job, each into a folder of its own."""

    def __init__(self, job: hot.HotJob, folder: Path, server: S3Server) -> None:
        self._job, self._folder, self._server = job, folder, server
        self._numbers = itertools.count()

    def cp(self, query: str) -> Copy:
        """Copy with ``cp -r``."""
        target = self._target(query)
        target.parent.mkdir(parents=True)
        return self._run(query, target, ["cp", "-r", str(self._job.live / query), str(target)])

    def aws(self, query: str) -> Copy:
        """Sync to the same place in the bucket each time, as a schedule would, and sync back from there."""
        target, backup = self._target(query), f"s3://{BUCKET}/{query}"
        there = self._run(query, target, self._aws("--delete", str(self._job.live / query), backup))
        return there if there.complaint else self._run(query, target, self._aws(backup, str(target)))

    def savepoint(self, query: str) -> Copy:
        """Take a savepoint and restore it."""
        target = self._target(query)
        manifest = self._job.take(f"copy-{next(self._numbers)}")
        copies = self._job.restore(manifest, target.parent)
        return Copy(query=query, path=copies[query], complaint=None)

    def _target(self, query: str) -> Path:
        return self._folder / str(next(self._numbers)) / query

    def _aws(self, *arguments: str) -> list[str]:
        program = str(paths.VENV_BENCH / "bin" / "aws")
        return [
            program,
            "--endpoint-url",
            self._server.endpoint,
            "s3",
            "sync",
            "--only-show-errors",
            *arguments,
        ]

    def _run(self, query: str, target: Path, command: list[str]) -> Copy:
        env = {"PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true", **s3_env(self._server)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)  # noqa: S603
        complaint = (done.stderr or f"exit code {done.returncode}") if done.returncode else None
        return Copy(query=query, path=target, complaint=complaint)


def run(*, quick: bool) -> Report:
    """Copy in turn at random moments, end the job, then let Spark start every copy."""
    count = QUICK_COPIES if quick else COPIES
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-copies-")))
        broker = stack.enter_context(Broker("bench", folder / "kafka"))
        server = stack.enter_context(S3Server(folder / "s3"))
        starter = stack.enter_context(hot.starter(folder))
        server.create_bucket(BUCKET)
        job = hot.HotJob(folder / "job", broker, "copies")
        stack.enter_context(job.orders)
        job.start(rate_per_s=RATE_PER_S)
        copier = Copier(job, folder / "copies", server)
        copies = make({CP: copier.cp, AWS: copier.aws, OURS: copier.savepoint}, count)
        judging = job.end(starter)
        outcomes = {name: [outcome(judging, copy) for copy in made] for name, made in copies.items()}
    return report(count, outcomes)


def make(methods: Mapping[str, Callable[[str], Copy]], count: int) -> dict[str, list[Copy]]:
    """Let each method copy one query after another, all at random moments."""
    moments = random.Random(SEED)  # noqa: S311  (moments, not secrets)
    copies: dict[str, list[Copy]] = {name: [] for name in methods}
    queries = itertools.cycle(KINDS)
    for _ in range(count):
        query = next(queries)
        for name, method in methods.items():
            time.sleep(moments.uniform(0, LONGEST_PAUSE_S))
            copies[name].append(method(query))
    return copies


def outcome(judging: hot.Judge, copy: Copy) -> tuple[Outcome, str]:
    """Return what became of a copy, and why."""
    if copy.complaint is not None:
        return "failed", copy.complaint[:300]
    (verdict,) = judging.verdicts({copy.query: copy.path})
    return verdict.result, verdict.detail


def report(count: int, outcomes: Mapping[str, list[tuple[Outcome, str]]]) -> Report:
    """Count the outcomes."""
    columns: tuple[Outcome, ...] = ("failed", "refused", "wrong", "right")
    counts = {name: Counter(result for result, _ in found) for name, found in outcomes.items()}
    bad = count - counts[OURS]["right"]
    return Report(
        about=(
            f"{count} copies in each way of a live checkpoint on local disk, at random moments under "
            f"{RATE_PER_S:.0f} records a second, of the HDFS, RocksDB, changelog and format v2 state stores "
            "in turn; files vanish as fast as under a copy of a larger state. Spark started each copy for "
            "one batch; its state was compared, key by key, with what was sent up to its own offsets."
        ),
        tables=(
            Table(
                columns=("copied with", "command failed", "Spark refused", "wrong state", "right"),
                rows=tuple((name, *(str(counts[name][column]) for column in columns)) for name in outcomes),
            ),
        ),
        targets=(Target(what="savepoints that were not right", limit=0, found=Spread.of([bad]), unit=""),),
        raw={name: [list(found) for found in results] for name, results in outcomes.items()},
    )
