"""What a driver says of a script that left by itself."""

from __future__ import annotations

import argparse
import sys

import pytest

from airflow_flinkstyle.agent.launcher import _exit_reason


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
