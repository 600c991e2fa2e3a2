"""The agent as a zip: whole, small, the same each time, and running."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import airflow_flinkstyle
from airflow_flinkstyle import __version__
from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.errors import BadInputError
from airflow_flinkstyle.jobs.deployments.detached import DetachedDeployment
from airflow_flinkstyle.jobs.packing import launcher_path, pack_agent

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "airflow_flinkstyle"


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of this package that a file imports at any time, those for types excepted."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
            yield str(node.module)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith(PACKAGE))
        yield from imported(node)


def test_zip_holds_every_module_that_its_modules_import(tmp_path: Path):
    with zipfile.ZipFile(pack_agent(tmp_path).archive) as packed:
        names = packed.namelist()
        needed = {name for file in names for name in imported(ast.parse(packed.read(file)))}
    assert "airflow_flinkstyle.agent.core.runtime" in needed
    missing = [
        name
        for name in needed
        if not {f"{name.replace('.', '/')}.py", f"{name.replace('.', '/')}/__init__.py"} & set(names)
    ]
    assert missing == []


def test_zip_has_nothing_that_steers_from_airflow_or_a_terminal_and_is_the_same_each_time(tmp_path: Path):
    first, second = pack_agent(tmp_path / "one"), pack_agent(tmp_path / "two")
    assert first.archive.read_bytes() == second.archive.read_bytes()
    with zipfile.ZipFile(first.archive) as packed:
        rooms = {name.split("/")[1] for name in packed.namelist()}
        assert all(name.endswith(".py") for name in packed.namelist())
    assert not rooms & {"hooks", "operators", "sensors", "triggers", "cli", "jobs", "plugin.py"}


def test_modules_are_imported_from_the_zip_where_the_package_is_not_installed(tmp_path: Path):
    packed = pack_agent(tmp_path)
    code = (
        "import airflow_flinkstyle.savepoint.repository.repository as r, airflow_flinkstyle as a;"
        "print(a.__version__, r.__file__)"
    )
    bare = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {str(packed.archive)!r}); {code}",
    ]
    said = subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == __version__
    assert said[1].startswith(str(packed.archive))


def test_launcher_that_finds_no_agent_says_so_and_what_to_do(tmp_path: Path):
    packed = pack_agent(tmp_path)
    bare = [sys.executable, "-I", "-S", str(packed.launcher)]
    done = subprocess.run(bare, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "py-files" in done.stderr


def test_command_writes_both_files_and_names_them(tmp_path: Path):
    done = CliRunner().invoke(app, ["agent", "pack", str(tmp_path / "new" / "agent")])
    assert done.exit_code == 0, done.output
    archive, launcher = (Path(line) for line in done.stdout.split())
    assert zipfile.is_zipfile(archive)
    assert (archive.with_suffix(""), archive.suffix) == (launcher.with_suffix(""), ".zip")
    assert launcher.is_file()


def test_command_refuses_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["agent", "pack", str(tmp_path / "file" / "agent")])
    assert done.exit_code == 1
    assert "BAD_INPUT" in done.stderr


def a_part(folder: Path, *, without: str) -> Path:
    """Return a folder with this package but one room, as a wheel that was built wrongly leaves it."""
    there = Path(airflow_flinkstyle.__file__).parent
    shutil.copytree(there, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    place = folder / PACKAGE / without
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    return folder


@pytest.mark.parametrize("room", ["agent", "agent/core/runtime.py", "savepoint", "python_versions.py"])
def test_start_from_a_package_without_its_agent_is_refused_by_name(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    part = a_part(tmp_path, without=room)
    monkeypatch.setattr(airflow_flinkstyle, "__file__", str(part / PACKAGE / "__init__.py"))
    for start in (DetachedDeployment().require_able, lambda: pack_agent(tmp_path / "agent")):
        with pytest.raises(BadInputError, match="agent was expected") as refused:
            start()
        assert room in refused.value.problem
        assert refused.value.state_after == "Nothing was started."
    assert not (tmp_path / "agent").exists()


def test_driver_whose_python_has_the_package_without_its_agent_says_so(tmp_path: Path):
    part = a_part(tmp_path, without="agent")
    bare = [sys.executable, "-S", launcher_path()]
    env = {**os.environ, "PYTHONPATH": str(part)}
    done = subprocess.run(bare, capture_output=True, text=True, check=False, env=env)
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("The agent was expected in airflow_flinkstyle")
    assert line.endswith("Install a whole wheel there.")


def test_driver_runs_the_launcher_of_its_own_package_not_the_callers(tmp_path: Path):
    other = tmp_path / PACKAGE / "agent"
    other.mkdir(parents=True)
    (tmp_path / PACKAGE / "__init__.py").touch()
    (other / "__init__.py").touch()
    (other / "launcher.py").write_text("def main(argv):\n    print('of the driver', *argv)\n    return 7\n")
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-S", launcher_path(), "--job", "orders"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (7, "of the driver --job orders\n"), done.stderr
