"""`make test` only: the programs that tests need beyond `make setup`, installed or built where possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tools import class_archive, versitygw
from tools.common import LOGS, ROOT, fail, say

PROGRAMS = {
    "docker-compose": "validates docker-compose.yml",
}
AS_ROOT = {"systemd": "systemd", "dbus-daemon": "dbus", "chromium": "chromium"}
"""Program -> its package: root gets them installed; tests that need one are left out where it is missing."""


def main() -> int:
    """Build the S3 server and the class archive; install what else is missing as root, otherwise name it."""
    versitygw.ensure()
    class_archive.ensure()
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    packages = [*missing, *(AS_ROOT[name] for name in AS_ROOT if shutil.which(name) is None)]
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"set-up: {' and '.join(packages)} from the system's packages ...")
        _apt_get("update")
        for package in packages:
            _apt_get("install", "-y", "--no-install-recommends", package)
        missing = [name for name in missing if shutil.which(name) is None]
    if missing:
        fail(
            f"Tests need {', '.join(f'{name} ({PROGRAMS[name]})' for name in missing)}; not found.",
            f"No test was run; what the installation said is in {LOGS.relative_to(ROOT)}/setup-system.log.",
            f"Install it, e.g. `sudo apt-get install {' '.join(missing)}`, and run `make test` again.",
        )
    return 0


def _apt_get(*arguments: str) -> None:
    LOGS.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with (LOGS / "setup-system.log").open("ab") as log:
        # The look for the programs afterwards tells whether it worked.
        subprocess.run(["apt-get", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)  # noqa: S603, S607


if __name__ == "__main__":
    sys.exit(main())
