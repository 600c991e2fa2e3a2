"""Fresh environments into which a wheel of this package is installed, and what runs in them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.jvm import QUICK
from testbed.keys import SIGNING_ENV
from tools.common import JAVA_HOME_FILE, LOCKS
from tools.setup import UV

if TYPE_CHECKING:
    from collections.abc import Mapping

_PINNED = re.compile(r"^[\w.-]+==[^\\\n]+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment with the wheel and nothing of this checkout."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def said(self, *command: object, env: Mapping[str, str] | None = None) -> str:
        """Run a program of this environment, far from the checkout, and return what it printed."""
        program, *rest = (str(part) for part in command)
        done = subprocess.run(
            [str(self.folder / "bin" / program), *rest],
            cwd=self.folder,
            env={**clean_environment(self.folder), **(env or {})},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, (
            f"{program} {rest} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout


@dataclass(frozen=True, slots=True)
class Job:
    """A job that the command line of one environment starts with the Python of another."""

    cli: Environment
    driver: Path
    """Its Python, with PySpark and the package."""
    folder: Path

    def flinkstyle(self, *command: str) -> dict[str, Any]:
        """Run ``flinkstyle`` and return the JSON that it prints."""
        asked = ("flinkstyle", *command, "--root", self.folder / "savepoints", "--job", "ticks", "--json")
        said: dict[str, Any] = json.loads(self.cli.said(*asked, env=SIGNING_ENV))
        return said

    def start(self) -> dict[str, Any]:
        """Start it, from its definition."""
        script, definition = self.folder / "ticks.py", self.folder / "ticks.yaml"
        script.write_text(_SCRIPT)
        definition.write_text(f"job: ticks\nscript: {script}\nconf:\n  spark.ui.enabled: 'false'\n{_QUICK}")
        where = ("--master", "local[1]", "--python", str(self.driver), "--log-dir", str(self.folder / "logs"))
        return self.flinkstyle("job", "start", "--file", str(definition), *where)


_QUICK = f"  spark.driver.extraJavaOptions: '{' '.join(QUICK)}'\n"
_SCRIPT = """\
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
ticks = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
counts = ticks.groupBy("value").count().writeStream.queryName("ticks")
counts.outputMode("update").format("noop").start().awaitTermination()
"""


def install(
    folder: Path, wheel: Path, extras: str, lock: str, *, python: str = sys.executable
) -> Environment:
    """Make a fresh environment with a wheel and its extras, in the versions of a lock file.

    Args:
        folder: Of the environment.
        wheel: Of this package.
        extras: ``[cli]``, or empty.
        lock: Name of the lock file whose versions are taken, as constraints: it installs nothing by itself.
        python: Interpreter.
    """
    environment = Environment(folder)
    subprocess.run([UV, "venv", "--quiet", "--python", python, folder], check=True)
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(_PINNED.findall((LOCKS / f"{lock}.txt").read_text())) + "\n")
    into = [UV, "pip", "install", "--quiet", "--python", environment.python]
    build = "build-3.10" if lock == "spark-3.5" else "build"
    wanted = ["--no-build-isolation", "--constraint", constraints, f"{wheel}{extras}"]
    # What set-up has fetched is enough; only where the cache is kept from us an index is asked.
    for attempt in (["--offline"], []):
        ways = [[*into, *attempt, "-r", LOCKS / f"{build}.txt"], [*into, *attempt, *wanted]]
        if all(subprocess.run(way, capture_output=bool(attempt)).returncode == 0 for way in ways):
            return environment
    raise AssertionError(f"{wheel.name}{extras} could not be installed; uv says why above")


def clean_environment(home: Path) -> dict[str, str]:
    """Return an environment in which nothing points to the checkout or to another environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ("PATH", "LANG", "TMPDIR", "UV_CACHE_DIR")
    }
    java = JAVA_HOME_FILE.read_text()
    return {**kept, "PATH": f"{java}/bin:{kept['PATH']}", "JAVA_HOME": java, "HOME": str(home)}


def python_3_10() -> str | None:
    """Return an interpreter of Python 3.10, on the path or among pyenv's."""
    pyenv = (Path.home() / ".pyenv" / "versions").glob("3.10.*/bin/python3.10")
    # On the path may be a shim of pyenv's that runs nothing.
    candidates = filter(None, (shutil.which("python3.10"), *map(str, sorted(pyenv))))
    return next(
        (one for one in candidates if not subprocess.run([one, "-V"], capture_output=True).returncode), None
    )
