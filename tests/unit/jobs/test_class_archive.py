from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_flinkstyle.jobs.deployments import class_archive
from airflow_flinkstyle.jobs.deployments.base import Submission
from airflow_flinkstyle.jobs.deployments.class_archive import FOLDER, OPTIONS, main, make, with_archive


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Return the processes that would be started: one takes a JVM half a minute."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        class_archive.subprocess, "Popen", lambda argv, **given: found.append((argv, given["env"]))
    )
    return found


@pytest.fixture
def submission(tmp_path: Path) -> Submission:
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-core.jar").write_bytes(b"1")
    env = {"PATH": "/usr/bin:/bin", "SPARK_HOME": str(tmp_path / "spark"), "SECRET": "s3cr3t"}
    argv, log_path = ("spark-submit", "x.py"), str(tmp_path / "logs/a.log")
    return Submission(argv=argv, marker=(), env=env, cwd=None, log_path=log_path)


def made(begun: list[tuple[Any, ...]]) -> Path:
    """Make the archive that was begun last."""
    archive = Path(begun[-1][0][-3])
    archive.write_bytes(b"classes")
    return archive


def test_first_start_begins_to_make_it_and_waits_for_nothing(
    submission: Submission, begun: list[tuple[Any, ...]]
):
    assert with_archive(submission) == submission.env
    assert with_archive(submission) == submission.env
    [(argv, env)] = begun
    assert argv[-2:] == ("spark-submit", "")
    assert "SECRET" not in env


def test_later_starts_are_told_of_it_beside_their_own_options(
    submission: Submission, begun: list[tuple[Any, ...]]
):
    with_archive(submission)
    archive = made(begun)
    own = replace(submission, env={**submission.env, OPTIONS: "-Xmx2g"})
    told = with_archive(own)[OPTIONS].split()
    assert told[:2] == ["-Xmx2g", f"-XX:SharedArchiveFile={archive}"]
    assert "-Xshare:auto" in told  # one that does not fit is ignored
    assert len(begun) == 1


def test_other_jars_have_an_archive_of_their_own(
    submission: Submission, begun: list[tuple[Any, ...]], tmp_path: Path
):
    with_archive(submission)
    made(begun)
    (tmp_path / "spark/jars/spark-core.jar").write_bytes(b"22")
    assert with_archive(submission) == submission.env
    assert len(begun) == 2


def test_other_beginning_of_the_class_path_has_an_archive_of_its_own(
    submission: Submission, begun: list[tuple[Any, ...]]
):
    with_archive(submission)
    made(begun)
    longer = replace(
        submission, argv=("spark-submit", "--conf", "spark.driver.extraClassPath=/a.jar", "x.py")
    )
    assert with_archive(longer) == submission.env
    assert begun[-1][0][-1] == "/a.jar"


@pytest.mark.parametrize(
    ("role", "begins"), [pytest.param("driver", 0, id="driver"), pytest.param("executor", 1, id="executors")]
)
def test_driver_that_brings_its_own_archive_is_left_alone(
    submission: Submission, begun: list[tuple[Any, ...]], role: str, begins: int
):
    said = f"spark.{role}.extraJavaOptions=-XX:SharedArchiveFile=/mine.jsa"
    own = replace(submission, argv=("spark-submit", "--conf", said, "x.py"))
    assert with_archive(own) == own.env
    assert len(begun) == begins


def test_folder_that_others_may_write_to_is_not_used(
    submission: Submission, begun: list[tuple[Any, ...]], tmp_path: Path
):
    with_archive(submission)
    made(begun)
    (tmp_path / "logs" / FOLDER).chmod(0o770)
    assert with_archive(submission) == submission.env


def test_archive_that_could_not_be_made_says_why(tmp_path: Path):
    archive, draft = tmp_path / "a.jsa", tmp_path / "a.making"
    make(draft, archive, "/bin/false")
    assert not archive.exists()
    assert "ended with 1" in draft.read_text()


def test_command_for_a_node_exits_with_the_reason(tmp_path: Path):
    archive, draft = tmp_path / "a.jsa", tmp_path / "a.making"
    with pytest.raises(SystemExit, match=f"(?s){re.escape(str(draft))} holds the reason.*ended with 1"):
        main([str(draft), str(archive), "/bin/false", ""])
    assert not archive.exists()
