"""Runs seeds in lanes: each is a process with a server of its own, and takes the next seed that is left."""

from __future__ import annotations

import logging
import math
import multiprocessing
import shutil
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING

from testbed.s3 import VersityGw
from tests.bad_minutes import preload  # noqa: F401  # quicker clients
from tests.bad_minutes.job import read_ledger
from tests.bad_minutes.judge import judge
from tests.bad_minutes.lab import Lab, StuckError, shorten_waits
from tests.bad_minutes.report import Result

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.queues import SimpleQueue
    from pathlib import Path

    from testbed.s3 import S3Server


def run_lanes(folder: Path, seeds: range, lanes: int, *, until_s: float = math.inf) -> Iterator[Result]:
    """Run seeds in lanes side by side; yields what each came to, and begins no more after a moment."""
    context = multiprocessing.get_context("spawn")
    waiting, results = context.SimpleQueue(), context.SimpleQueue()
    processes = []
    for lane in range(lanes):
        where = (folder / f"lane-{lane}", waiting, results)
        processes.append(context.Process(target=run_lane, args=where, kwargs={"until_s": until_s}))
        processes[-1].start()
    for seed in [*seeds, *[None] * lanes]:  # a pipe holds some ten thousand numbers
        waiting.put(seed)
    running = lanes
    while running:
        result = results.get()
        if result is None:
            running -= 1
            continue
        yield result
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * lanes, "a lane has ended with an error"


def run_lane(
    folder: Path, seeds: SimpleQueue[int | None], results: SimpleQueue[Result | None], *, until_s: float
) -> None:
    """Run seeds until there are no more, or the time is up."""
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        with VersityGw(folder / "server") as server:
            while (seed := seeds.get()) is not None and time.monotonic() < until_s:
                results.put(run_seed(folder / f"seed-{seed}", server, seed))
    finally:
        results.put(None)


def run_seed(folder: Path, server: S3Server, seed: int) -> Result:
    """Run one seed and judge it; its folder stays if something is wrong."""
    shorten_waits()
    began_s = time.monotonic()
    with ExitStack() as stack:
        lab = Lab(folder, server, seed)
        stack.callback(lambda: [lab.processes.kill(pid) for pid in lab.processes.alive()])
        for way in lab.ways.values():
            stack.enter_context(way)
        with _logged(folder):
            try:
                lab.run()
                wrong = judge(lab)
            except StuckError as error:
                wrong = [f"stuck: {error}"]
            except Exception:  # noqa: BLE001  # whatever a caller was told that is no error of the package
                wrong = [traceback.format_exc()]
    result = _result(lab, wrong, time.monotonic() - began_s)
    if not wrong:
        shutil.rmtree(folder)
    return result


def _result(lab: Lab, wrong: list[str], seconds: float) -> Result:
    after_s: dict[str, float] = {}
    for phase in lab.phases:
        after_s[phase.name] = max(after_s.get(phase.name, 0.0), phase.after_s)
    return Result(
        seed=lab.seed,
        wrong=wrong,
        hits=sum((way.hits for way in lab.ways.values()), Counter()),
        requests=sum((way.requests for way in lab.ways.values()), Counter()),
        failures=Counter(
            {
                (phase, code): sum(one.failures[code] for one in lab.phases if one.name == phase)
                for phase, code in {(one.name, code) for one in lab.phases for code in one.failures}
            }
        ),
        phases=Counter(phase.name for phase in lab.phases),
        after_s=after_s,
        drivers=lab.processes.count,
        savepoints=len(lab.savepoints),
        batches=len(read_ledger(lab.folder / "ledger.jsonl")),
        seconds=seconds,
    )


def _logged(folder: Path) -> ExitStack:
    """Write what this process logs meanwhile into the folder."""
    handler = logging.FileHandler(folder / "callers.log")
    handler.setFormatter(logging.Formatter("%(asctime)s %(threadName)s %(name)s %(message)s"))
    root = logging.getLogger()
    for name in ("airflow_flinkstyle", "tests.bad_minutes"):
        logging.getLogger(name).setLevel(logging.INFO)
    root.addHandler(handler)
    stack = ExitStack()
    stack.callback(handler.close)
    stack.callback(root.removeHandler, handler)
    return stack
