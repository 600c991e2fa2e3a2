"""What `make dist` builds: whole, the same bytes each time, and of use where nothing else is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_flinkstyle import __version__
from airflow_flinkstyle.jobs.packing import ROOMS
from tests.release.installing import install
from tools import dist
from tools.common import ROOT, sha256_of

if TYPE_CHECKING:
    from tests.release.installing import Environment

HERE = Path(sys.executable)


@pytest.fixture(scope="module")
def cli(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return install(tmp_path_factory.mktemp("cli") / "venv", wheel, "[cli]", "airflow")


def a_copy(folder: Path, *, mode: int = 0o755) -> Path:
    """Return the files that are built from, as another clone has them: no git, other times and rights."""
    folder.mkdir(parents=True)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, folder / name)
    for name in (dist.PACKAGE, "docs"):
        shutil.copytree(ROOT / name, folder / name, copy_function=shutil.copyfile)
    for path in folder.rglob("*"):
        path.chmod(mode)
    return folder


def test_wheel_holds_the_agent_the_page_the_marker_of_types_and_the_licence(wheel: Path):
    with zipfile.ZipFile(wheel) as packed:
        held = set(packed.namelist())
        metadata = Parser().parsestr(packed.read(f"{dist.PACKAGE}-{__version__}.dist-info/METADATA").decode())
    assert dist.missing_from(wheel, ROOT) == []
    assert {
        f"{dist.PACKAGE}/{name}" for name in ("py.typed", "plugin/static/main.js", "agent/launcher.py")
    } <= held
    assert all(any(name.startswith(f"{dist.PACKAGE}/{room}") for name in held) for room in ROOMS)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "the airflow-flinkstyle developers"
    assert {url.partition(",")[0] for url in metadata.get_all("Project-URL")} >= {
        "Source",
        "Changelog",
        "Issues",
    }


def test_source_distribution_has_licence_and_formats_and_builds_the_same_wheel(
    artefacts: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    wheel, source = artefacts
    with tarfile.open(source) as packed:
        packed.extractall(tmp_path, filter="data")
        time = int(next(member for member in packed.getmembers() if member.name.endswith("/LICENSE")).mtime)
    (unpacked,) = tmp_path.iterdir()
    assert (unpacked / "docs" / "savepoint.schema.json").is_file()
    monkeypatch.setenv(dist.EPOCH, str(time))
    again, _ = dist.build(tmp_path / "dist", unpacked, python=HERE)
    assert sha256_of(again) == sha256_of(wheel)


def test_two_builds_in_different_folders_at_different_times_have_identical_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(dist.EPOCH, "1790000000")
    one = dist.build(tmp_path / "one-dist", a_copy(tmp_path / "one"), python=HERE)
    other = a_copy(tmp_path / "a b" / "other", mode=0o700)
    for path in other.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    two = dist.build(tmp_path / "two-dist", other, python=HERE)
    assert [sha256_of(file) for file in one] == [sha256_of(file) for file in two]


def test_time_is_that_of_the_commit_and_without_git_one_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv(dist.EPOCH, raising=False)
    command = ["git", "log", "-1", "--format=%ct"]
    committed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert dist.epoch_of(ROOT) == committed
    capsys.readouterr()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert dist.epoch_of(ROOT) == "1580601600"
    (line,) = capsys.readouterr().out.splitlines()
    assert "no git" in line


def test_file_that_is_left_out_of_the_wheel_is_named_and_nothing_is_replaced(tmp_path: Path):
    clone = a_copy(tmp_path / "clone")
    dist.build(tmp_path / "dist", clone, python=HERE)
    before = {file.name: sha256_of(file) for file in (tmp_path / "dist").iterdir()}
    with (clone / ".gitignore").open("a") as ignored:
        ignored.write("/airflow_flinkstyle/agent\n")
    with pytest.raises(SystemExit, match=r"dist: .* missing: airflow_flinkstyle/agent/"):
        dist.build(tmp_path / "dist", clone, python=HERE)
    assert {file.name: sha256_of(file) for file in (tmp_path / "dist").iterdir()} == before


def test_command_line_alone_tells_its_version_and_packs_the_agent(cli: Environment):
    assert __version__ in cli.said("flinkstyle", "--version")
    where = cli.said("python", "-c", "import airflow_flinkstyle as f; print(f.__file__)")
    assert where.startswith(str(cli.folder))
    cli.said("flinkstyle", "agent", "pack", cli.folder / "agent")
    with zipfile.ZipFile(cli.folder / "agent" / f"flinkstyle-agent-{__version__}.zip") as packed:
        assert f"{dist.PACKAGE}/agent/core/runtime.py" in packed.namelist()
