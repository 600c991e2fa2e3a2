"""`make setup`: both virtual environments, the jars and Java, from lock files, in one ignored folder.

``python3 -m tools.setup 3.5 4.0`` makes the environments of these Sparks too, which are not there otherwise.
Every step is stamped with its inputs, so a second run takes a moment and needs no network.
"""

from __future__ import annotations

import argparse
import sys
import time
import venv
from typing import TYPE_CHECKING

from tools import jars, java, npm
from tools.common import (
    LOCKS,
    ROOT,
    SPARKS,
    VENV_AIRFLOW,
    VENV_SPARK,
    VENV_UV,
    Stamp,
    fail,
    fail_full,
    is_full,
    only_one,
    remove,
    run,
    say,
    venv_of_spark,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

UV = VENV_UV / "bin" / "uv"


def main() -> int:
    """Run every step that is not done yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sparks", nargs="*", choices=[*SPARKS, []], help="also make their environments")
    ensure(parser.parse_args().sparks)
    return 0


def ensure(sparks: Sequence[str] = ()) -> None:
    """Bring set-up to what the lock files say, with the environments of these Sparks."""
    if sys.version_info < (3, 11):  # noqa: UP036  # this is the check that says so
        fail(
            f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}.",
            "Nothing was installed.",
            "Run `make PYTHON=/path/to/python3.11 ...`.",
        )
    started_s = time.monotonic()
    with only_one():
        install_uv()
        install_venv(VENV_AIRFLOW, LOCKS / "airflow.txt")
        install_venv(VENV_SPARK, LOCKS / "spark.txt")
        java_home = java.ensure(VENV_UV / "bin" / "python")
        jars.ensure(java_home)
        npm.ensure()
        for minor in sparks:
            install_venv(venv_of_spark(minor), LOCKS / f"spark-{minor}.txt")
    say(f"set-up: ready after {time.monotonic() - started_s:.0f} s")


def install_uv() -> None:
    """Make the small environment that holds uv, with the pip this Python brings."""
    stamp = Stamp("uv", sys.version, LOCKS / "bootstrap.txt")
    if stamp.is_current and UV.exists():
        return
    say("set-up: uv ...")
    remove(VENV_UV)
    try:
        venv.create(VENV_UV, with_pip=True)
    except Exception as error:  # noqa: BLE001  # Debian's Python without python3-venv fails in several ways
        if is_full(str(error)):
            fail_full(str(VENV_UV))
        fail(
            f"{sys.executable} cannot make a virtual environment with pip ({error}).",
            "Nothing was installed.",
            "Install venv, e.g. `apt-get install python3-venv`, then run the same command again.",
        )
    pip = [VENV_UV / "bin" / "python", "-m", "pip", "install", "--quiet"]
    run("uv", [*pip, "--require-hashes", "-r", LOCKS / "bootstrap.txt"])
    stamp.set()


def install_venv(folder: Path, lock: Path, *, project: bool = True) -> None:
    """Make one environment from its lock file, with this project installed as editable unless told not."""
    build = LOCKS / "build.txt"
    # Of pyproject only what is installed counts, not the settings of tools.
    ours = (ROOT / "pyproject.toml").read_text().partition("\n[tool.")[0] if project else ""
    stamp = Stamp(folder.name, sys.version, build, lock, ours)
    python = folder / "bin" / "python"
    if stamp.is_current and python.exists():
        return
    count = sum("==" in line for line in lock.read_text().splitlines())
    say(f"set-up: {folder.name}, {count} packages ...")
    started_s = time.monotonic()
    if not python.exists():
        remove(folder)
        run(folder.name, [UV, "venv", "--quiet", "--python", sys.executable, folder])
    install = [UV, "pip", "install", "--quiet", "--python", python]
    run(folder.name, [*install, "--require-hashes", "-r", build])
    # Source packages and the project are built with the tools locked above, never with newer ones.
    sync = [UV, "pip", "sync", "--quiet", "--python", python, "--require-hashes", "--no-build-isolation"]
    run(folder.name, [*sync, build, lock])
    if project:
        run(folder.name, [*install, "--no-build-isolation", "--no-deps", "--editable", ROOT])
    stamp.set()
    say(f"set-up: {folder.name} done in {time.monotonic() - started_s:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
