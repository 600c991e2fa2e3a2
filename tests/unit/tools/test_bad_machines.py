"""What set-up says on a machine that lacks something: one sentence each, or it works."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testbed import ports
from tools import common, java
from tools.common import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's folder of its own, and no Java of this machine."""
    for module in (common, java):
        monkeypatch.setattr(module, "HOME", tmp_path)
        monkeypatch.setattr(module, "LOGS", ROOT / ".flinkstyle" / "logs" / "of-tests")
    monkeypatch.setattr(java, "JAVA_HOME_FILE", tmp_path / "java_home")
    monkeypatch.setattr(java, "PLACES", tmp_path / "jvm")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin/nowhere")
    return tmp_path


@pytest.fixture
def a_java(home: Path) -> Callable[[str, int], Path]:
    """Return what makes a Java that says which one it is."""

    def make(name: str, feature: int) -> Path:
        program = home / "jvm" / name / "bin" / "java"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{feature}.0.2\"' >&2\n")
        program.chmod(0o755)
        return home / "jvm" / name

    return make


def a_program(folder: Path, says: str) -> Path:
    """Return a program that fails with these words."""
    program = folder / "program"
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit 2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (
            "failed to write to file: No space left on device (os error 28)",
            "disk of .* is full. .* Make room",
        ),
        ("OSError: [Errno 122] Disk quota exceeded", "disk of .* is full. .* Make room"),
        (
            "dns error: failed to lookup address information",
            "reached no package index. .* Connect this machine",
        ),
        ("[Errno 111] Connection refused", "reached no package index. .* Connect this machine"),
        ("error: no such option", "ended with exit code 2, 0 was expected. .* Look at the lines above"),
    ],
)
def test_step_that_fails_says_why_in_a_sentence(says: str, told: str, home: Path):
    program = a_program(home, says)
    with pytest.raises(SystemExit, match=told) as ended:
        common.run("of tests", [program])
    assert str(ended.value).strip().count("\n") == 0


def test_what_an_earlier_try_said_is_not_taken_for_the_reason(home: Path):
    with pytest.raises(SystemExit, match="is full"):
        common.run("of tests", [a_program(home, "No space left on device")])
    with pytest.raises(SystemExit, match="exit code 2"):
        common.run("of tests", [a_program(home, "something else")])


def test_disk_that_fills_up_under_a_step_of_our_own_is_a_sentence(home: Path):
    with (
        pytest.raises(SystemExit, match=r"The disk of .* is full\. Finished steps are kept\. Make room"),
        common.only_one(),
        Path("/dev/full").open("w") as disk,
    ):
        disk.write("x" * 100_000)


def test_folder_that_cannot_be_written_is_a_sentence_and_other_faults_stay_what_they_are(home: Path):
    with (
        pytest.raises(SystemExit, match="A folder that can be written was expected, found /x: "),
        common.only_one(),
    ):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "/x")
    with pytest.raises(FileNotFoundError), common.only_one():
        (home / "nothing").read_text()


def test_java_of_the_right_version_is_taken_wherever_wrong_ones_stand(
    home: Path, a_java: Callable[[str, int], Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("JAVA_HOME", str(a_java("java-11", 11)))
    a_java("java-25", 25)
    right = a_java("java-21", 21)
    assert java.ensure(home / "none") == right
    assert (home / "java_home").read_text() == str(right)


def test_java_that_was_replaced_by_a_wrong_one_where_it_stands_is_looked_for_again(
    home: Path, a_java: Callable[[str, int], Path]
):
    first = a_java("default", 17)
    assert java.ensure(home / "none") == first
    a_java("default", 25)
    second = a_java("java-21", 21)
    assert java.ensure(home / "none") == second


def test_java_of_the_wrong_version_alone_is_named_where_none_can_be_fetched(
    home: Path, a_java: Callable[[str, int], Path]
):
    wrong = a_java("java-11", 11)
    with pytest.raises(SystemExit, match=r"Java 17 to 21 was expected, found Java 11 in ") as ended:
        java.ensure(a_program(home, "no network"))
    assert str(wrong) in str(ended.value)
    assert "Install Java 17 or 21" in str(ended.value)
    assert not (home / "java_home").exists()


def test_port_that_is_taken_is_given_to_nobody(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as taken:
        taken.bind((ports.LOOPBACK, ports.free_port()))
        port = taken.getsockname()[1]
        monkeypatch.setattr(ports, "_given", set())
        monkeypatch.setattr(ports.random, "randrange", lambda *_: port)
        with pytest.raises(RuntimeError, match="A free port between"):
            ports.free_port()


def test_make_runs_in_a_clone_whose_path_has_spaces_and_names_a_folder_for_java_there(tmp_path: Path):
    clone = tmp_path / "a b" / "repo"
    clone.mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", clone)
    (clone / "tools").mkdir()
    (clone / "tools" / "dist.py").write_text(
        "import os; print(os.environ['TMPDIR'], os.environ['JDK_JAVA_OPTIONS'])"
    )
    said = subprocess.run(
        ["make", "--no-print-directory", "dist"], cwd=clone, capture_output=True, text=True, check=True
    ).stdout
    place = clone / ".flinkstyle" / "tmp"
    assert said.strip() == f'{place} "-Djava.io.tmpdir={place}"'
    assert place.is_dir()
