"""The jar sets: exact coordinates and SHA-256 from ``locks/jars.lock``, fetched by PySpark's own Ivy."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from tools.common import (
    HOME,
    JARS,
    LOCKS,
    LOGS,
    ROOT,
    VENV_SPARK,
    Stamp,
    fail,
    fail_full,
    is_full,
    remove,
    say,
    sha256_of,
)

if TYPE_CHECKING:
    from pathlib import Path

LOCK = LOCKS / "jars.lock"
DOWNLOADS_AT_ONCE = 4
SEPARATOR = "__"
"""Between the parts of a coordinate in the names of retrieved files; occurs in none of them."""


@dataclass(frozen=True, slots=True, order=True)
class Coordinate:
    """A jar's address in a Maven repository."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read ``group:artifact:version[:classifier]``."""
        return cls(*text.split(":"))

    def __str__(self) -> str:
        """Return the form used in the lock file."""
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))

    @property
    def file_name(self) -> str:
        """Name inside a jar set."""
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + ".jar"

    @property
    def retrieved_name(self) -> str:
        """Name under which Ivy puts it down; unique, and tells the coordinate."""
        return SEPARATOR.join((self.group, self.artifact, self.version, self.classifier)) + ".jar"


@dataclass(frozen=True, slots=True, order=True)
class LockedJar:
    """One line of the lock file."""

    jar_set: str
    coordinate: Coordinate
    sha256: str


def read_lock(lock: Path = LOCK) -> list[LockedJar]:
    """Parse ``jars.lock``, or another file like it."""
    rows = (line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#"))
    return [LockedJar(jar_set, Coordinate.parse(coordinate), sha) for jar_set, coordinate, sha in rows]


def ensure(java_home: Path, lock: Path = LOCK, folder: Path = JARS) -> None:
    """Bring every jar set to what the lock file says; identical jars are one file on disk."""
    stamp = Stamp(folder.name, lock)
    if stamp.is_current and folder.exists():
        return
    locked = read_lock(lock)
    folder.mkdir(exist_ok=True)
    have = {sha256_of(path): path for path in HOME.glob("jars*/*/*.jar")}
    missing = {jar.sha256: jar for jar in locked if jar.sha256 not in have}
    have |= _fetch(java_home, list(missing.values()), folder)
    sets = sorted({jar.jar_set for jar in locked})
    for jar_set in sets:
        _lay_out(folder / jar_set, [jar for jar in locked if jar.jar_set == jar_set], have)
    for stray in set(folder.iterdir()) - {folder / jar_set for jar_set in sets}:
        remove(stray)
    remove(HOME / "ivy")
    stamp.set()


def _fetch(java_home: Path, missing: list[LockedJar], target: Path) -> dict[str, Path]:
    """Download jars, several Ivys at once since each fetches one file at a time, and verify them."""
    if not missing:
        return {}
    started_s = time.monotonic()
    chunks = [chunk for n in range(DOWNLOADS_AT_ONCE) if (chunk := missing[n::DOWNLOADS_AT_ONCE])]
    folders = [HOME / "ivy" / f"jars-{n}" for n in range(len(chunks))]
    progress = Progress(len(missing))
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as pool:
        downloads = [
            pool.submit(retrieve, java_home, _coordinates(chunk), folder, progress, transitive=False)
            for chunk, folder in zip(chunks, folders, strict=True)
        ]
    failed = sum(download.result() != 0 for download in downloads)
    # What came is kept among the sets, so that the next try fetches only the rest.
    incoming = target / "incoming"
    incoming.mkdir(exist_ok=True)
    fetched = {}
    for chunk, folder in zip(chunks, folders, strict=True):
        for jar in chunk:
            if path := _verified(jar, folder):
                fetched[jar.sha256] = path.rename(incoming / path.name)
    if failed or len(fetched) != len(missing):
        if is_full():
            fail_full(str(HOME))
        fail(
            f"{len(missing)} jars were to be fetched, Ivy brought {len(fetched)}.",
            f"Those are kept, no jar set was changed; Ivy's output is in {LOGS.relative_to(ROOT)}/.",
            "Check the network, then run the same command again.",
        )
    say(f"set-up: jars done in {time.monotonic() - started_s:.0f} s")
    return fetched


def _coordinates(jars: list[LockedJar]) -> list[Coordinate]:
    return [jar.coordinate for jar in jars]


def _verified(jar: LockedJar, folder: Path) -> Path | None:
    """Return where the jar was put, None if it did not come; end set-up if it is another one."""
    path = folder / jar.coordinate.retrieved_name
    if not path.exists():
        return None
    found = sha256_of(path)
    if found != jar.sha256:
        fail(
            f"{jar.coordinate} was expected to have SHA-256 {jar.sha256}, found {found}.",
            "No jar set was changed.",
            "Run again; if it stays, the repository serves another file than the one locked: find out why, "
            "and only then run `make lock` and review the difference.",
        )
    return path


def _lay_out(target: Path, wanted: list[LockedJar], have: dict[str, Path]) -> None:
    """Fill the set's folder with hard links, beside the old one, then put it in place."""
    fresh = target.with_name(f"{target.name}.new")
    remove(fresh)
    fresh.mkdir(parents=True)
    for jar in wanted:
        os.link(have[jar.sha256], fresh / jar.coordinate.file_name)
    remove(target)
    fresh.rename(target)
    have.update({jar.sha256: target / jar.coordinate.file_name for jar in wanted})


class Progress:
    """Counts downloaded jars over several Ivys and prints every tenth."""

    def __init__(self, total: int | None) -> None:
        self._total = "?" if total is None else str(total)
        self._done = 0
        self._lock = threading.Lock()

    def add(self) -> None:
        """Count one jar."""
        with self._lock:
            self._done += 1
            if self._done % 10 == 0:
                say(f"set-up: jars {self._done}/{self._total}")


def retrieve(
    java_home: Path, coordinates: list[Coordinate], folder: Path, progress: Progress, *, transitive: bool
) -> int:
    """Let Ivy download jars into ``folder`` and return its exit code."""
    remove(folder)
    folder.mkdir(parents=True)
    ivy_file = folder / "ivy.xml"
    ivy_file.write_text(_ivy_xml(coordinates, transitive=transitive))
    settings_file = folder / "ivysettings.xml"
    settings_file.write_text(_ivy_settings(transitive=transitive))
    pattern = SEPARATOR.join(("[organisation]", "[module]", "[revision]", "([classifier])"))
    command = [
        java_home / "bin" / "java",
        # A cache of its own: Ivys that share one disturb each other.
        *("-cp", _ivy_jar(), "org.apache.ivy.Main", "-cache", folder / "cache", "-ivy", ivy_file),
        *("-settings", settings_file, "-types", "jar", "bundle", "-retrieve", folder / f"{pattern}.[ext]"),
    ]
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"setup-{folder.name}.log"
    with (
        log.open("w") as out,
        subprocess.Popen(  # noqa: S603  # our own command
            [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as ivy,
    ):
        for line in ivy.stdout or ():
            out.write(line)
            if "[SUCCESSFUL ]" in line and ".jar" in line:
                progress.add()
    return ivy.returncode


def _ivy_jar() -> Path:
    found = sorted(VENV_SPARK.glob("lib/python3*/site-packages/pyspark/jars/ivy-*.jar"))
    if not found:
        fail(
            "PySpark's jars folder was expected to hold ivy-*.jar, found none.",
            "The environments are kept.",
            "Remove .flinkstyle/venv-spark and run `make setup`.",
        )
    return found[-1]


def _ivy_xml(coordinates: list[Coordinate], *, transitive: bool) -> str:
    conf = "default->default" if transitive else "default->*"
    # Sets may hold different versions of one module: exact coordinates are all wanted.
    conflicts = "" if transitive else '<conflict org="*" module="*" manager="all"/>'
    rows = []
    for jar in coordinates:
        # Naming the artifact keeps jars whose pom declares another packaging, and classifiers.
        artifact = f'<artifact name={quoteattr(jar.artifact)} type="jar" ext="jar"'
        artifact += f" m:classifier={quoteattr(jar.classifier)}/>" if jar.classifier else "/>"
        address = f"org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        follow = str(transitive).lower()
        rows.append(f'<dependency {address} conf="{conf}" transitive="{follow}">{artifact}</dependency>')
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="local" module="jars"/><configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(rows)}{conflicts}</dependencies></ivy-module>"
    )


def _ivy_settings(*, transitive: bool) -> str:
    """Leave Ivy its own repository; exact jars need no poms, and their SHA-256 is checked by us."""
    poms = "" if transitive else 'usepoms="false" checksums=""'
    return (
        '<ivysettings><settings defaultResolver="central"/><resolvers>'
        f'<ibiblio name="central" m2compatible="true" {poms}/></resolvers></ivysettings>'
    )


def spark_jar_names() -> set[str]:
    """Return the artifact names Spark ships, without versions."""
    return {_artifact_of(path.name) for path in _ivy_jar().parent.glob("*.jar")}


def _artifact_of(file_name: str) -> str:
    stem = file_name.removesuffix(".jar")
    parts = stem.split("-")
    for index, part in enumerate(parts):
        if index and part[:1].isdigit():
            return "-".join(parts[:index])
    return stem
