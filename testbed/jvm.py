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


def archive(program: Program) -> Path:
    """Return where a program's classes are, as a JVM keeps them; ``testbed.class_archive`` makes it."""
    return paths.HOME / "cache" / f"{program}-classes.jsa"


def from_archive(program: Program) -> tuple[str, ...]:
    """Return the options of a JVM that takes its classes from the archive."""
    # A JVM that finds no archive, or cannot use it, starts without, and says nothing in its output.
    return (f"-XX:SharedArchiveFile={archive(program)}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def spark_options() -> str:
    """Return the options of a driver's or an executor's JVM."""
    return " ".join((*QUICK, *from_archive("spark")))
