"""The environment of a worker with Airflow and this package: no extra, no PySpark, no provider of its own."""

from __future__ import annotations

import re
import sys

from tools.common import HOME, LOCKS, ROOT, VENV_UV, Stamp, remove, run, say

VENV_BARE = HOME / "venv-bare"
_UV = VENV_UV / "bin" / "uv"
_PINNED = re.compile(r"^[\w.-]+==[^\\\n]+", re.MULTILINE)


def ensure() -> None:
    """Make the environment if it is not there yet, with the versions of the usual one."""
    lock = LOCKS / "airflow.txt"
    ours = (ROOT / "pyproject.toml").read_text().partition("\n[tool.")[0]
    stamp = Stamp(VENV_BARE.name, sys.version, lock, LOCKS / "build.txt", ours)
    python = VENV_BARE / "bin" / "python"
    if stamp.is_current and python.exists():
        return
    say(f"set-up: {VENV_BARE.name} ...")
    remove(VENV_BARE)
    run(VENV_BARE.name, [_UV, "venv", "--quiet", "--python", sys.executable, VENV_BARE])
    constraints = VENV_BARE / "constraints.txt"
    constraints.write_text("\n".join(_PINNED.findall(lock.read_text())) + "\n")
    install = [_UV, "pip", "install", "--quiet", "--python", python]
    run(VENV_BARE.name, [*install, "--require-hashes", "-r", LOCKS / "build.txt"])
    packages = ("apache-airflow", "--editable", str(ROOT))
    run(VENV_BARE.name, [*install, "--no-build-isolation", "--constraint", constraints, *packages])
    stamp.set()


if __name__ == "__main__":
    ensure()
