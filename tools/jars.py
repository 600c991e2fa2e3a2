"""The jar sets: exact coordinates and SHA-256 from ``locks/jars.lock``, fetched by PySpark's own Ivy."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tools.common import HOME, JARS, LOCKS, LOGS, ROOT, VENV_SPARK, Stamp, fail, remove, say, sha256_of

LOCK = LOCKS / "jars.lock"
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


def read_lock() -> list[LockedJar]:
    """Parse ``jars.lock``."""
    rows = (line.split() for line in LOCK.read_text().splitlines() if line and not line.startswith("#"))
    return [LockedJar(jar_set, Coordinate.parse(coordinate), sha) for jar_set, coordinate, sha in rows]


def ensure(java_home: Path) -> None:
    """Bring every jar set to what the lock file says; identical jars are one file on disk."""
    stamp = Stamp("jars", LOCK)
    if stamp.is_current and JARS.exists():
        return
    locked = read_lock()
    have = {sha256_of(path): path for path in JARS.glob("*/*.jar")} if JARS.exists() else {}
    sets = sorted({jar.jar_set for jar in locked})
    for jar_set in sets:
        wanted = [jar for jar in locked if jar.jar_set == jar_set]
        _fetch_missing(java_home, jar_set, wanted, have)
        _lay_out(jar_set, wanted, have)
    for stray in set(JARS.iterdir()) - {JARS / jar_set for jar_set in sets}:
        remove(stray)
    remove(HOME / "ivy")
    stamp.set()


def _fetch_missing(java_home: Path, jar_set: str, wanted: list[LockedJar], have: dict[str, Path]) -> None:
    missing = [jar for jar in wanted if jar.sha256 not in have]
    if not missing:
        return
    started_s = time.monotonic()
    folder = HOME / "ivy" / f"set-{jar_set}"
    retrieve(java_home, jar_set, [jar.coordinate for jar in missing], folder, transitive=False)
    for jar in missing:
        path = folder / jar.coordinate.retrieved_name
        found = sha256_of(path) if path.exists() else "no file"
        if found != jar.sha256:
            path.unlink(missing_ok=True)
            fail(
                f"{jar.coordinate} of jar set {jar_set} was expected to have SHA-256 {jar.sha256}, found {found}.",
                "The jar was deleted; jars that matched are kept.",
                "Run again; if it stays, what the repository serves is not what was locked: check it, "
                "then run `make lock` and review the difference.",
            )
        have[jar.sha256] = path
    say(f"set-up: jars {jar_set} done in {time.monotonic() - started_s:.0f} s")


def _lay_out(jar_set: str, wanted: list[LockedJar], have: dict[str, Path]) -> None:
    """Fill the set's folder with hard links, beside the old one, then put it in place."""
    target, fresh = JARS / jar_set, JARS / f"{jar_set}.new"
    remove(fresh)
    fresh.mkdir(parents=True)
    for jar in wanted:
        os.link(have[jar.sha256], fresh / jar.coordinate.file_name)
    remove(target)
    fresh.rename(target)
    have.update({jar.sha256: target / jar.coordinate.file_name for jar in wanted})


def retrieve(
    java_home: Path, name: str, coordinates: list[Coordinate], folder: Path, *, transitive: bool
) -> None:
    """Let Ivy download jars into ``folder``, with progress printed as a count."""
    remove(folder)
    folder.mkdir(parents=True)
    ivy_file = folder / "ivy.xml"
    ivy_file.write_text(_ivy_xml(coordinates, transitive=transitive))
    pattern = SEPARATOR.join(("[organisation]", "[module]", "[revision]", "([classifier])"))
    command = [
        java_home / "bin" / "java",
        *("-cp", _ivy_jar(), "org.apache.ivy.Main", "-cache", HOME / "ivy" / "cache", "-ivy", ivy_file),
        *("-types", "jar", "bundle", "-retrieve", folder / f"{pattern}.[ext]"),
    ]
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"setup-jars-{name}.log"
    total = "?" if transitive else len(coordinates)
    done = 0
    with log.open("w") as out, subprocess.Popen(  # noqa: S603  # our own command
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ivy:
        assert ivy.stdout is not None  # noqa: S101  # asked for above
        for line in ivy.stdout:
            out.write(line)
            if "[SUCCESSFUL ]" in line and ".jar" in line:
                done += 1
                if done % 10 == 0:
                    say(f"set-up: jars {name} {done}/{total}")
    if ivy.returncode != 0 and not transitive:
        fail(
            f"Ivy could not fetch all {total} jars of set {name} (exit code {ivy.returncode}, {done} came).",
            f"Sets that were complete are kept; the whole output is in {log.relative_to(ROOT)}.",
            "Check the network, then run the same command again.",
        )


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
    conf = "default->default" if transitive else "default->master"
    rows = []
    for jar in coordinates:
        # Naming the artifact keeps jars whose pom declares another packaging, and classifiers.
        artifact = f'<artifact name={quoteattr(jar.artifact)} type="jar" ext="jar"'
        artifact += f" m:classifier={quoteattr(jar.classifier)}/>" if jar.classifier else "/>"
        rows.append(
            f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)} "
            f'conf="{conf}" transitive="{str(transitive).lower()}">{artifact}</dependency>'
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="local" module="jars"/><configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(rows)}</dependencies></ivy-module>"
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


