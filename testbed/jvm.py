"""Options with which the test bed's short-lived JVMs start quickly."""

from __future__ import annotations

from testbed import paths

QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""The first tier of the JIT only: start-up is most of what a short-lived JVM does."""
ARCHIVE = paths.HOME / "cache" / "spark-classes.jsa"
"""Spark's classes as a JVM keeps them in memory; ``testbed.class_archive`` makes it."""


def spark_options() -> str:
    """Return the options of a driver's or an executor's JVM."""
    # A JVM that finds no archive, or cannot use it, starts without, and says nothing in the job's output.
    return " ".join((*QUICK, f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"))
