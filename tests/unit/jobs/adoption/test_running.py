"""A job is adopted while plain Spark runs it: each record is counted once, and no failure leads nowhere."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.adoption.ending import EndByCommand, EndByPerson, EndProcess
from airflow_flinkstyle.jobs.adoption.running import ADOPTION_PHASES, RunningAdoption
from airflow_flinkstyle.jobs.cutover.context import CutoverSettings
from airflow_flinkstyle.jobs.errors import (
    OLD_JOB_RUNS,
    ROLLED_BACK,
    AdoptedBeforeError,
    CheckpointWrittenError,
)
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.protocol.home import ADOPTED_KEY, AdoptedMark
from airflow_flinkstyle.protocol.process import process_started
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import BatchId
from testbed.keys import SIGNER
from testbed.refusals import refuses
from tests.unit.jobs.adoption.plain import PlainSpark, watched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.unit.jobs.conftest import Mood, World


class Old(threading.Thread):
    """The driver of plain Spark, and the way to end it."""

    proves_itself = True

    def __init__(self, plain: PlainSpark) -> None:
        super().__init__(daemon=True)
        self.plain, self.ended = plain, threading.Event()
        self.fails_to_end = 0

    def run(self) -> None:
        while not self.ended.wait(0.01):
            self.plain.run(2)

    def prepare(self) -> dict[str, Any]:
        return {"old": "thread"}

    def end(self, what: Mapping[str, Any]) -> str:
        assert what == {"old": "thread"}
        if self.fails_to_end:
            self.fails_to_end -= 1
            raise OLD_JOB_RUNS.with_text("It was expected to end, and does not.", "It runs.", "Try again.")
        self.ended.set()
        self.join(10)
        return "the thread has ended"


@pytest.fixture
def old(world: World) -> Iterator[Old]:
    made = Old(PlainSpark(world, world.folder / "ck"))
    made.plain.run(batches=2)
    made.start()
    yield made
    made.ended.set()
    made.join(10)


def adoption(world: World, old: Old, *, key: str = "adopt", ending: Old | None = None) -> RunningAdoption:
    client = world.client()
    return RunningAdoption(
        client=client,
        journal=CutoverJournal(world.store, world.job, key, ADOPTION_PHASES, signer=SIGNER),
        spec=world.spec(),
        target=world.target(),
        watched=watched(world, old.plain),
        ending=ending or old,
        by="test",
        still_s=0.05,
        settings=CutoverSettings(first_commit_timeout_s=1.0, stop_timeout_s=0.5),
    )


def test_running_job_is_adopted_and_counts_each_record_once(world: World, old: Old):
    world.until(lambda: old.plain.batch > 5)
    producing = threading.Timer(0.2, lambda: world.logs.produce(5))
    producing.start()
    world.logs.produce(5)
    done = adoption(world, old).run()
    assert done.ended == "the thread has ended"
    assert done.batches == {"orders": old.plain.batch}
    assert done.down_s is None or done.down_s >= 0
    world.logs.produce(5)
    producing.join()
    world.judge()
    assert world.alive() == [done.generation]
    assert adoption(world, old).run() == done  # a retry finds it done


def test_driver_that_fails_while_it_waits_leaves_the_old_job_untouched(
    world: World, old: Old, mood: type[Mood]
):
    world.moods["v1.py"] = mood(fails_at_import=True)
    with refuses(ROLLED_BACK, match="The old job runs on"):
        adoption(world, old).run()
    assert not old.ended.is_set()
    assert world.board.home().value.state == "watched"
    with refuses(ROLLED_BACK):
        adoption(world, old).run()


def test_old_job_that_does_not_end_is_asked_again_by_a_retry(world: World, old: Old):
    old.fails_to_end = 1
    with refuses(OLD_JOB_RUNS):
        adoption(world, old).run()
    assert world.board.current() is None
    adoption(world, old).run()
    world.logs.produce(3)
    world.judge()


def test_old_job_that_writes_although_it_should_have_ended_keeps_the_job(world: World, old: Old):
    class Survives(Old):
        def end(self, what: Mapping[str, Any]) -> str:
            old.end(what)
            self.ended.set()
            return "somebody says so"

    surviving = Survives(old.plain)

    def open_and_write(_: str) -> LocalStore:
        if surviving.ended.is_set():  # it writes whenever it is looked at
            old.plain.run()
        return LocalStore(old.plain.place)

    one = adoption(world, old, ending=surviving)
    one.client = replace(one.client, view=replace(one.client.view, open_checkpoint=open_and_write))
    with pytest.raises(CheckpointWrittenError):
        one.run()
    assert world.board.current() is None
    again = adoption(world, old, ending=surviving)
    again.journal.begin(lambda: 0)
    again.give_up("a person gave it up")
    world.until(lambda: world.alive() == [])
    with refuses(ROLLED_BACK, match="told to end"):
        adoption(world, old).run()


def test_old_job_that_takes_its_time_to_end_is_waited_for(world: World, old: Old):
    class Slow(Old):
        def end(self, what: Mapping[str, Any]) -> str:
            threading.Timer(0.3, old.ended.set).start()
            return "it was told to end"

    patient = adoption(world, old, ending=Slow(old.plain))
    patient.settings = CutoverSettings(first_commit_timeout_s=1.0, stop_timeout_s=30)
    patient.still_s = 1.0  # the old job's thread may get no time for longer than the others' twentieth
    assert patient.run().batches == {"orders": old.plain.batch}
    world.logs.produce(3)
    world.judge()


def test_process_and_what_it_started_are_ended_and_no_other_of_its_number():
    sleep = "import time; time.sleep(99)"
    script = f"import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', {sleep!r}])\n"
    script += "print(child.pid, flush=True)\ntime.sleep(99)"
    process = subprocess.Popen([sys.executable, "-c", script, "spark"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        child = int(process.stdout.readline())
    ending = EndProcess(pid=process.pid, grace_s=0.3)
    what = ending.prepare()
    assert set(what["processes"]) == {str(process.pid), str(child)}
    other = {"processes": dict.fromkeys(what["processes"], "another start")}
    ending.end(other)
    assert process.poll() is None
    assert "are gone" in ending.end(what)
    process.wait(10)
    assert process_started(child) is None
    assert "are gone" in ending.end(what)  # a retry
    with pytest.raises(BadInputError, match="found none"):
        EndProcess(pid=process.pid).prepare()
    with subprocess.Popen([sys.executable, "-c", sleep]) as other_one:
        with pytest.raises(BadInputError, match="has no part in"):
            EndProcess(pid=other_one.pid).prepare()
        assert other_one.poll() is None
        other_one.kill()


def test_command_must_succeed_and_the_one_that_looks_too():
    fine, bad = [sys.executable, "-c", ""], [sys.executable, "-c", "raise SystemExit('no such application')"]
    ending = EndByCommand(command=fine, gone=fine)
    assert "gone" in ending.end(ending.prepare())
    with refuses(OLD_JOB_RUNS, match="no such application"):
        EndByCommand(command=bad).end({"command": bad})
    with refuses(OLD_JOB_RUNS, match="gone within"):
        EndByCommand(command=["true"], gone=["false"], timeout_s=1.0).end({"command": ["true"]})
    with pytest.raises(BadInputError):
        EndByCommand(command=[]).prepare()


def test_person_who_did_not_end_it_is_no_end():
    assert "person" in EndByPerson(confirm=lambda: True).end({})
    with refuses(OLD_JOB_RUNS):
        EndByPerson(confirm=lambda: False).end({})


def test_running_job_that_another_one_was_made_of_is_refused_before_its_driver_ends(
    world: World, old: Old, tmp_path: Path
):
    another = type(world)(tmp_path / "another", job="another-job", store=world.store)
    old.plain.checkpoint.write(
        ADOPTED_KEY,
        AdoptedMark(
            root=world.store.uri,
            job=another.job,
            query="orders",
            batch_id=BatchId(1),
            savepoint_id="sp",
            at_ms=1,
        ).to_bytes(),
    )
    with pytest.raises(AdoptedBeforeError, match="another-job"):
        adoption(world, old).run()
    assert (world.board.generations(), old.ended.is_set()) == ([], False)


@contextlib.contextmanager
def a_process(*words: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process with such a command line; it has begun, and does not outlive the test."""
    script = "import time; print('begun', flush=True); time.sleep(99)"
    with subprocess.Popen(
        [sys.executable, "-c", script, "spark", *words], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "mode", ["--deploy-mode cluster", "--deploy-mode=cluster", "--conf spark.submit.deployMode=cluster"]
)
def test_submitter_of_a_driver_elsewhere_is_not_taken_for_the_driver(mode: str):
    with a_process(*mode.split()) as submitter:
        with pytest.raises(BadInputError, match="runs on a cluster"):
            EndProcess(pid=submitter.pid).prepare()
        assert submitter.poll() is None


def test_retry_that_names_another_process_ends_both():
    with a_process() as first, a_process() as again:
        for process in (first, again):
            threading.Thread(target=process.wait, daemon=True).start()
        what = EndProcess(pid=first.pid).prepare()
        assert "are gone" in EndProcess(pid=again.pid, grace_s=5.0).end(what)
        assert process_started(first.pid) is None
        assert process_started(again.pid) is None
