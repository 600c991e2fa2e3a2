"""The console script itself, as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.waiting import PATIENCE_S

SCRIPT = Path(sys.executable).with_name("flinkstyle")
Root = Any


def run(*command: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=PATIENCE_S,
        check=False,
    )


def run_without(
    modules: tuple[str, ...], *args: str, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the command line where modules cannot be imported."""
    program = (
        f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\nsys.argv[1:] = {list(args)!r}\n"
        "from airflow_flinkstyle.cli.main import main\nmain()"
    )
    return run(sys.executable, "-c", program, env=env)


def test_it_runs_where_neither_airflow_nor_pyspark_can_be_imported(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    target = root.folder / "new"
    for args in (["list", "--json"], ["verify", "sp-1", "--full"], ["restore", "sp-1", "--to", str(target)]):
        done = run_without(("airflow", "pyspark", "py4j"), "savepoint", *args, env=root.env)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str):
    done = run_without((missing,), "savepoint", "list", env={})
    assert done.returncode == 1
    assert f"found no {missing}" in done.stderr
    assert "pip install 'airflow-flinkstyle[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_exit_codes_and_streams_of_the_real_script(root: Root):
    root.take("sp-1", "4.2.0/rocksdb")
    listed = run(SCRIPT, "savepoint", "list", "--json", env=root.env)
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [found["savepoint_id"] for found in json.loads(listed.stdout)["savepoints"]] == ["sp-1"]
    refused = run(SCRIPT, "savepoint", "show", "sp-9", env=root.env)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("SAVEPOINT_MISSING: ")
    assert run(SCRIPT, "savepoint", "list", env={}).returncode == 2


def test_ctrl_c_cancels_the_savepoint_that_was_asked_for(root: Root):
    root.seem_running()
    env = {**os.environ, **root.env}
    with subprocess.Popen(
        [SCRIPT, "savepoint", "take"], env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr.readline().startswith("Asked for savepoint sp-")
            slot = root.board.request(1)
            assert (slot.value.command, slot.value.state) == ("savepoint", "sent")
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "was cancelled; the job keeps running" in said
    assert root.board.request(1).value.state == "cancelled"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("savepoint show sp-", ["sp-1", "sp-2"]),
        ("job status --job ", ["orders"]),
        ("savepoint ver", ["verify"]),
    ],
)
def test_the_shell_completes_commands_jobs_and_savepoints(root: Root, words: str, expected: list[str]):
    root.take("sp-1", "4.2.0/stateless")
    root.take("sp-2", "4.2.0/stateless")
    line = f"flinkstyle {words}"
    shell = {"_FLINKSTYLE_COMPLETE": "complete_bash", "COMP_WORDS": line}
    done = run(SCRIPT, env={**root.env, **shell, "COMP_CWORD": str(len(line.split(" ")) - 1)})
    assert done.stdout.split() == expected


def test_a_root_that_cannot_be_read_completes_nothing(root: Root):
    line = "flinkstyle savepoint show "
    shell = {"_FLINKSTYLE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": "3"}
    done = run(SCRIPT, env={**root.env, **shell, "FLINKSTYLE_ROOT": "nowhere://x"})
    assert (done.stdout.strip(), "Traceback" in done.stderr) == ("", False)
