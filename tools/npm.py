"""What browser tests need of npm (axe-core), from ``locks/npm``; nothing of it is shipped."""

from __future__ import annotations

import shutil

from tools.common import HOME, LOCKS, Stamp, remove, run, say

LOCK = LOCKS / "npm"
FOLDER = HOME / "npm"
AXE = FOLDER / "node_modules" / "axe-core" / "axe.min.js"


def ensure() -> None:
    """Install it where npm is; elsewhere the tests that need it say so."""
    names = ("package.json", "package-lock.json")
    stamp = Stamp("npm", *(LOCK / name for name in names))
    if stamp.is_current and AXE.exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        say("set-up: no npm, so pages are not checked by axe-core (Debian: apt-get install npm)")
        return
    remove(FOLDER)
    FOLDER.mkdir(parents=True)
    for name in names:
        shutil.copy(LOCK / name, FOLDER / name)
    run("npm", [npm, "ci", "--prefix", FOLDER, "--ignore-scripts", "--no-audit", "--no-fund"])
    stamp.set()
