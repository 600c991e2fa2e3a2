"""The archives from which JVMs take their classes in tests: ``python3 -m tools.class_archive``."""

from __future__ import annotations

import sys
import time

from testbed.jvm import PROGRAMS, archive
from tools.common import (
    JARS,
    JAVA_HOME_FILE,
    ROOT,
    VENV_AIRFLOW,
    VENV_SPARK,
    Stamp,
    run,
    say,
    venv_of_spark,
)


def main() -> int:
    """Make them unless they are there."""
    ensure()
    return 0


def ensure() -> None:
    """Make them unless they are there, of this Java and these jars."""
    jars = sorted([*JARS.glob("*/*.jar"), *VENV_SPARK.glob("lib/python3*/site-packages/pyspark/jars/*.jar")])
    seen = [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    stamp = Stamp("class-archive", JAVA_HOME_FILE, *seen)
    archives = [archive(program) for program in PROGRAMS]
    if stamp.is_current and all(file.exists() for file in archives):
        return
    say("set-up: classes of Spark, Kafka and MirrorMaker in archives ...")
    started_s = time.monotonic()
    for file in archives:
        file.unlink(missing_ok=True)
    _make()
    stamp.set()
    say(f"set-up: class archives done in {time.monotonic() - started_s:.0f} s")


def ensure_of_spark(minor: str) -> None:
    """Make the one of another Spark, whose environment is there, unless it is as its jars are."""
    homes = venv_of_spark(minor).glob("lib/python3*/site-packages/pyspark/jars/*.jar")
    jars = sorted([*JARS.glob(f"spark-kafka-{minor}/*.jar"), *homes])
    seen = [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    stamp = Stamp(f"class-archive-{minor}", JAVA_HOME_FILE, *seen)
    if stamp.is_current and archive("spark", minor).exists():
        return
    archive("spark", minor).unlink(missing_ok=True)
    archive("spark", minor).parent.mkdir(parents=True, exist_ok=True)
    _make(minor)
    stamp.set()


def _make(*minors: str) -> None:
    python = VENV_AIRFLOW / "bin" / "python"
    guarded = [python, ROOT / "testbed" / "guard.py", "--", python]
    run("class archive", [*guarded, "-m", "testbed.class_archive", *minors])


if __name__ == "__main__":
    sys.exit(main())
