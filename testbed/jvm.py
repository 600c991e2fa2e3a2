"""Options with which the test bed's JVMs start quickly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from testbed import paths

if TYPE_CHECKING:
    from pathlib import Path

Program = Literal["spark", "kafka", "mirror"]
PROGRAMS: tuple[Program, ...] = ("spark", "kafka", "mirror")
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The first tier of the JIT only: start-up is most of what a short-lived JVM does."""
FORKS = "-Djdk.lang.Process.launchMechanism=VFORK"
"""Hadoop runs ``chmod`` for each file it makes, and Java's usual way to start a process costs two."""


def archive(program: Program, minor: str = "") -> Path:
    """Return where a program's classes are, as a JVM keeps them; ``testbed.class_archive`` makes it.

    Args:
        program: What runs.
        minor: Its version, if it is not the one of the other tests.
    """
    version = f"-{minor}" if minor else ""
    return paths.HOME / "cache" / f"{program}-classes{version}.jsa"


def from_archive(program: Program, minor: str = "") -> tuple[str, ...]:
    """Return the options of a JVM that takes its classes from the archive."""
    return from_file(archive(program, minor))


def from_file(file: Path) -> tuple[str, ...]:
    """Return the same for an archive in a file of its own."""
    # A JVM that finds no archive, or cannot use it, starts without, and says nothing in its output.
    return (f"-XX:SharedArchiveFile={file}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def spark_options(minor: str = paths.SPARK) -> str:
    """Return the options of a driver's or an executor's JVM, of the usual Spark or of another."""
    # An archive serves the Java that made it.
    return " ".join((*QUICK, FORKS, *(() if paths.DRIVER_JAVA else from_archive("spark", minor))))
