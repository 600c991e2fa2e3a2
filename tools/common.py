"""Where set-up puts things, how it remembers what is done, and how it fails."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".flinkstyle"
"""The one ignored folder that holds everything set-up, demo and tests make."""
LOCKS = ROOT / "locks"
LOGS = HOME / "logs"
VENV_UV = HOME / "uv"
VENV_BUILD = HOME / "venv-build"
VENV_AIRFLOW = HOME / "venv-airflow"
VENV_SPARK = HOME / "venv-spark"
VENV_BENCH = HOME / "venv-bench"
VENV_MUTANTS = HOME / "venv-mutants"
JARS = HOME / "jars"
SPARKS = tuple(sorted(path.stem.removeprefix("spark-") for path in LOCKS.glob("spark-*.in")))
"""Minor versions of Spark that have an environment of their own, which is made when asked for."""
SLICED_SPARKS = tuple(minor for minor in SPARKS if f"=={minor}." not in (LOCKS / "spark.in").read_text())
"""Those of which `make matrix` runs a slice: all but the one that its other tests run on."""
ENDS = (SLICED_SPARKS[0], SLICED_SPARKS[-1])
"""Of them what `make nightly` runs: the oldest and the newest."""
KAFKA_VERSIONS = LOCKS / "kafka-versions.lock"
BENCH_JARS = LOCKS / "bench-jars.lock"
"""Jars of older brokers and mirrors, which only their tests fetch."""
TABLES = LOCKS / "tables.lock"
"""Jars of Delta Lake and Iceberg for other Sparks, which only their tests fetch."""
JAVA_HOME_FILE = HOME / "java_home"
_FULL = {errno.ENOSPC: "No space left on device", errno.EDQUOT: "Disk quota exceeded"}
_SPARE_BYTES = 256 << 20
"""With less than this a disk was full for a step that failed: programs that a full disk ends delete what they
had begun, and where it is full their words reach no log."""
_OFFLINE = (
    "dns error",
    "name resolution",
    "Network is unreachable",
    "Connection refused",
    "error sending request",
)
"""What uv, pip, Ivy and npm say without a network."""


def venv_of_spark(minor: str) -> Path:
    """Return the environment of one of ``SPARKS``."""
    return HOME / f"venv-spark-{minor}"


def say(message: str) -> None:
    """Print one line of progress at once, also into a pipe."""
    print(message, flush=True)  # noqa: T201  # the output of `make`


def fail(problem: str, state_after: str, remedy: str, *, step: str = "set-up") -> NoReturn:
    """End a command with the three sentences every error of this project has."""
    sys.exit(f"\n{step}: {problem} {state_after} {remedy}")


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold this checkout's folder: a second `make` waits for the first instead of installing over it.

    A disk that is full, or a folder that cannot be written, is said in a sentence.
    """
    try:
        HOME.mkdir(exist_ok=True)
        with (HOME / "setup.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        if error.errno in _FULL:
            fail_full(str(error.filename or HOME))
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            fail(
                f"A folder that can be written was expected, found {error.filename}: {error.strerror}.",
                "Finished steps are kept.",
                "Run it as the user who owns the clone, or clone it to a disk that can be written.",
            )
        raise


def fail_full(place: str) -> NoReturn:
    """Say that there is no room left, and where."""
    fail(
        f"The disk of {place} is full.",
        "Finished steps are kept.",
        "Make room (set-up needs 3 GB here, and the caches of uv and pip), then run the same command again.",
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def run(step: str, command: Sequence[object]) -> None:
    """Run a step's command with its output in a log file; print the end of it if it fails."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"setup-{step.replace(' ', '-')}.log"
    with log.open("ab") as out:
        before = out.tell()
        code = subprocess.run(  # noqa: S603  # our own commands
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=ROOT
        ).returncode
    if code != 0:
        output, program = log.read_bytes()[before:].decode(errors="replace"), Path(str(command[0])).name
        kept = f"Finished steps are kept; the whole output is in {log.relative_to(ROOT)}."
        fail_known(step, program, output, kept)
        say("\n".join(output.splitlines()[-15:]))
        fail(
            f"{step}: {program} ended with exit code {code}, 0 was expected.",
            kept,
            "Look at the lines above, then run the same command again.",
        )


def fail_known(step: str, program: str, output: str, kept: str) -> None:
    """End set-up if what a program said shows that the disk is full or that there is no network."""
    if is_full(output):
        fail_full(str(HOME))
    if any(words in output for words in _OFFLINE):
        fail(
            f"{step}: {program} reached no package index.",
            kept,
            "Connect this machine, or name what it reaches (PIP_INDEX_URL and UV_INDEX_URL, HTTPS_PROXY), "
            "then run the same command again.",
        )


def is_full(output: str = "", *, spare_bytes: int = _SPARE_BYTES) -> bool:
    """Whether this folder's disk has too little room, or a program said that some disk has none."""
    return shutil.disk_usage(HOME).free < spare_bytes or any(words in output for words in _FULL.values())


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
