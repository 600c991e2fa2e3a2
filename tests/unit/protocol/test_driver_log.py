"""The log of a driver that appends to it all the time."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.jvm.log_rotation import keep_log_short
from airflow_flinkstyle.protocol.driver_log import MOST_BYTES, PATH_VARIABLE, delete_old, rotate, tail
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_log_within_its_limit_stays_as_it_is(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("a\nb\n")
    assert not rotate(log, most_bytes=4)
    assert log.read_text() == "a\nb\n"
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_larger_log_is_rotated_and_the_oldest_goes(tmp_path: Path):
    log = tmp_path / "log"
    for number in range(5):
        with log.open("a") as output:
            output.write(f"{number}\n")
        assert rotate(log, most_bytes=1, kept=3)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"log": "", "log.1": "4\n", "log.2": "3\n", "log.3": "2\n"}


def test_writer_goes_on_in_the_emptied_log_and_the_tail_crosses_the_rotation(tmp_path: Path):
    log = tmp_path / "log"
    with log.open("ab") as output:
        writer = subprocess.Popen(
            ["/bin/sh", "-c", "echo one; echo two; read go; echo three"], stdin=subprocess.PIPE, stdout=output
        )
    wait_until("two lines are written", lambda: log.read_text() == "one\ntwo\n")
    assert rotate(log, most_bytes=4)
    assert tail(log, 2) == "one\ntwo"
    writer.communicate(b"go\n")
    assert writer.returncode == 0
    assert log.read_text() == "three\n"
    assert tail(log, 2) == "two\nthree"
    assert tail(log, 1) == "three"


def test_log_that_cannot_be_copied_is_left_as_it_is(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text("a\nb\n")
    (tmp_path / "log.0").mkdir()
    with pytest.raises(IsADirectoryError):
        rotate(log, most_bytes=1)
    assert log.read_text() == "a\nb\n"


def test_agent_rotates_the_log_that_its_environment_names(tmp_path: Path):
    log = tmp_path / "log"
    with log.open("wb") as output:
        output.truncate(MOST_BYTES + 1)
    keep_log_short({PATH_VARIABLE: str(log)})
    wait_until("the log is rotated", lambda: (tmp_path / "log.1").exists() and log.stat().st_size == 0)
    assert (tmp_path / "log.1").stat().st_size == MOST_BYTES + 1


def test_logs_of_the_newest_runs_stay_and_no_other_file_goes(tmp_path: Path):
    runs = {number: f"orders-{number:06d}.log" for number in range(1, 6)}
    others = {"orders-000001-000001.log", "orders2-000001.log", "orders-000001.log.txt", "orders-x.log"}
    for name in {*runs.values(), f"{runs[1]}.1", f"{runs[1]}.4", f"{runs[4]}.1", *others}:
        (tmp_path / name).touch()
    assert {path.name for path in delete_old(tmp_path / runs[5], kept=3)} == {
        *(runs[1], f"{runs[1]}.1", f"{runs[1]}.4", runs[2])
    }
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {runs[3], runs[4], f"{runs[4]}.1", runs[5], *others}
