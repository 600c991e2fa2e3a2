"""The tools of the chaos run: a shot hits what it was aimed at, and a run that killed too little fails."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.kafka.audit.id_counts import FoundId, TopicVerdict, Wrong
from testbed.chaos_plan import CLUSTER, DRIVER_ZOMBIE, PHASES, StagePlan, small, whole
from testbed.chaos_processes import freeze_worker
from testbed.chaos_report import Hit, Report, StageResult
from testbed.chaos_trace import Sight, Trace
from testbed.chaos_zombies import Zombie

if TYPE_CHECKING:
    from collections.abc import Iterator

MIX = {**CLUSTER, DRIVER_ZOMBIE: 1}
NONE = Wrong(count=0, first=())
ONE = Wrong(count=1, first=(FoundId(id="7", at=()),))


def a_result(*, missing: Wrong = NONE, doubled: Wrong = NONE) -> StageResult:
    verdict = TopicVerdict(
        topic="out",
        read=10,
        distinct=10,
        expected=10,
        missing=missing,
        doubled=doubled,
        unexpected=NONE,
        without_id=NONE,
        held_back=0,
        deleted=0,
        hidden=3,
    )
    return StageResult(
        plan=StagePlan(plan="stateful", on_cluster=True, kills=40, mix=MIX),
        hits=tuple(Hit(target=target, phase=phase) for target in MIX for phase in PHASES),
        thawed=2,
        woken=Counter(commit=1),
        relaunched=0,
        replays_skipped=4,
        verdict=verdict,
        seconds=9.0,
    )


def test_strikes_at_small_batches_wait_for_no_phase_that_comes_once_a_run():
    assert all("init" not in plan.phases for plan in small(12))
    assert all(plan.phases == PHASES for plan in whole(300))


def a_report(result: StageResult) -> Report:
    return Report(results=[result], seed=1, seconds=9.0)


def test_run_that_kept_its_promises_is_right_and_its_table_adds_up():
    report = a_report(a_result())
    assert report.broken_promises(40) == []
    assert f"| all | {' | '.join(['8'] * len(PHASES))} | 40 |" in report.as_markdown()


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (a_result(missing=ONE), "missing 1 (7)"),
        (a_result(doubled=ONE), "doubled 1 (7)"),
        (replace(a_result(), hits=a_result().hits[:-1]), "40 kills were promised, 39 done"),
        (
            replace(a_result(), hits=[hit for hit in a_result().hits if hit.phase != "marker"] * 2),
            "2 kills in marker were promised, 0 confirmed",
        ),
        (
            replace(a_result(), hits=[hit for hit in a_result().hits if hit.target.kind != "broker"] * 2),
            "no broker, killed",
        ),
        (replace(a_result(), replays_skipped=0), "no replay was skipped"),
        (replace(a_result(), thawed=0), "no zombie was thawed"),
        (replace(a_result(), woken=Counter()), "no zombie went on"),
    ],
    ids=["lost", "doubled", "too-few", "phase", "kind", "replays", "thawed", "woken"],
)
def test_run_that_broke_a_promise_names_it(result: StageResult, problem: str):
    (found,) = a_report(result).broken_promises(40)
    assert problem in found


def test_stages_make_all_kills_together_whatever_is_left_out():
    assert sum(stage.kills for stage in whole(300)) >= 300
    (only,) = whole(30, ["local", "stateful"])
    assert (only.name, only.kills, only.on_cluster) == ("local stateful", 30, False)


def test_everything_of_a_mix_is_struck_early_and_then_in_proportion():
    (stage,) = whole(300, ["cluster", "stateless"])
    moments = random.Random(1)  # noqa: S311  # no secrets
    dealt = list(islice(stage.deal(moments), len(CLUSTER) + sum(CLUSTER.values())))
    assert set(dealt[: len(CLUSTER)]) == set(CLUSTER)
    assert Counter(dealt[len(CLUSTER) :]) == CLUSTER


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    with Trace(tmp_path) as trace:
        yield trace


WRITER = """
import os, sys, time
for number, phase in enumerate(["init", "data", "pre-commit"]):
    with open(sys.argv[1], "w") as pipe:
        pipe.write(f"{time.monotonic_ns()} {os.getpid()} 1 0 0 {phase}\\n")
    time.sleep(0.2 if phase == "init" else 30)
"""


def test_shot_kills_the_process_in_the_phase_that_it_was_aimed_at(trace: Trace):
    struck = trace.aim(
        lambda sight: sight.phase == "data", delay_s=0.01, strike=lambda pid: os.kill(pid, signal.SIGKILL)
    )
    with subprocess.Popen([sys.executable, "-c", WRITER, str(trace.pipe)]) as child:
        shot = struck.result(20)
        assert child.wait(10) == -signal.SIGKILL
    assert shot.sight.pid == child.pid
    assert shot.at_ns - shot.sight.at_ns > 10_000_000
    assert trace.phase_of(shot) == "data"
    assert [sight.phase for sight in trace.sights] == ["init", "data"]


def test_shot_at_a_process_that_has_gone_is_tried_with_the_next(trace: Trace):
    tried: list[int] = []

    def strike(pid: int) -> None:
        tried.append(pid)
        if pid == 1:
            raise ProcessLookupError(pid)

    struck = trace.aim(lambda _: True, delay_s=0, strike=strike)
    told = [a_sight(pid=pid, at_ns=time.monotonic_ns()) for pid in (1, 2, 3)]
    trace.pipe.write_bytes(b"".join(line_of(sight) for sight in told))
    assert struck.result(20).sight.pid == 2
    trace.sync()
    assert (tried, len(trace.sights)) == ([1, 2], 3)


def a_sight(*, pid: int = 7, at_ns: int = 1, batch: int = 5, shard: int = 0, incarnation: int = 1) -> Sight:
    return Sight(at_ns=at_ns, pid=pid, incarnation=incarnation, batch=batch, shard=shard, phase="data")


def line_of(sight: Sight) -> bytes:
    return f"{sight.at_ns} {sight.pid} {sight.incarnation} {sight.batch} {sight.shard} data\n".encode()


def test_zombie_is_thawed_once_others_have_overtaken_its_shard(trace: Trace):
    zombie = Zombie(sight=a_sight(), frozen_ns=10, pids=(), patience=2)
    told = [
        a_sight(pid=8, at_ns=9),  # before it was frozen
        a_sight(pid=8, at_ns=11, shard=1),  # another shard
        a_sight(pid=8, at_ns=12, batch=4),  # an earlier batch
        a_sight(pid=7, at_ns=13),  # itself
        a_sight(pid=8, at_ns=14),
    ]
    trace.pipe.write_bytes(b"".join(map(line_of, told)))
    trace.sync()
    assert not zombie.is_due(trace)
    trace.pipe.write_bytes(line_of(a_sight(pid=9, at_ns=15, batch=6, shard=1)))
    trace.sync()
    assert zombie.is_due(trace)


TREE = """
import os, sys, time
daemon = os.fork()
if daemon == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        print(os.getpid(), flush=True)
else:
    os.wait()
time.sleep(60)
"""


def test_frozen_worker_outlives_its_daemon_and_its_driver():
    command = [sys.executable, "-c", TREE, "pyspark.daemon"]  # driver, daemon and worker
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        worker = int(driver.stdout.readline())
        freeze_worker(worker)
        driver.kill()
    try:
        time.sleep(0.2)
        assert state_of(worker) == "T"
    finally:
        os.kill(worker, signal.SIGKILL)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
