"""What the first pages tell people to type, open and write exists."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from airflow_flinkstyle import __version__
from testbed.paths import ROOT

CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "docs/releasing.md", ".github/PULL_REQUEST_TEMPLATE.md"]
)
def test_every_make_command_of_a_first_page_is_a_target(page: str):
    named = set(re.findall(r"\bmake ([a-z][a-z-]+)", (ROOT / page).read_text()))
    assert named - TARGETS == set()


def test_every_file_that_a_change_goes_to_is_there():
    table = CONTRIBUTING[CONTRIBUTING.index("## Where a change goes") : CONTRIBUTING.index("## Tests")]
    missing = []
    for row in (line for line in table.splitlines() if line.startswith("| ") and "you want to" not in line):
        named = re.findall(r"`([\w./-]+(?:\.py|\.md|\.json|/))`", row)
        folders = {Path(name) if name.endswith("/") else Path(name).parent for name in named} | {Path()}
        roots = [
            ROOT,
            *(ROOT / "airflow_flinkstyle" / folder for folder in folders),
            *(ROOT / f for f in folders),
        ]
        missing += [name for name in named if not any((root / name).exists() for root in roots)]
    assert missing == []


def test_what_is_installed_is_the_clone_or_the_wheel_of_any_version():
    lines = re.findall(r"^pip install (.+?)(?:\s+#.*)?$", (ROOT / "README.md").read_text(), re.MULTILINE)
    wheel = "$(ls .flinkstyle/dist/airflow_flinkstyle-*.whl)"
    assert {line.strip('"') for line in lines} == {".", ".[airflow]", wheel, f"{wheel}[airflow]"}
    made = f".flinkstyle/dist/airflow_flinkstyle-{__version__}-py3-none-any.whl"
    assert fnmatch(made, ".flinkstyle/dist/airflow_flinkstyle-*.whl")


def test_changelog_has_the_section_of_this_version_and_is_read_in_three_minutes():
    text = (ROOT / "CHANGELOG.md").read_text()
    section = re.search(
        rf"^## {re.escape(__version__)} \(\d{{4}}-\d\d-\d\d\)$(.*?)(?=^## |\Z)",
        text,
        re.DOTALL | re.MULTILINE,
    )
    assert section
    assert len(section[1].split()) < 750


def test_fragments_become_a_section_of_the_changelog_before_the_older_ones(tmp_path: Path):
    for name in ("pyproject.toml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(
        ROOT / "airflow_flinkstyle", tmp_path / "airflow_flinkstyle", ignore=shutil.ignore_patterns("*.js")
    )
    shutil.copytree(ROOT / "changes", tmp_path / "changes")
    (tmp_path / "changes" / "40.fix.word.md").write_text("A job that was stopped is told apart.\n")
    command = [
        sys.executable,
        "-m",
        "towncrier",
        "build",
        "--yes",
        "--version",
        "9.9.9",
        "--date",
        "2027-01-02",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    said = (tmp_path / "CHANGELOG.md").read_text() if done.returncode == 0 else done.stderr
    new, old = said.find("## 9.9.9 (2027-01-02)"), said.find(f"## {__version__}")
    assert (
        0 < new < said.find("### Fixes") < said.find("A job that was stopped is told apart. (#40)") < old
    ), said
