"""`make docs`: the documentation as a site, from docs/, the docstrings and nothing else; warnings are errors.

The pages stay as they are in the repository, links between them included: they are gathered in the same
folders as there, with what they link to beside them. Pages of the reference are made from ``REFERENCE``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from airflow_flinkstyle import __version__, dags, operators, sensors, sinks
from tools import inventory
from tools.common import HOME, LOCKS, ROOT, remove, say
from tools.setup import install_venv

if TYPE_CHECKING:
    from pathlib import Path

VENV_DOCS = HOME / "venv-docs"
PAGES = HOME / "site-pages"
SITE = HOME / "site"
FOLLOWED = ("dags", "dashboards", "examples", "airflow_flinkstyle")
"""Folders whose files pages link to."""
FRONT = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "changes/README.md",
    "docker-compose.yml",
)
REFERENCE = {
    "operators": (
        *("savepoint", "start", "stop", "upgrade", "roll_back", "migrate", "fail_back"),
        *("rewrite", "sources", "approval", "choice", "retention", "exchange", "drill", "cut", "compare"),
        *("replay", "rotate", "watch", "settle", "measure", "adopt", "adopt_running"),
    ),
    "dags": (
        *("start", "stop", "take", "upgrade", "roll_back", "migrate", "fail_back", "verify", "drill"),
        *("export", "dispose", "cut", "rotate", "watch", "settle", "drill_jobs", "measure", "adopt"),
        *("adopt_running", "leave", "compare", "replay"),
    ),
    "triggers": ("new_savepoint",),
    "sensors": ("end", "freshness", "progress"),
    "hooks": ("job", "assets"),
    "state": ("reader", "changes", "repartition"),
    "sinks": ("foreach_batch",),
    "jobs": ("definition",),
}
"""Room of the package -> its modules that users call."""
_PACKAGE = "airflow_flinkstyle"


def main() -> int:
    """Build the site and return the builder's exit code."""
    HOME.mkdir(exist_ok=True)
    install_venv(VENV_DOCS, LOCKS / "docs.txt", project=False)
    gather(PAGES)
    command = [VENV_DOCS / "bin/mkdocs", "build", "--strict", "--config-file", ROOT / "mkdocs.yml"]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # MkDocs is pinned below 2
    done = subprocess.run([str(part) for part in command], cwd=ROOT, env=env, check=False)  # noqa: S603
    if done.returncode == 0:
        complete_inventory()
        say(f"docs: open {SITE / 'index.html'}")
    return done.returncode


def complete_inventory() -> None:
    """Add the pages and the names that rooms export to the site's inventory."""
    file = SITE / "objects.inv"
    pages = {path.relative_to(PAGES).with_suffix("").as_posix(): path for path in PAGES.rglob("*.md")}
    file.write_bytes(
        inventory.complete(
            file.read_bytes(),
            project="airflow-flinkstyle",
            version=__version__,
            pages={page: inventory.title_of(path.read_text()) for page, path in sorted(pages.items())},
            exported=exported(),
        )
    )


def exported() -> dict[str, str]:
    """Return each name that a room exports, with the one that it has in its module."""
    return {
        f"{room.__name__}.{name}": f"{room.__name__}.{module}.{name}"
        for room in (dags, operators, sensors, sinks)
        for name, module in room.MODULES.items()
    }


def gather(pages: Path) -> None:
    """Copy what the site is made of, and write the pages of the reference."""
    remove(pages)
    pages.mkdir(parents=True)
    for name in ("docs", *FOLLOWED):
        shutil.copytree(ROOT / name, pages / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FRONT:
        (pages / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, pages / name)
    for room, modules in REFERENCE.items():
        page = pages / "reference" / f"{room}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(reference(room, modules))


def reference(room: str, modules: tuple[str, ...]) -> str:
    """Return a page that names each module, for mkdocstrings to fill in.

    Raises:
        FileNotFoundError: If there is no such module.
    """
    parts = [f"# {room.capitalize()}\n"]
    for module in modules:
        source = ROOT / _PACKAGE / room / f"{module}.py"
        if not source.exists():
            raise FileNotFoundError(f"Expected module {source} of REFERENCE, found no such file.")
        parts.append(f"::: {_PACKAGE}.{room}.{module}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
