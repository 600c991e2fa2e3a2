"""The log of a driver that appends to it all the time."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.spark.log_rotation import keep_log_short
from airflow_flinkstyle.protocol.driver_log import (
    MOST_BYTES,
    PATH_VARIABLE,
    delete_old,
    hold,
    name_of,
    rotate,
    tail,
)
from testbed.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

ROOT, OTHER_ROOT = "8d1f0a2b3c4d", "77aa0a2b3c4d"


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


def a_log(folder: Path, generation: int, *, at_s: int, root: str = ROOT, claim: str = "") -> Path:
    log = folder / name_of("orders", root, generation, claim or f"claim{generation}")
    log.touch()
    os.utime(log, (at_s, at_s))
    return log


def test_logs_of_the_newest_runs_stay_and_no_other_file_goes(tmp_path: Path):
    runs = {number: a_log(tmp_path, number, at_s=number).name for number in range(1, 6)}
    others = {
        *("orders-000001.log", "orders.log", f"{runs[1]}.txt", f"orders2-{ROOT[:8]}-000001-claim1.log"),
        f"orders-{ROOT[:8]}-11111111-000001-claim1.log",
    }
    for name in {f"{runs[1]}.1", f"{runs[1]}.4", f"{runs[4]}.1", *others}:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    assert {path.name for path in delete_old(tmp_path / runs[5], kept=3)} == {
        *(runs[1], f"{runs[1]}.1", f"{runs[1]}.4", runs[2])
    }
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {runs[3], runs[4], f"{runs[4]}.1", runs[5], *others}


def test_start_below_another_root_deletes_no_log_of_this_ones_job_of_the_same_name(tmp_path: Path):
    mine = a_log(tmp_path, 1, at_s=1)
    theirs = [a_log(tmp_path, number, at_s=9, root=OTHER_ROOT) for number in range(1, 23)]
    assert len(delete_old(theirs[-1])) == 2
    assert mine.exists()


def test_log_that_a_driver_writes_to_stays_however_many_runs_came_since(tmp_path: Path):
    """A drill is a run too, and a driver of months may write nothing for days."""
    live = a_log(tmp_path, 1, at_s=1)
    with live.open("ab") as output:
        hold(output)
        driver = subprocess.Popen(
            ["/bin/sh", "-c", "read end; echo ended"], stdin=subprocess.PIPE, stdout=output
        )
    drills = [a_log(tmp_path, number, at_s=number) for number in range(2, 30)]
    gone = delete_old(drills[-1])
    assert drills[0] in gone
    assert live.exists()
    driver.communicate(b"\n")
    assert live.read_text() == "ended\n"
    os.utime(live, (1, 1))
    assert delete_old(drills[-1]) == [live]


def test_driver_rotates_the_log_that_it_holds(tmp_path: Path):
    log = tmp_path / "log"
    with log.open("ab") as output:
        hold(output)
        output.write(b"a\nb\n")
        output.flush()
        assert rotate(log, most_bytes=1)
    assert (tmp_path / "log.1").read_text() == "a\nb\n"


def test_job_that_was_begun_anew_loses_the_logs_of_its_former_life_first(tmp_path: Path):
    former = [a_log(tmp_path, number, at_s=number, claim=f"old{number}") for number in range(1, 21)]
    new = [a_log(tmp_path, number, at_s=100 + number) for number in (1, 2)]
    assert set(delete_old(new[-1])) == set(former[:2])


def test_end_of_a_log_is_what_was_said_and_not_the_settings_of_kafkas_clients(tmp_path: Path):
    settings = "".join(f"\tsetting.{number} = {number}\n" for number in range(90))
    log = tmp_path / "log"
    log.write_text(
        f"before\n26/11/26 INFO AdminClientConfig: AdminClientConfig values: \n{settings}\nIt failed.\n"
    )
    assert tail(log, 3) == "before\n\nIt failed."
