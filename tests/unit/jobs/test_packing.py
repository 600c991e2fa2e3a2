"""The agent as a zip: whole, small, the same each time, and running."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from typer.testing import CliRunner

from airflow_flinkstyle import __version__
from airflow_flinkstyle.cli.app import app
from airflow_flinkstyle.jobs.packing import pack_agent

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
    assert "airflow_flinkstyle.agent.runtime" in needed
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
