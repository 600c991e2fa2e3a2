from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.jobs.deployments.base import OF_ANOTHER, Alive, Gone, Submission, Unknown
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment, _of_process
from airflow_flinkstyle.jobs.errors import DiesWithStarterError, DriverFailedError, NotTakenError
from airflow_flinkstyle.protocol.process import boot_id, pid_namespace, process_started
from airflow_flinkstyle.protocol.records import IncarnationRecord

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def deployment() -> Iterator[tuple[DetachedDeployment, list[dict[str, str]]]]:
    deployment, ids = DetachedDeployment(), []
    yield deployment, ids
    for native_id in ids:
        deployment.end({**native_id, "claim": "c1"})


def a_submission(tmp_path: Path, *argv: str, claim_id: str = "c1") -> Submission:
    marker = ("--root", str(tmp_path), "--job", "j", "--claim", claim_id, "--generation", "1")
    return Submission(
        argv=("/bin/bash", "-c", *argv, *marker),
        marker=marker,
        env={"PATH": "/usr/bin:/bin"},
        cwd=str(tmp_path),
        log_path=str(tmp_path / "logs" / "driver.log"),
    )


def until(condition: object) -> None:
    deadline = time.monotonic() + 10
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_driver_is_alive_then_gone_and_its_log_can_be_read(tmp_path: Path, deployment: tuple):
    detached, ids = deployment
    ids.append(detached.submit(a_submission(tmp_path, "echo hello; sleep 0.3; echo world")))
    assert detached.state(ids[0]) == Alive()
    until(lambda: detached.state(ids[0]) == Gone())
    assert detached.log_tail(ids[0]) == "hello\nworld"
    assert detached.log_tail(ids[0], lines=1) == "world"


def test_where_drivers_would_end_with_the_task_the_start_is_refused_unless_that_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deployment: tuple
):
    _, ids = deployment
    monkeypatch.setenv("AIRFLOW_IS_K8S_EXECUTOR_POD", "True")
    with pytest.raises(DiesWithStarterError) as refused:
        DetachedDeployment().submit(a_submission(tmp_path, "sleep 66; true"))
    assert "executor='CeleryExecutor'" in str(refused.value)
    assert "driver_may_end_with_worker" in str(refused.value)
    accepting = DetachedDeployment(may_end_with_starter=True)
    ids.append(accepting.submit(a_submission(tmp_path, "sleep 66; true")))
    assert accepting.state(ids[0]) == Alive()


def test_of_a_log_of_months_the_end_is_read_only(tmp_path: Path):
    path = tmp_path / "log"
    with path.open("wb") as log:
        log.truncate(64 << 30)  # sparse: more than fits into memory
        log.seek(0, 2)
        log.write(b"\nlast but one\nlast \xff\n")
    found = DetachedDeployment().log_tail({"log": str(path)}, lines=2)
    assert found == "last but one\nlast \N{REPLACEMENT CHARACTER}"


def test_process_that_is_no_driver_is_not_ended_whoever_names_it(deployment: tuple):
    detached, _ = deployment
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as other:
        try:
            started = process_started(other.pid) or ""
            process = {"pid": other.pid, "jvm_pid": other.pid, "pid_started": started, "started_at_ms": 0}
            native_id = detached.native_id(
                IncarnationRecord(host="here", pid_namespace=pid_namespace(), **process)
            )
            until(lambda: Path(f"/proc/{other.pid}/cmdline").read_bytes())
            assert detached.end({**native_id, "claim": "c1"}) == Unknown(OF_ANOTHER)
            assert detached.state(native_id) == Alive()
        finally:
            other.kill()


def test_lost_driver_is_found_by_its_command_line(tmp_path: Path, deployment: tuple):
    detached, ids = deployment
    submission = a_submission(tmp_path, "sleep 60; true")
    assert detached.find(submission) is None
    ids.append(detached.submit(submission))
    until(lambda: detached.find(submission) == ids[0])
    # Another store may hold the same root, job and generation: its driver is not this one.
    assert detached.find(a_submission(tmp_path, "sleep 60; true", claim_id="c2")) is None


def test_driver_is_found_while_its_process_replaces_itself(tmp_path: Path, deployment: tuple):
    detached, ids = deployment
    again = 'export N=$((N + 1)); [ $N -lt 2000 ] && exec /bin/bash -c "$BASH_EXECUTION_STRING" "$0" "$@"; '
    submission = a_submission(tmp_path, again + "sleep 60; true")
    ids.append(detached.submit(submission))
    assert [detached.find(submission) for _ in range(100)] == ids * 100


def test_end_kills_the_whole_session(tmp_path: Path, deployment: tuple):
    detached, ids = deployment
    ids.append(detached.submit(a_submission(tmp_path, "sleep 61 & echo $! > child; wait")))
    until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
    child = int((tmp_path / "child").read_text())
    assert detached.end({**ids[0], "claim": "c1"}) == Gone()
    until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text())


def test_end_reaches_a_child_whose_leader_is_gone_already(tmp_path: Path, deployment: tuple):
    detached, ids = deployment
    ids.append(detached.submit(a_submission(tmp_path, "sleep 62 & echo $! > child; exit 1")))
    until(lambda: detached.state(ids[0]) == Gone() and (tmp_path / "child").read_text().strip())
    child = int((tmp_path / "child").read_text())
    assert detached.end({**ids[0], "claim": "c1"}) == Gone()
    until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text())


def test_child_that_ends_while_it_is_looked_at_is_not_taken_for_another_ones(
    tmp_path: Path, deployment: tuple, monkeypatch: pytest.MonkeyPatch
):
    """A driver's Python sees that its JVM was killed, and ends by itself: it has no command line then."""
    detached, ids = deployment
    ids.append(detached.submit(a_submission(tmp_path, "sleep 63 & echo $! > child; exit 1")))
    until(lambda: detached.state(ids[0]) == Gone() and (tmp_path / "child").read_text().strip())
    child = int((tmp_path / "child").read_text())

    def read_late(pid: int, what: str) -> bytes:
        if pid == child:  # and no other process of this machine that is read
            os.kill(pid, signal.SIGKILL)
            until(lambda: process_started(pid) is None)
        return _of_process(pid, what)

    monkeypatch.setattr("airflow_flinkstyle.jobs.deployments.detached._of_process", read_late)
    assert detached.end({**ids[0], "claim": "c1"}) == Gone()


def test_end_reaches_workers_with_a_process_group_of_their_own_also_frozen_ones(
    tmp_path: Path, deployment: tuple
):
    """Spark's Python workers: a new driver must not begin beside one that wakes up."""
    detached, ids = deployment
    worker = (
        "import os, signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.setpgid(0, 0); "
        "open('child', 'w').write(str(os.getpid())); time.sleep(66)"
    )
    ids.append(detached.submit(a_submission(tmp_path, f'{sys.executable} -c "{worker}" & wait')))
    until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
    child = int((tmp_path / "child").read_text())
    os.kill(int(ids[0]["pid"]), signal.SIGKILL)
    until(lambda: detached.state(ids[0]) == Gone())
    os.kill(child, signal.SIGSTOP)  # not before: a group that loses its session's leader is woken up
    assert detached.end({**ids[0], "claim": "c1"}) == Gone()
    assert process_started(child) is None


def test_driver_whose_leader_thread_has_ended_lives_while_another_thread_writes(
    tmp_path: Path, deployment: tuple
):
    """Of a killed JVM the leader ends at once; a thread that writes to a disk that hangs ends late."""
    detached, ids = deployment
    ends_alone = (
        "import ctypes, platform, threading, time; threading.Thread(target=time.sleep, args=(67,)).start(); "
        "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)"
    )
    submission = a_submission(tmp_path, f'exec {sys.executable} -c "{ends_alone}" "$0" "$@"')
    ids.append(detached.submit(submission))
    pid = int(ids[0]["pid"])
    until(lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text())
    assert process_started(pid) == ids[0]["started"]
    assert detached.state(ids[0]) == Alive()
    assert detached.find(submission) == ids[0]
    assert detached.end({**ids[0], "claim": "c1"}) == Gone()
    assert process_started(pid) is None


def test_reused_pid_is_not_taken_for_the_driver(tmp_path: Path, deployment: tuple):
    detached, ids = deployment
    ids.append(detached.submit(a_submission(tmp_path, "sleep 63; true")))
    other = {**ids[0], "started": f"1@{boot_id()}"}
    assert detached.state(other) == Gone()
    assert detached.end(other) == Gone()
    assert detached.state(ids[0]) == Alive()  # whoever has the number now was not killed


@pytest.mark.parametrize(
    "other",
    [
        {"started": "1@another boot"},  # another machine, though it may have the same name
        {"namespace": "4026599999"},  # a container on this machine
        {"namespace": ""},  # it could not tell
        {"started": "ended"},
    ],
)
def test_pid_of_another_boot_or_namespace_is_unknown_never_gone(
    tmp_path: Path, deployment: tuple, other: dict[str, str]
):
    detached, ids = deployment
    ids.append(detached.submit(a_submission(tmp_path, "sleep 64; true")))
    native_id = {**ids[0], **other}
    assert isinstance(detached.state(native_id), Unknown)
    assert isinstance(detached.end(native_id), Unknown)
    assert detached.state(ids[0]) == Alive()


def test_who_cannot_tell_its_own_pids_sees_no_process(tmp_path: Path, deployment: tuple):
    detached, ids = deployment
    ids.append(detached.submit(a_submission(tmp_path, "sleep 65; true")))
    unsure = DetachedDeployment(namespace="")
    assert isinstance(unsure.state({**ids[0], "namespace": ""}), Unknown)


def test_program_that_is_missing_is_a_clear_error(tmp_path: Path):
    submission = Submission(
        argv=("/nonexistent/spark-submit",), marker=("x",), env={}, cwd=None, log_path=str(tmp_path / "l")
    )
    with pytest.raises(DriverFailedError, match="/nonexistent/spark-submit") as refused:
        DetachedDeployment().submit(submission)
    assert not refused.value.retryable


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EMFILE])
def test_machine_that_has_no_process_or_room_left_may_take_the_driver_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(NotTakenError, match=os.strerror(number)):
        DetachedDeployment().submit(a_submission(tmp_path, "true"))


def test_states_are_words_in_a_log():
    said = [str(state) for state in (Alive(), Gone(), Unknown("it is on another host"))]
    assert said == [
        "it runs",
        "it has ended",
        "nobody here can tell whether it runs: it is on another host",
    ]
