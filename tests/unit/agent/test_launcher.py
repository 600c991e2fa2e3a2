"""What a driver begins with, and says of a script that left by itself."""

from __future__ import annotations

import argparse
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle.agent.core.errors import NOT_CLAIMED
from airflow_flinkstyle.agent.core.process import EXIT_JVM_GONE
from airflow_flinkstyle.agent.launcher import _exit_reason, _open, _parse
from testbed.ports import free_port
from testbed.refusals import refuses

if TYPE_CHECKING:
    from pathlib import Path


def needs_an_argument() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--window", required=True)
    parser.parse_args([])


def takes_a_number() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--window", type=int)
    parser.parse_args(["--window", "long"])


def leaves_for_another_reason() -> None:
    try:
        int("no number")
    except ValueError:
        sys.exit(3)


@pytest.mark.parametrize(
    ("leaves", "says"),
    [
        (needs_an_argument, "exit code 2: the following arguments are required: --window."),
        (takes_a_number, "exit code 2: argument --window: invalid int value: 'long'."),
        (leaves_for_another_reason, "exit code 3: invalid literal for int() with base 10: 'no number'."),
        (lambda: sys.exit("no licence"), "exit code no licence."),
        (lambda: sys.exit(7), "exit code 7."),
    ],
    ids=["a missing argument", "a bad one", "an error", "a text", "a number"],
)
def test_script_that_leaves_is_told_with_its_reason(
    leaves: object, says: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as left:
        leaves()  # type: ignore[operator]
    assert _exit_reason(left.value) == f"The script left with {says}"
    capsys.readouterr()


def test_python_whose_jvm_was_killed_before_it_had_loaded_begins_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its parent is who has adopted it: it would take the JVM for alive, and its own failure for a reason."""
    arguments = _parse(
        [*("--root", str(tmp_path), "--job", "orders", "--claim", "c"), "--generation", "1", "job.py"]
    )
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", str(free_port()))
    with pytest.raises(SystemExit) as left:
        _open(arguments)
    assert left.value.code == EXIT_JVM_GONE
    with socket.create_server(("127.0.0.1", 0)) as gateway:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", str(gateway.getsockname()[1]))
        with refuses(NOT_CLAIMED):
            _open(arguments)
