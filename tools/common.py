"""Where set-up puts things, how it remembers what is done, and how it fails."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".flinkstyle"
"""The one ignored folder that holds everything set-up, demo and tests make."""
LOCKS = ROOT / "locks"
LOGS = HOME / "logs"
VENV_UV = HOME / "uv"
VENV_AIRFLOW = HOME / "venv-airflow"
VENV_SPARK = HOME / "venv-spark"
VENV_BENCH = HOME / "venv-bench"
VENV_MUTANTS = HOME / "venv-mutants"
JARS = HOME / "jars"
SPARKS = tuple(sorted(path.stem.removeprefix("spark-") for path in LOCKS.glob("spark-*.in")))
"""Minor versions of Spark that have an environment of their own, which is made when asked for."""
SLICED_SPARKS = tuple(minor for minor in SPARKS if f"=={minor}." not in (LOCKS / "spark.in").read_text())
"""Those of which `make test` runs a slice: all but the one that its other tests run on."""
KAFKA_VERSIONS = LOCKS / "kafka-versions.lock"
BENCH_JARS = LOCKS / "bench-jars.lock"
"""Jars of older brokers and mirrors, which only their tests fetch."""
TABLES = LOCKS / "tables.lock"
"""Jars of Delta Lake and Iceberg for other Sparks, which only their tests fetch."""
JAVA_HOME_FILE = HOME / "java_home"


def venv_of_spark(minor: str) -> Path:
    """Return the environment of one of ``SPARKS``."""
    return HOME / f"venv-spark-{minor}"


def say(message: str) -> None:
    """Print one line of progress at once, also into a pipe."""
    print(message, flush=True)  # noqa: T201  # the output of `make`


def fail(problem: str, state_after: str, remedy: str) -> NoReturn:
    """End set-up with the three sentences every error of this project has."""
    sys.exit(f"\nset-up: {problem} {state_after} {remedy}")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(step: str, command: Sequence[object]) -> None:
    """Run a step's command with its output in a log file; print the end of it if it fails."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"setup-{step.replace(' ', '-')}.log"
    with log.open("ab") as out:
        code = subprocess.run(  # noqa: S603  # our own commands
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT
        ).returncode
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        say(tail)
        fail(
            f"{step}: {Path(str(command[0])).name} ended with exit code {code}, 0 was expected.",
            f"Finished steps are kept; the whole output is in {log.relative_to(ROOT)}.",
            "Check the network and the lines above, then run the same command again.",
        )


class Stamp:
    """Remembers that a step was done with these inputs; anything else means doing it again."""

    def __init__(self, name: str, *inputs: str | Path) -> None:
        self._file = HOME / "stamps" / name
        digest = hashlib.sha256(str(ROOT).encode())
        for item in inputs:
            digest.update(item.read_bytes() if isinstance(item, Path) else item.encode())
        self._value = digest.hexdigest()

    @property
    def is_current(self) -> bool:
        """True if the step ended well with exactly these inputs."""
        return self._file.exists() and self._file.read_text() == self._value

    def set(self) -> None:
        """Record the step as done."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self._value)


def remove(path: Path) -> None:
    """Delete a folder that may not exist."""
    shutil.rmtree(path, ignore_errors=True)
