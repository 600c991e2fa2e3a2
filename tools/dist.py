"""`make dist`: the wheel and the source distribution of this checkout, in .flinkstyle/dist.

Each build of a commit gives the same bytes: files carry its time (``SOURCE_DATE_EPOCH`` wins). Without
git they carry the build tool's own date, so the bytes are others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Final

from tools.common import (
    HOME,
    LOCKS,
    ROOT,
    VENV_BUILD,
    fail,
    fail_full,
    is_full,
    only_one,
    remove,
    say,
    sha256_of,
)
from tools.setup import install_uv, install_venv

if TYPE_CHECKING:
    from pathlib import Path

DIST: Final = HOME / "dist"
PACKAGE: Final = "airflow_flinkstyle"
PYTHON: Final = VENV_BUILD / "bin" / "python"
EPOCH: Final = "SOURCE_DATE_EPOCH"
_OWN_EPOCH: Final = "1580601600"
"""What hatchling takes where nothing is said."""


def main() -> int:
    """Build both and print what they are."""
    with only_one():
        ensure_tools()
        for artefact in build(DIST):
            size = artefact.stat().st_size
            say(f"dist: {artefact.relative_to(ROOT)}  {size:,} bytes  sha256 {sha256_of(artefact)}")
    return 0


def ensure_tools() -> None:
    """Make the environment of the build tools, from their lock file."""
    install_uv()
    install_venv(VENV_BUILD, LOCKS / "build.txt", project=False)


def build(folder: Path, root: Path = ROOT, *, python: Path = PYTHON) -> tuple[Path, Path]:
    """Build a checkout and return its wheel and source distribution; the folder holds nothing else then.

    Args:
        folder: Gets both, once they are whole.
        root: Of the checkout.
        python: With hatchling.
    """
    fresh = folder.with_name(f"{folder.name}.new")
    remove(fresh)
    fresh.mkdir(parents=True)
    command = [python, "-m", "hatchling", "build", "-d", fresh]
    done = subprocess.run(  # noqa: S603  # our own command
        [str(part) for part in command],
        cwd=root,
        env={**os.environ, EPOCH: epoch_of(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        if is_full(done.stdout, spare_bytes=0):
            remove(fresh)
            fail_full(str(folder))
        last = (done.stdout.strip().splitlines() or ["no word"])[-1]
        fail(
            f"The build ended with {last!r}.",
            "No artefact was changed.",
            "Mend that, then run it again.",
            step="dist",
        )
    (wheel,), (source,) = fresh.glob("*.whl"), fresh.glob("*.tar.gz")
    require_whole(wheel, root)
    remove(folder)
    fresh.rename(folder)
    return folder / wheel.name, folder / source.name


def epoch_of(root: Path) -> str:
    """Return the time that files carry: as told, of the last commit, or the build tool's own without git."""
    if told := os.environ.get(EPOCH):
        return told
    git = shutil.which("git")
    time = _said([git, "-C", str(root), "log", "-1", "--format=%ct"]) if git else ""
    if not git or not time:
        say("dist: no commit is found here (or no git), so files carry the date 2020-02-02.")
        return _OWN_EPOCH
    if _said([git, "-C", str(root), "status", "--porcelain"]):
        say("dist: the working tree differs from its commit; what is built is the tree.")
    return time


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603  # our own commands
    return done.stdout.strip() if done.returncode == 0 else ""


def require_whole(wheel: Path, root: Path) -> None:
    """Refuse a wheel that lacks a file of the package, or the licence."""
    missing = missing_from(wheel, root)
    if missing:
        fail(
            f"The wheel was expected to hold every file of {PACKAGE}, found {len(missing)} missing: "
            f"{', '.join(missing[:5])}.",
            f"No artefact was changed; the wheel is {wheel}.",
            "Correct what pyproject.toml and .gitignore leave out, then run it again.",
            step="dist",
        )


def missing_from(wheel: Path, root: Path) -> list[str]:
    """Return which files of the package a wheel lacks, and the licence if it lacks that."""
    files = (path for path in (root / PACKAGE).rglob("*") if path.is_file() and path.suffix != ".pyc")
    wanted = {path.relative_to(root).as_posix() for path in files}
    with zipfile.ZipFile(wheel) as packed:
        held = packed.namelist()
    licence = [] if any(name.endswith(".dist-info/licenses/LICENSE") for name in held) else ["LICENSE"]
    return sorted(wanted.difference(held)) + licence


if __name__ == "__main__":
    sys.exit(main())
